//! One session of a peer that begins anew with each epoch: `batch LIBRARY PROGRAM`, then a command a line on standard input,
//! an answer a line of JSON.
//!
//! `run PREFIX EPOCHS` changes the relations, each of which has its columns at `PREFIX-RELATION`; a lap holds the program on
//! the relations as they are then, from rows in memory to the rows that it derives.
mod ascent_programs;
mod datafrog_programs;

use std::collections::HashSet;

use shared::columns::{Fact, changes};
use shared::content::Content;
use shared::laps::Laps;
use shared::{Command, commands};

/// A relation that is derived.
pub enum Derived {
    One(Vec<u32>),
    Two(Vec<(u32, u32)>),
    Three(Vec<(u32, u32, u32)>),
}

/// A relation that is given, and its changes that wait.
struct Relation<F> {
    name: &'static str,
    held: HashSet<F>,
    waiting: Vec<(F, u64, i64)>,
    at: usize,
}

impl<F: Fact> Relation<F> {
    fn read(&mut self, prefix: &str, now: u64) -> usize {
        self.waiting = changes(&format!("{prefix}-{}", self.name), now);
        self.at = 0;
        self.waiting.len()
    }

    fn waits(&self) -> bool {
        self.at < self.waiting.len()
    }

    fn take(&mut self, upper: u64) {
        while self.waits() && self.waiting[self.at].1 < upper {
            let (fact, _, diff) = self.waiting[self.at];
            let changed = if diff > 0 { self.held.insert(fact) } else { self.held.remove(&fact) };
            assert!(changed, "a change of {} that changes nothing", self.name);
            self.at += 1;
        }
    }
}

/// The relations of a program.
#[derive(Default)]
pub struct Given {
    ones: Vec<Relation<u32>>,
    twos: Vec<Relation<(u32, u32)>>,
    threes: Vec<Relation<(u32, u32, u32)>>,
}

macro_rules! relations {
    ($many:ident, $rows:ident, $fact:ty) => {
        /// The rows of a relation by its name.
        pub fn $rows(&self, name: &str) -> Vec<$fact> {
            let found = self.$many.iter().find(|relation| relation.name == name).expect("a relation of the program");
            found.held.iter().copied().collect()
        }
    };
}

impl Given {
    relations!(ones, one, u32);
    relations!(twos, two, (u32, u32));
    relations!(threes, three, (u32, u32, u32));

    fn of(relations: &[(&'static str, usize)]) -> Self {
        fn relation<F>(name: &'static str) -> Relation<F> {
            Relation { name, held: HashSet::new(), waiting: Vec::new(), at: 0 }
        }
        let mut given = Given::default();
        for &(name, columns) in relations {
            match columns {
                1 => given.ones.push(relation(name)),
                2 => given.twos.push(relation(name)),
                _ => given.threes.push(relation(name)),
            }
        }
        given
    }

    fn read(&mut self, prefix: &str, now: u64) -> usize {
        let ones: usize = self.ones.iter_mut().map(|relation| relation.read(prefix, now)).sum();
        let twos: usize = self.twos.iter_mut().map(|relation| relation.read(prefix, now)).sum();
        ones + twos + self.threes.iter_mut().map(|relation| relation.read(prefix, now)).sum::<usize>()
    }

    fn waits(&self) -> bool {
        self.ones.iter().any(Relation::waits)
            || self.twos.iter().any(Relation::waits)
            || self.threes.iter().any(Relation::waits)
    }

    fn take(&mut self, upper: u64) {
        self.ones.iter_mut().for_each(|relation| relation.take(upper));
        self.twos.iter_mut().for_each(|relation| relation.take(upper));
        self.threes.iter_mut().for_each(|relation| relation.take(upper));
    }
}

fn add(content: &mut Content, derived: &[Derived]) {
    for (number, rows) in derived.iter().enumerate() {
        let number = number as u64;
        match rows {
            Derived::One(rows) => rows.iter().for_each(|row| content.add(number, row, 1)),
            Derived::Two(rows) => rows.iter().for_each(|row| content.add(number, row, 1)),
            Derived::Three(rows) => rows.iter().for_each(|row| content.add(number, row, 1)),
        }
    }
}

fn session(relations: &[(&'static str, usize)], program: fn(&Given) -> Vec<Derived>) {
    let (mut given, mut now, mut content) = (Given::of(relations), 0, Content::default());
    // What was derived last is held until it is derived anew, as whoever serves it holds it.
    let mut derived = Vec::new();
    for Command { verb, prefix, number } in commands() {
        assert_eq!(verb, "run");
        let count = given.read(&prefix, now);
        let mut laps = Laps::default();
        while given.waits() {
            now += number;
            given.take(now);
            let made = laps.lap(|| program(&given));
            derived = made;
            content.clear();
            add(&mut content, &derived);
            content.close();
        }
        laps.answer(count, &content.answer());
    }
    drop(derived);
}

const EDGES: &[(&str, usize)] = &[("edge", 2)];
const REACH: &[(&str, usize)] = &[("root", 1), ("edge", 2)];
const POINTS_TO: &[(&str, usize)] = &[("new", 2), ("assign", 2), ("load", 3), ("store", 3)];
const ONTOLOGY: &[(&str, usize)] = &[("includes", 2), ("both", 3), ("filled", 3), ("means", 3), ("chain", 3)];
const EDITOR: &[(&str, usize)] = &[("typed", 2), ("removed", 1)];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["ascent", "closure"] => session(EDGES, ascent_programs::closure),
        ["ascent", "generation"] => session(EDGES, ascent_programs::generation),
        ["ascent", "reach"] => session(REACH, ascent_programs::reach),
        ["ascent", "points_to"] => session(POINTS_TO, ascent_programs::points_to),
        ["ascent", "ontology"] => session(ONTOLOGY, ascent_programs::ontology),
        ["ascent", "editor"] => session(EDITOR, ascent_programs::editor),
        ["datafrog", "closure"] => session(EDGES, datafrog_programs::closure),
        ["datafrog", "generation"] => session(EDGES, datafrog_programs::generation),
        ["datafrog", "reach"] => session(REACH, datafrog_programs::reach),
        ["datafrog", "points_to"] => session(POINTS_TO, datafrog_programs::points_to),
        ["datafrog", "ontology"] => session(ONTOLOGY, datafrog_programs::ontology),
        ["datafrog", "editor"] => session(EDITOR, datafrog_programs::editor),
        _ => {
            eprintln!("batch: no session {words:?}");
            std::process::exit(2);
        }
    }
}
