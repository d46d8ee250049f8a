//! Keys joined with arranged rows. `run PREFIX EPOCHS` changes the rows, `query PREFIX EPOCHS` feeds keys; `install PREFIX
//! KEYS` brings the arrangement into a new dataflow for every so many keys, and drops that again: two laps each.
use differential_dataflow::input::Input;
use differential_dataflow::trace::TraceReader;
use timely::dataflow::ProbeHandle;
use timely::dataflow::operators::Probe;
use timely::progress::Antichain;

use crate::checksum::Sum;
use crate::columns::updates;
use crate::feed::{Caught, Door, Feed, caught, feed};
use crate::laps::Laps;
use crate::{Command, commands};

type Pair = (u64, u64);

/// One query that stands while keys come.
pub fn join() {
    timely::execute_directly(|worker| {
        let probe = ProbeHandle::new();
        let out = Caught::<Pair>::default();
        let (rows, keys) = worker.dataflow::<u64, _, _>(|scope| {
            let (rows, pairs) = scope.new_collection::<Pair, isize>();
            let (keys, asked) = scope.new_collection::<u64, isize>();
            let into = out.clone();
            asked
                .arrange_by_self()
                .join_core(pairs.arrange_by_key(), |&key, &(), &value| Some((key, value)))
                .inspect_batch(move |_, sent| into.borrow_mut().extend_from_slice(sent))
                .probe_with(&probe);
            (rows, keys)
        });
        let (mut rows, mut keys) = (Door::new(rows), Door::new(keys));
        for Command { verb, prefix, number } in commands() {
            let count = match verb.as_str() {
                "run" => rows.read(&prefix),
                "query" => keys.read(&prefix),
                _ => panic!("unknown command {verb}"),
            };
            feed(worker, &mut [&mut rows, &mut keys], number, &probe, |_| (), || ()).answer(count, &caught(&out, true));
        }
    });
}

/// Queries that come and go over one live arrangement.
pub fn install() {
    timely::execute_directly(|worker| {
        let probe = ProbeHandle::new();
        let out = Caught::<Pair>::default();
        let (rows, mut trace) = worker.dataflow::<u64, _, _>(|scope| {
            let (rows, pairs) = scope.new_collection::<Pair, isize>();
            let arranged = pairs.arrange_by_key();
            arranged.stream.probe_with(&probe);
            (rows, arranged.trace)
        });
        let mut rows = Door::new(rows);
        for Command { verb, prefix, number } in commands() {
            if verb == "run" {
                let count = rows.read(&prefix);
                let passed = |upper| {
                    let frontier = Antichain::from_elem(upper);
                    trace.set_logical_compaction(frontier.borrow());
                    trace.set_physical_compaction(frontier.borrow());
                };
                feed(worker, &mut [&mut rows], number, &probe, passed, || ()).answer(count, &Sum::default());
                continue;
            }
            assert_eq!(verb, "install");
            let now = rows.time();
            let new = updates::<u64>(&prefix, now);
            let mut laps = Laps::default();
            for keys in new.chunks(number as usize) {
                let seen = ProbeHandle::new();
                let (id, query) = laps.lap(|| {
                    let id = worker.next_dataflow_index();
                    let mut query = worker.dataflow::<u64, _, _>(|scope| {
                        let (query, asked) = scope.new_collection::<u64, isize>();
                        let into = out.clone();
                        asked
                            .arrange_by_self()
                            .join_core(trace.import(scope), |&key, &(), &value| Some((key, value)))
                            .inspect_batch(move |_, sent| into.borrow_mut().extend_from_slice(sent))
                            .probe_with(&seen);
                        query
                    });
                    query.advance_to(now - 1);
                    for (key, _, diff) in keys {
                        query.update(*key, *diff);
                    }
                    query.advance_to(now);
                    query.flush();
                    worker.step_while(|| seen.less_than(&now));
                    (id, query)
                });
                laps.lap(|| {
                    drop(query);
                    worker.drop_dataflow(id);
                });
            }
            laps.answer(new.len(), &caught(&out, false));
        }
    });
}

/// So many queries over one collection: on one arrangement, or each with its own. `query PREFIX KEYS` gives each query so
/// many keys, which are seen with the next `run`.
pub fn queries(count: usize, shared: bool) {
    timely::execute_directly(move |worker| {
        let probe = ProbeHandle::new();
        let out = Caught::<Pair>::default();
        let (rows, mut asking) = worker.dataflow::<u64, _, _>(|scope| {
            let (rows, pairs) = scope.new_collection::<Pair, isize>();
            let one = shared.then(|| pairs.clone().arrange_by_key());
            let asking = (0..count)
                .map(|_| {
                    let (keys, asked) = scope.new_collection::<u64, isize>();
                    let arranged = one.clone().unwrap_or_else(|| pairs.clone().arrange_by_key());
                    let into = out.clone();
                    asked
                        .arrange_by_self()
                        .join_core(arranged, |&key, &(), &value| Some((key, value)))
                        .inspect_batch(move |_, sent| into.borrow_mut().extend_from_slice(sent))
                        .probe_with(&probe);
                    keys
                })
                .collect::<Vec<_>>();
            (rows, asking)
        });
        let mut rows = Door::new(rows);
        for Command { verb, prefix, number } in commands() {
            let now = rows.time();
            if verb == "query" {
                let new = updates::<u64>(&prefix, now);
                for (keys, wanted) in asking.iter_mut().zip(new.chunks(number as usize)) {
                    wanted.iter().for_each(|(key, _, diff)| keys.update(*key, *diff));
                }
                Laps::default().answer(new.len(), &Sum::default());
                continue;
            }
            assert_eq!(verb, "run");
            let count = rows.read(&prefix);
            let passed = |upper| {
                for keys in asking.iter_mut() {
                    keys.advance_to(upper);
                    keys.flush();
                }
            };
            feed(worker, &mut [&mut rows], number, &probe, passed, || ()).answer(count, &caught(&out, true));
        }
    });
}
