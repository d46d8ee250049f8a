//! Questions of relations: the rules rewritten by hand by magic sets, so that only what the asked values reach is derived.
use differential_dataflow::operators::Iterate;

use crate::programs::{Given, Pair};

/// tc(x, ?): the nodes that asked ones reach.
pub fn closure_from(given: &mut Given<'_>) {
    let (asked, edges) = (given.input::<u32>("asked"), given.input::<Pair>("edge").arrange_by_key());
    let first = asked.arrange_by_self().join_core(edges.clone(), |&from, _, &to| Some((to, from)));
    let found = first.clone().iterate(|scope, inner| {
        let edges = edges.enter(scope);
        inner.arrange_by_key().join_core(edges, |_, &from, &to| Some((to, from))).concat(first.enter(scope)).distinct()
    });
    given.output(found.map(|(to, from)| (from, to)));
}

/// tc(?, x): the nodes that reach asked ones.
pub fn closure_to(given: &mut Given<'_>) {
    let asked = given.input::<u32>("asked");
    let edges = given.input::<Pair>("edge").map(|(from, to)| (to, from)).arrange_by_key();
    let first = asked.arrange_by_self().join_core(edges.clone(), |&to, _, &from| Some((from, to)));
    let found = first.clone().iterate(|scope, inner| {
        let edges = edges.enter(scope);
        inner.arrange_by_key().join_core(edges, |_, &to, &from| Some((from, to))).concat(first.enter(scope)).distinct()
    });
    given.output(found);
}

/// sg(x, ?): the nodes of asked ones' generations; edges lead from parents to children.
pub fn generation_of(given: &mut Given<'_>) {
    let (asked, edges) = (given.input::<u32>("asked"), given.input::<Pair>("edge"));
    let children = edges.clone().arrange_by_key();
    let parents = edges.map(|(parent, child)| (child, parent)).arrange_by_key();
    let wanted = asked.clone().iterate(|scope, inner| {
        let parents = parents.clone().enter(scope);
        inner.arrange_by_self().join_core(parents, |_, _, &up| Some(up)).concat(asked.clone().enter(scope)).distinct()
    });
    let above = wanted.arrange_by_self().join_core(parents, |&child, _, &parent| Some((parent, child)));
    let above = above.arrange_by_key();
    let siblings = above
        .clone()
        .join_core(children.clone(), |_, &one, &two| (one != two).then_some((one, two)))
        .distinct();
    let found = siblings.clone().iterate(|scope, inner| {
        let (above, children) = (above.enter(scope), children.enter(scope));
        inner
            .arrange_by_key()
            .join_core(above, |_, &other, &child| Some((other, child)))
            .arrange_by_key()
            .join_core(children, |_, &one, &two| Some((one, two)))
            .concat(siblings.enter(scope))
            .distinct()
    });
    given.output(found.semijoin(asked));
}
