//! Collections that are defined by themselves, over the edges of a graph: `run PREFIX EPOCHS` changes the edges.
use differential_dataflow::VecCollection;
use differential_dataflow::input::Input;
use differential_dataflow::operators::Iterate;
use timely::dataflow::ProbeHandle;

use crate::feed::{Caught, Door, Feed, caught, feed};
use crate::{Command, commands};

type Pair = (u32, u32);
type Pairs<'scope> = VecCollection<'scope, u64, Pair, isize>;

/// Each node that node 0 reaches, with the least number of edges that lead there.
pub fn distances(edges: Pairs<'_>) -> Pairs<'_> {
    let (input, roots) = edges.scope().new_collection_from(Some((0, 0)));
    drop(input);
    roots.clone().iterate(|scope, inner| {
        inner
            .join_map(edges.enter(scope), |_, distance, to| (*to, distance + 1))
            .concat(roots.enter(scope))
            .reduce(|_, distances, least| least.push((*distances[0].0, 1)))
    })
}

/// Pairs of nodes of which the first reaches the second.
pub fn closure(edges: Pairs<'_>) -> Pairs<'_> {
    edges.clone().iterate(|scope, inner| {
        let edges = edges.enter(scope);
        let arranged = edges.clone().arrange_by_key();
        inner
            .map(|(from, middle)| (middle, from))
            .arrange_by_key()
            .join_core(arranged, |_, &from, &to| Some((from, to)))
            .concat(edges)
            .distinct()
    })
}

/// Different nodes that are as far below a common ancestor; edges lead from parents to children.
pub fn generation(edges: Pairs<'_>) -> Pairs<'_> {
    let children = edges.arrange_by_key();
    let siblings =
        children.clone().join_core(children.clone(), |_, &one, &two| (one != two).then_some((one, two))).distinct();
    siblings.clone().iterate(|scope, inner| {
        let children = children.enter(scope);
        inner
            .arrange_by_key()
            .join_core(children.clone(), |_, &other, &child| Some((other, child)))
            .arrange_by_key()
            .join_core(children, |_, &one, &two| Some((one, two)))
            .concat(siblings.enter(scope))
            .distinct()
    })
}

/// Serve one of them.
pub fn session(recursion: impl for<'scope> Fn(Pairs<'scope>) -> Pairs<'scope> + Send + Sync + 'static) {
    timely::execute_directly(move |worker| {
        let probe = ProbeHandle::new();
        let out = Caught::<Pair>::default();
        let mut edges = Door::new(worker.dataflow::<u64, _, _>(|scope| {
            let (input, edges) = scope.new_collection::<Pair, isize>();
            let into = out.clone();
            recursion(edges).inspect_batch(move |_, sent| into.borrow_mut().extend_from_slice(sent)).probe_with(&probe);
            input
        }));
        for Command { verb, prefix, number } in commands() {
            assert_eq!(verb, "run");
            let count = edges.read(&prefix);
            feed(worker, &mut [&mut edges], number, &probe, |_| (), || ()).answer(count, &caught(&out, true));
        }
    });
}
