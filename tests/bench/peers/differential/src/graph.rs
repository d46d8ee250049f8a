//! Queries over the edges of a graph, as data: pairs of nodes come and go, each with its answer. `run PREFIX EPOCHS` changes
//! the edges, `query PREFIX EPOCHS` the pairs, `both PREFIX EPOCHS` those of PREFIX-edges and of PREFIX-asked.
use differential_dataflow::VecCollection;
use differential_dataflow::input::Input;
use differential_dataflow::operators::arrange::TraceAgent;
use differential_dataflow::operators::arrange::Arranged;
use differential_dataflow::trace::implementations::ValSpine;
use timely::dataflow::ProbeHandle;

use crate::feed::{Caught, Door, Feed, caught, feed};
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
        let (edges, asked) = worker.dataflow::<u64, _, _>(|scope| {
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
        let (mut edges, mut asked) = (Door::new(edges), Door::new(asked));
        for Command { verb, prefix, number } in commands() {
            let count = match verb.as_str() {
                "run" => edges.read(&prefix),
                "query" => asked.read(&prefix),
                "both" => edges.read(&format!("{prefix}-edges")) + asked.read(&format!("{prefix}-asked")),
                _ => panic!("unknown command {verb}"),
            };
            feed(worker, &mut [&mut edges, &mut asked], number, &probe, |_| (), || ()).answer(count, &caught(&out, true));
        }
    });
}
