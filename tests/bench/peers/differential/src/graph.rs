//! Queries over the edges of a graph, as data: pairs of nodes come and go, each with its answer. `run PREFIX EPOCHS` changes
//! the edges, `query PREFIX EPOCHS` the pairs.
use differential_dataflow::VecCollection;
use differential_dataflow::input::Input;
use differential_dataflow::operators::arrange::TraceAgent;
use differential_dataflow::operators::arrange::Arranged;
use differential_dataflow::trace::implementations::ValSpine;
use timely::dataflow::ProbeHandle;

use crate::columns::updates;
use crate::feed::{Caught, caught, feed};
use crate::{Command, commands};

type Pair = (u64, u64);
/// A node with the pair that it was reached for.
type Reached<'scope> = VecCollection<'scope, u64, (u64, Pair), isize>;
type Edges<'scope> = Arranged<'scope, TraceAgent<ValSpine<u64, u64, u64, isize>>>;

fn hop<'scope>(from: Reached<'scope>, edges: Edges<'scope>) -> Reached<'scope> {
    from.arrange_by_key().join_core(edges, |_, &pair, &node| Some((node, pair)))
}

/// Nodes `hops` edges from each pair's first node, or, with 4, in the middle of a path of four edges between the two.
pub fn session(hops: usize) {
    timely::execute_directly(move |worker| {
        let probe = ProbeHandle::new();
        let out = Caught::<(u64, (u64, u64))>::default();
        let (mut edges, mut asked) = worker.dataflow::<u64, _, _>(|scope| {
            let (edges, arcs) = scope.new_collection::<Pair, isize>();
            let (asked, pairs) = scope.new_collection::<Pair, isize>();
            let forward = arcs.clone().arrange_by_key();
            let mut found = hop(pairs.clone().map(|pair| (pair.0, pair)), forward.clone());
            if hops > 1 {
                found = hop(found, forward);
            }
            if hops > 2 {
                let backward = arcs.map(|(from, to)| (to, from)).arrange_by_key();
                let other = hop(hop(pairs.map(|pair| (pair.1, pair)), backward.clone()), backward);
                found = found.arrange_by_self().join_core(other.arrange_by_self(), |&met, _, _| Some(met));
            }
            let into = out.clone();
            found
                .map(|(node, (from, to))| (from, (to, node)))
                .inspect_batch(move |_, sent| into.borrow_mut().extend_from_slice(sent))
                .probe_with(&probe);
            (edges, asked)
        });
        for Command { verb, prefix, number } in commands() {
            let (changed, other) = match verb.as_str() {
                "run" => (&mut edges, &mut asked),
                "query" => (&mut asked, &mut edges),
                _ => panic!("unknown command {verb}"),
            };
            let new = updates(&prefix, *changed.time());
            let count = new.len();
            feed(worker, changed, new, number, &probe, |upper| {
                other.advance_to(upper);
                other.flush();
            })
            .answer(count, &caught(&out, true));
        }
    });
}
