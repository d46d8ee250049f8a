//! The programs in datafrog: the rules of docs/datalog.md, each join by hand.
use datafrog::{Iteration, Relation};

use crate::{Derived, Given};

/// The rows whose key is not among some. The library's own, of two relations, gives none in 2.0.1.
fn without<K: Ord, V: Ord, T: Ord>(rows: &Relation<(K, V)>, keys: &Relation<K>, taken: impl Fn(&K, &V) -> T) -> Relation<T> {
    let kept = rows.iter().filter(|(key, _)| keys.binary_search(key).is_err());
    kept.map(|(key, value)| taken(key, value)).collect()
}

fn turned(rows: Vec<(u32, u32)>) -> Relation<(u32, u32)> {
    rows.into_iter().map(|(one, two)| (two, one)).collect()
}

pub fn closure(given: &Given) -> Vec<Derived> {
    let edges: Relation<(u32, u32)> = given.two("edge").into();
    let mut iteration = Iteration::new();
    let path = iteration.variable::<(u32, u32)>("to, from");
    path.extend(edges.iter().map(|&(from, to)| (to, from)));
    while iteration.changed() {
        path.from_join(&path, &edges, |_, &from, &to| (to, from));
    }
    vec![Derived::Two(path.complete().iter().map(|&(to, from)| (from, to)).collect())]
}

pub fn generation(given: &Given) -> Vec<Derived> {
    let edges: Relation<(u32, u32)> = given.two("edge").into();
    let pairs = Relation::from_join(&edges, &edges, |_, &one, &two| (one, two));
    let mut iteration = Iteration::new();
    let same = iteration.variable::<(u32, u32)>("same");
    let half = iteration.variable::<(u32, u32)>("other, child of one");
    same.extend(pairs.iter().copied().filter(|(one, two)| one != two));
    while iteration.changed() {
        half.from_join(&same, &edges, |_, &other, &child| (other, child));
        same.from_join(&half, &edges, |_, &one, &two| (one, two));
    }
    vec![Derived::Two(same.complete().elements)]
}

pub fn reach(given: &Given) -> Vec<Derived> {
    let edges: Relation<(u32, u32)> = given.two("edge").into();
    let mut iteration = Iteration::new();
    let reached = iteration.variable::<(u32, ())>("reached");
    reached.extend(given.one("root").into_iter().map(|node| (node, ())));
    while iteration.changed() {
        reached.from_join(&reached, &edges, |_, (), &to| (to, ()));
    }
    vec![Derived::One(reached.complete().iter().map(|&(node, ())| node).collect())]
}

pub fn points_to(given: &Given) -> Vec<Derived> {
    let by_source = turned(given.two("assign"));
    let loads: Relation<_> = given.three("load").into_iter().map(|(target, base, field)| (base, (target, field))).collect();
    let stores: Relation<_> = given.three("store").into_iter().map(|(base, field, from)| (base, (field, from))).collect();
    let mut iteration = Iteration::new();
    let points = iteration.variable::<(u32, u32)>("points");
    let holds = iteration.variable::<((u32, u32), u32)>("holds");
    let loaded = iteration.variable::<((u32, u32), u32)>("object and field, target");
    let stored = iteration.variable::<(u32, (u32, u32))>("source, object and field");
    points.extend(given.two("new"));
    while iteration.changed() {
        points.from_join(&points, &by_source, |_, &object, &target| (target, object));
        loaded.from_join(&points, &loads, |_, &object, &(target, field)| ((object, field), target));
        points.from_join(&loaded, &holds, |_, &target, &held| (target, held));
        stored.from_join(&points, &stores, |_, &object, &(field, source)| (source, (object, field)));
        holds.from_join(&stored, &points, |_, &place, &held| (place, held));
    }
    let holds = holds.complete().iter().map(|&((object, field), held)| (object, field, held)).collect();
    vec![Derived::Two(points.complete().elements), Derived::Three(holds)]
}

pub fn ontology(given: &Given) -> Vec<Derived> {
    let includes: Relation<(u32, u32)> = given.two("includes").into();
    let both: Relation<_> = given.three("both").into_iter().map(|(a, b, c)| (a, (b, c))).collect();
    let filled: Relation<_> = given.three("filled").into_iter().map(|(a, r, b)| (a, (r, b))).collect();
    let means: Relation<_> = given.three("means").into_iter().map(|(r, a, b)| ((r, a), b)).collect();
    let chain: Relation<_> = given.three("chain").into_iter().map(|(r, s, t)| ((r, s), t)).collect();
    let mut iteration = Iteration::new();
    let is = iteration.variable::<(u32, u32)>("class, x");
    let by_x = iteration.variable::<(u32, u32)>("x, class");
    let itself = iteration.variable::<((u32, u32), ())>("x and class");
    let one_of_both = iteration.variable::<((u32, u32), u32)>("x and the other, whole");
    let role = iteration.variable::<(u32, (u32, u32))>("y, x and role");
    let by_first = iteration.variable::<(u32, (u32, u32))>("x, role and y");
    let filler = iteration.variable::<((u32, u32), u32)>("role and class, x");
    let links = iteration.variable::<((u32, u32), (u32, u32))>("roles, x and z");
    is.extend(includes.iter().flat_map(|&(a, b)| [(a, a), (b, b)]));
    while iteration.changed() {
        by_x.from_map(&is, |&(class, x)| (x, class));
        itself.from_map(&is, |&(class, x)| ((x, class), ()));
        by_first.from_map(&role, |&(y, (x, r))| (x, (r, y)));
        is.from_join(&is, &includes, |_, &x, &class| (class, x));
        one_of_both.from_join(&is, &both, |_, &x, &(other, whole)| ((x, other), whole));
        is.from_join(&one_of_both, &itself, |&(x, _), &whole, ()| (whole, x));
        role.from_join(&is, &filled, |_, &x, &(r, y)| (y, (x, r)));
        filler.from_join(&role, &by_x, |_, &(x, r), &class| ((r, class), x));
        is.from_join(&filler, &means, |_, &x, &class| (class, x));
        links.from_join(&role, &by_first, |_, &(x, r), &(s, z)| ((r, s), (x, z)));
        role.from_join(&links, &chain, |_, &(x, z), &t| (z, (x, t)));
    }
    let roles = role.complete().iter().map(|&(y, (x, r))| (x, r, y)).collect();
    vec![Derived::Two(by_x.complete().elements), Derived::Three(roles)]
}

pub fn editor(given: &Given) -> Vec<Derived> {
    let typed: Relation<(u32, u32)> = given.two("typed").into();
    let removed: Relation<u32> = given.one("removed").into();
    let by_place = turned(given.two("typed"));
    let parents: Relation<u32> = typed.iter().map(|&(_, parent)| parent).collect();
    let pairs = Relation::from_join(&by_place, &by_place, |&place, &one, &other| (one, other, place));
    let not_first: Relation<(u32, u32)> =
        pairs.iter().filter(|(one, other, _)| other > one).map(|&(one, _, place)| (place, one)).collect();
    let places: Relation<((u32, u32), ())> = by_place.iter().map(|&pair| (pair, ())).collect();
    let first = without(&places, &not_first, |&pair, ()| pair);
    let later: Relation<(u32, u32)> =
        pairs.iter().filter(|(one, other, _)| one > other).map(|&(one, other, _)| (one, other)).collect();
    let earlier: Relation<(u32, u32)> = later.iter().map(|&(one, other)| (other, one)).collect();
    let between = Relation::from_join(&earlier, &later, |_, &one, &third| (one, third));
    let ordered: Relation<((u32, u32), ())> = later.iter().map(|&pair| (pair, ())).collect();
    let sibling = without(&ordered, &between, |&pair, ()| pair);
    let has_sibling: Relation<u32> = sibling.iter().map(|&(one, _)| one).collect();
    let last = without(&typed, &has_sibling, |&child, &parent| (parent, child));
    let mut iteration = Iteration::new();
    let up = iteration.variable::<(u32, u32)>("up");
    up.insert(sibling);
    while iteration.changed() {
        up.from_join(&up, &last, |_, &next, &child| (child, next));
    }
    let ends = without(&up.complete(), &parents, |&one, &other| (one, other));
    let next = first.merge(ends);
    let gone: Relation<(u32, ())> = removed.iter().map(|&one| (one, ())).collect();
    let beyond = Relation::from_join(&next, &gone, |&one, &other, ()| (one, other));
    let mut iteration = Iteration::new();
    let skip = iteration.variable::<(u32, u32)>("other, one");
    skip.extend(next.iter().map(|&(one, other)| (other, one)));
    while iteration.changed() {
        skip.from_join(&skip, &beyond, |_, &one, &third| (third, one));
    }
    let visible = without(&skip.complete(), &removed, |&other, &one| (one, other));
    vec![Derived::Two(without(&visible, &removed, |&one, &other| (one, other)).elements)]
}
