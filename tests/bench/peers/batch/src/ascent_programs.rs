//! The programs in ascent: the rules of docs/datalog.md as it spells them.
use ascent::ascent;

use crate::{Derived, Given};

ascent! {
    struct Closure;
    relation edge(u32, u32);
    relation path(u32, u32);
    path(x, y) <-- edge(x, y);
    path(x, z) <-- path(x, y), edge(y, z);
}

pub fn closure(given: &Given) -> Vec<Derived> {
    let mut program = Closure { edge: given.two("edge"), ..Default::default() };
    program.run();
    vec![Derived::Two(program.path)]
}

ascent! {
    struct Generation;
    relation edge(u32, u32);
    relation same(u32, u32);
    same(x, y) <-- edge(p, x), edge(p, y), if x != y;
    same(x, y) <-- same(p, q), edge(p, x), edge(q, y);
}

pub fn generation(given: &Given) -> Vec<Derived> {
    let mut program = Generation { edge: given.two("edge"), ..Default::default() };
    program.run();
    vec![Derived::Two(program.same)]
}

ascent! {
    struct Reach;
    relation root(u32);
    relation edge(u32, u32);
    relation reach(u32);
    reach(x) <-- root(x);
    reach(y) <-- reach(x), edge(x, y);
}

pub fn reach(given: &Given) -> Vec<Derived> {
    let root = given.one("root").into_iter().map(|node| (node,)).collect();
    let mut program = Reach { root, edge: given.two("edge"), ..Default::default() };
    program.run();
    vec![Derived::One(program.reach.into_iter().map(|(node,)| node).collect())]
}

ascent! {
    struct PointsTo;
    relation allocated(u32, u32);
    relation assign(u32, u32);
    relation load(u32, u32, u32);
    relation store(u32, u32, u32);
    relation points(u32, u32);
    relation holds(u32, u32, u32);
    points(v, o) <-- allocated(v, o);
    points(v, o) <-- points(w, o), assign(v, w);
    points(v, o) <-- load(v, b, f), points(b, p), holds(p, f, o);
    holds(p, f, o) <-- store(b, f, w), points(b, p), points(w, o);
}

pub fn points_to(given: &Given) -> Vec<Derived> {
    let mut program = PointsTo {
        allocated: given.two("new"),
        assign: given.two("assign"),
        load: given.three("load"),
        store: given.three("store"),
        ..Default::default()
    };
    program.run();
    vec![Derived::Two(program.points), Derived::Three(program.holds)]
}

ascent! {
    struct Ontology;
    relation includes(u32, u32);
    relation both(u32, u32, u32);
    relation filled(u32, u32, u32);
    relation means(u32, u32, u32);
    relation chain(u32, u32, u32);
    relation is(u32, u32);
    relation role(u32, u32, u32);
    is(x, x), is(y, y) <-- includes(x, y);
    is(x, z) <-- is(x, y), includes(y, z);
    is(x, c) <-- is(x, a), both(a, b, c), is(x, b);
    role(x, r, y) <-- is(x, a), filled(a, r, y);
    is(x, c) <-- role(x, r, y), is(y, a), means(r, a, c);
    role(x, t, z) <-- role(x, r, y), role(y, s, z), chain(r, s, t);
}

pub fn ontology(given: &Given) -> Vec<Derived> {
    let mut program = Ontology {
        includes: given.two("includes"),
        both: given.three("both"),
        filled: given.three("filled"),
        means: given.three("means"),
        chain: given.three("chain"),
        ..Default::default()
    };
    program.run();
    vec![Derived::Two(program.is), Derived::Three(program.role)]
}

ascent! {
    struct Editor;
    relation typed(u32, u32);
    relation removed(u32);
    relation has_child(u32);
    relation not_first(u32, u32);
    relation first(u32, u32);
    relation later(u32, u32);
    relation between(u32, u32);
    relation sibling(u32, u32);
    relation has_sibling(u32);
    relation up(u32, u32);
    relation next(u32, u32);
    relation skip(u32, u32);
    relation text(u32, u32);
    has_child(p) <-- typed(_, p);
    not_first(p, c) <-- typed(c, p), typed(o, p), if o > c;
    first(p, c) <-- typed(c, p), !not_first(p, c);
    later(a, b) <-- typed(a, p), typed(b, p), if a > b;
    between(a, c) <-- later(a, b), later(b, c);
    sibling(a, b) <-- later(a, b), !between(a, b);
    has_sibling(a) <-- sibling(a, _);
    up(a, b) <-- sibling(a, b);
    up(a, b) <-- up(p, b), typed(a, p), !has_sibling(a);
    next(a, b) <-- first(a, b);
    next(a, b) <-- up(a, b), !has_child(a);
    skip(a, b) <-- next(a, b);
    skip(a, c) <-- skip(a, b), removed(b), next(b, c);
    text(a, b) <-- skip(a, b), !removed(a), !removed(b);
}

pub fn editor(given: &Given) -> Vec<Derived> {
    let removed = given.one("removed").into_iter().map(|character| (character,)).collect();
    let mut program = Editor { typed: given.two("typed"), removed, ..Default::default() };
    program.run();
    vec![Derived::Two(program.text)]
}
