//! One arrangement that is kept: `run PREFIX EPOCHS` feeds it, `content` adds it up.
use differential_dataflow::input::Input;
use differential_dataflow::trace::TraceReader;
use differential_dataflow::trace::cursor::{Cursor, Navigable};
use timely::dataflow::ProbeHandle;
use timely::dataflow::operators::Probe;
use timely::progress::Antichain;

use crate::checksum::{Sum, Words};
use crate::feed::{Door, Feed, feed};
use crate::laps::Laps;
use crate::{Command, commands};

macro_rules! arrangement {
    ($name:ident, $row:ty, $arrange:ident) => {
        pub fn $name() {
            timely::execute_directly(|worker| {
                let probe = ProbeHandle::new();
                let (input, mut trace) = worker.dataflow::<u64, _, _>(|scope| {
                    let (input, rows) = scope.new_collection::<$row, isize>();
                    let arranged = rows.$arrange();
                    arranged.stream.probe_with(&probe);
                    (input, arranged.trace)
                });
                let mut input = Door::new(input);
                for Command { verb, prefix, number } in commands() {
                    match verb.as_str() {
                        "run" => {
                            let count = input.read(&prefix);
                            let passed = |upper| {
                                let frontier = Antichain::from_elem(upper);
                                trace.set_logical_compaction(frontier.borrow());
                                trace.set_physical_compaction(frontier.borrow());
                            };
                            feed(worker, &mut [&mut input], number, &probe, passed, || ()).answer(count, &Sum::default());
                        }
                        "content" => {
                            let mut sum = Sum::default();
                            trace.map_batches(|batch| {
                                let mut cursor = batch.cursor();
                                while let Some(key) = cursor.get_key(batch) {
                                    while let Some(value) = cursor.get_val(batch) {
                                        let words = (key.to_owned(), value.to_owned()).words();
                                        cursor.map_times(batch, |_, diff| sum.add(words.clone(), None, *diff));
                                        cursor.step_val(batch);
                                    }
                                    cursor.step_key(batch);
                                }
                            });
                            Laps::default().answer(0, &sum);
                        }
                        _ => panic!("unknown command {verb}"),
                    }
                }
            });
        }
    };
}

arrangement!(keys, u64, arrange_by_self);
arrangement!(pairs, (u64, u64), arrange_by_key);
arrangement!(texts, (u64, String), arrange_by_key);
