//! Recursive programs over relations, join for join as the rules of docs/datalog.md say: `run PREFIX EPOCHS` changes the
//! relations, each of which has its columns at `PREFIX-RELATION`.
use differential_dataflow::VecCollection;
use differential_dataflow::algorithms::graphs::scc::strongly_connected;
use differential_dataflow::input::Input;
use differential_dataflow::operators::Iterate;
use differential_dataflow::operators::iterate::VecVariable;
use shared::content::Content;
use timely::dataflow::{ProbeHandle, Scope};
use timely::order::Product;

use crate::checksum::Words;
use crate::columns::Row;
use crate::feed::{Caught, Door, Feed, feed};
use crate::{Command, commands};

pub type Rows<'scope, D> = VecCollection<'scope, u64, D, isize>;
pub type Pair = (u32, u32);
pub type Triple = (u32, u32, u32);

/// What a program is given: its relations, and where what it derives goes.
pub struct Given<'scope> {
    pub scope: Scope<'scope, u64>,
    probe: ProbeHandle<u64>,
    doors: Vec<(&'static str, Box<dyn Feed>)>,
    drains: Vec<Box<dyn FnMut(&mut Content)>>,
}

impl<'scope> Given<'scope> {
    /// A relation by its name.
    pub fn input<D: Row>(&mut self, name: &'static str) -> Rows<'scope, D> {
        let (input, rows) = self.scope.new_collection::<D, isize>();
        self.doors.push((name, Box::new(Door::new(input))));
        rows
    }

    /// A relation that is derived.
    pub fn output<D: Words + differential_dataflow::Data>(&mut self, rows: Rows<'scope, D>) {
        let number = self.drains.len() as u64;
        let into = Caught::<D>::default();
        let from = into.clone();
        rows.inspect_batch(move |_, sent| into.borrow_mut().extend_from_slice(sent)).probe_with(&self.probe);
        self.drains.push(Box::new(move |content| {
            for (row, _, diff) in from.take() {
                content.add(number, &row, diff as i64);
            }
        }));
    }
}

/// Serve a program.
pub fn session(program: impl for<'scope> Fn(&mut Given<'scope>) + Send + Sync + 'static) {
    timely::execute_directly(move |worker| {
        let probe = ProbeHandle::new();
        let (mut doors, mut drains) = worker.dataflow::<u64, _, _>(|scope| {
            let mut given = Given { scope, probe: probe.clone(), doors: Vec::new(), drains: Vec::new() };
            program(&mut given);
            (given.doors, given.drains)
        });
        let mut content = Content::default();
        for Command { verb, prefix, number } in commands() {
            assert_eq!(verb, "run");
            let count = doors.iter_mut().map(|(name, door)| door.read(&format!("{prefix}-{name}"))).sum();
            let mut all: Vec<&mut dyn Feed> = doors.iter_mut().map(|(_, door)| &mut **door as &mut dyn Feed).collect();
            let laps = feed(worker, &mut all, number, &probe, |_| (), || {
                drains.iter_mut().for_each(|drain| drain(&mut content));
                content.close();
            });
            laps.answer(count, &content.answer());
        }
    });
}

/// Each node that node 0 reaches, with the least number of edges that lead there.
pub fn distances(given: &mut Given<'_>) {
    let edges = given.input::<Pair>("edge");
    let (input, roots) = given.scope.new_collection_from(Some((0, 0)));
    drop(input);
    let found = roots.clone().iterate(|scope, inner| {
        inner
            .join_map(edges.enter(scope), |_, distance, to| (*to, distance + 1))
            .concat(roots.enter(scope))
            .reduce(|_, distances, least| least.push((*distances[0].0, 1)))
    });
    given.output::<Pair>(found);
}

/// Pairs of nodes of which the first reaches the second.
pub fn closure(given: &mut Given<'_>) {
    let edges = given.input::<Pair>("edge");
    let found = edges.clone().iterate(|scope, inner| {
        let edges = edges.enter(scope);
        let arranged = edges.clone().arrange_by_key();
        inner
            .map(|(from, middle)| (middle, from))
            .arrange_by_key()
            .join_core(arranged, |_, &from, &to| Some((from, to)))
            .concat(edges)
            .distinct()
    });
    given.output(found);
}

/// Different nodes that are as far below a common ancestor; edges lead from parents to children.
pub fn generation(given: &mut Given<'_>) {
    let children = given.input::<Pair>("edge").arrange_by_key();
    let siblings =
        children.clone().join_core(children.clone(), |_, &one, &two| (one != two).then_some((one, two))).distinct();
    let found = siblings.clone().iterate(|scope, inner| {
        let children = children.enter(scope);
        inner
            .arrange_by_key()
            .join_core(children.clone(), |_, &other, &child| Some((other, child)))
            .arrange_by_key()
            .join_core(children, |_, &one, &two| Some((one, two)))
            .concat(siblings.enter(scope))
            .distinct()
    });
    given.output(found);
}

/// The nodes that some nodes reach.
pub fn reach(given: &mut Given<'_>) {
    let (roots, edges) = (given.input::<u32>("root"), given.input::<Pair>("edge"));
    let found = roots.clone().iterate(|scope, inner| {
        let edges = edges.enter(scope).arrange_by_key();
        inner.arrange_by_self().join_core(edges, |_, _, &to| Some(to)).concat(roots.enter(scope)).distinct()
    });
    given.output(found);
}

/// The edges within strongly connected components.
pub fn components(given: &mut Given<'_>) {
    let edges = given.input::<Pair>("edge");
    given.output(strongly_connected(edges));
}

/// What variables point to, and what fields of objects hold.
pub fn points_to(given: &mut Given<'_>) {
    let new = given.input::<Pair>("new");
    let assign = given.input::<Pair>("assign");
    let load = given.input::<Triple>("load");
    let store = given.input::<Triple>("store");
    let outer = given.scope;
    let (points, holds) = outer.scoped::<Product<u64, u64>, _, _>("points to", |scope| {
        let next = Product::new(Default::default(), 1);
        let (points_rule, points) = VecVariable::<_, Pair, isize>::new(scope, next.clone());
        let (holds_rule, holds) = VecVariable::<_, Triple, isize>::new(scope, next);
        let by_source = assign.map(|(target, source)| (source, target)).enter(scope).arrange_by_key();
        let loads = load.map(|(target, base, field)| (base, (target, field))).enter(scope).arrange_by_key();
        let stores = store.map(|(base, field, source)| (base, (field, source))).enter(scope).arrange_by_key();
        let points = points.arrange_by_key();
        let holds = holds.map(|(object, field, held)| ((object, field), held)).arrange_by_key();
        let assigned = points.clone().join_core(by_source, |_, &object, &target| Some((target, object)));
        let loaded = points
            .clone()
            .join_core(loads, |_, &object, &(target, field)| Some(((object, field), target)))
            .arrange_by_key()
            .join_core(holds, |_, &target, &held| Some((target, held)));
        let stored = points
            .clone()
            .join_core(stores, |_, &object, &(field, source)| Some((source, (object, field))))
            .arrange_by_key()
            .join_core(points, |_, &(object, field), &held| Some((object, field, held)))
            .distinct();
        let found = new.enter(scope).concat(assigned).concat(loaded).distinct();
        points_rule.set(found.clone());
        holds_rule.set(stored.clone());
        (found.leave(outer), stored.leave(outer))
    });
    given.output(points);
    given.output(holds);
}

/// The classes that follow from an ontology's axioms.
pub fn ontology(given: &mut Given<'_>) {
    let includes = given.input::<Pair>("includes");
    let both = given.input::<Triple>("both");
    let filled = given.input::<Triple>("filled");
    let means = given.input::<Triple>("means");
    let chain = given.input::<Triple>("chain");
    let outer = given.scope;
    let (is, role) = outer.scoped::<Product<u64, u64>, _, _>("ontology", |scope| {
        let next = Product::new(Default::default(), 1);
        let (is_rule, is) = VecVariable::<_, Pair, isize>::new(scope, next.clone());
        let (role_rule, role) = VecVariable::<_, Triple, isize>::new(scope, next);
        let itself = includes.clone().flat_map(|(a, b)| [(a, a), (b, b)]).enter(scope);
        let includes = includes.enter(scope).arrange_by_key();
        let both = both.map(|(a, b, c)| (a, (b, c))).enter(scope).arrange_by_key();
        let filled = filled.map(|(a, r, b)| (a, (r, b))).enter(scope).arrange_by_key();
        let means = means.map(|(r, a, b)| ((r, a), b)).enter(scope).arrange_by_key();
        let chain = chain.map(|(r, s, t)| ((r, s), t)).enter(scope).arrange_by_key();
        let by_class = is.clone().map(|(x, class)| (class, x)).arrange_by_key();
        let by_itself = is.clone().arrange_by_self();
        let is = is.arrange_by_key();
        let by_first = role.clone().map(|(x, r, y)| (x, (r, y))).arrange_by_key();
        let by_second = role.map(|(x, r, y)| (y, (x, r))).arrange_by_key();
        let included = by_class.clone().join_core(includes, |_, &x, &class| Some((x, class)));
        let of_both = by_class
            .clone()
            .join_core(both, |_, &x, &(b, c)| Some(((x, b), c)))
            .arrange_by_key()
            .join_core(by_itself, |&(x, _), &c, _| Some((x, c)));
        let meant = by_second
            .clone()
            .join_core(is, |_, &(x, r), &a| Some(((r, a), x)))
            .arrange_by_key()
            .join_core(means, |_, &x, &c| Some((x, c)));
        let chained = by_second
            .join_core(by_first, |_, &(x, r), &(s, z)| Some(((r, s), (x, z))))
            .arrange_by_key()
            .join_core(chain, |_, &(x, z), &t| Some((x, t, z)));
        let role = by_class.join_core(filled, |_, &x, &(r, y)| Some((x, r, y))).concat(chained).distinct();
        let is = itself.concat(included).concat(of_both).concat(meant).distinct();
        is_rule.set(is.clone());
        role_rule.set(role.clone());
        (is.leave(outer), role.leave(outer))
    });
    given.output(is);
    given.output(role);
}

/// Which visible character of a shared text follows which.
pub fn editor(given: &mut Given<'_>) {
    let typed = given.input::<Pair>("typed");
    let removed = given.input::<u32>("removed");
    let places = typed.clone().map(|(character, after)| (after, character));
    let by_place = places.clone().arrange_by_key();
    let parents = typed.clone().map(|(_, after)| after).distinct();
    let not_first = by_place
        .clone()
        .join_core(by_place.clone(), |&place, &one, &other| (other > one).then_some((place, one)))
        .distinct();
    let first = places.concat(not_first.negate());
    let later = by_place.clone().join_core(by_place, |_, &one, &other| (one > other).then_some((one, other))).distinct();
    let earlier = later.clone().map(|(one, other)| (other, one)).arrange_by_key();
    let between =
        earlier.join_core(later.clone().arrange_by_key(), |_, &one, &third| Some((one, third))).distinct();
    let sibling = later.concat(between.negate());
    let last = typed.antijoin(sibling.clone().map(|(one, _)| one).distinct()).map(|(child, parent)| (parent, child));
    let up = sibling.clone().iterate(|scope, inner| {
        let last = last.enter(scope).arrange_by_key();
        inner
            .arrange_by_key()
            .join_core(last, |_, &next, &child| Some((child, next)))
            .concat(sibling.enter(scope))
            .distinct()
    });
    let next = first.concat(up.antijoin(parents)).distinct();
    let beyond = next.clone().semijoin(removed.clone());
    let skip = next.clone().iterate(|scope, inner| {
        let beyond = beyond.enter(scope).arrange_by_key();
        inner
            .map(|(one, other)| (other, one))
            .arrange_by_key()
            .join_core(beyond, |_, &one, &third| Some((one, third)))
            .concat(next.enter(scope))
            .distinct()
    });
    let text = skip.antijoin(removed.clone()).map(|(one, other)| (other, one)).antijoin(removed);
    given.output(text.map(|(other, one)| (one, other)));
}
