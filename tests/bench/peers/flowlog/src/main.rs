//! One session of FlowLog: `flowlog PROGRAM`, then a command a line on standard input, an answer a line of JSON.
//!
//! `run PREFIX EPOCHS` changes the relations, each of which has its columns at `PREFIX-RELATION`; each epoch is a commit.
use shared::columns::{Fact, changes};
use shared::content::Content;
use shared::laps::Laps;
use shared::{Command, commands};

/// Changes of a relation that wait for their epoch.
struct Waiting<F> {
    changes: Vec<(F, u64, i64)>,
    at: usize,
}

impl<F: Fact> Waiting<F> {
    fn read(prefix: &str, relation: &str, now: u64) -> Self {
        Waiting { changes: changes(&format!("{prefix}-{relation}"), now), at: 0 }
    }

    fn waits(&self) -> bool {
        self.at < self.changes.len()
    }

    /// What comes and what goes before an epoch.
    fn take(&mut self, upper: u64) -> (Vec<F>, Vec<F>) {
        let (mut come, mut gone) = (Vec::new(), Vec::new());
        while self.waits() && self.changes[self.at].1 < upper {
            let (fact, _, diff) = self.changes[self.at];
            if diff > 0 { come.push(fact) } else { gone.push(fact) }
            self.at += 1;
        }
        (come, gone)
    }
}

macro_rules! program {
    ($name:ident, [$($relation:ident: $fact:ty, $insert:ident, $remove:ident;)*], [$($output:ident),*]) => {
        #[allow(warnings)]
        mod $name {
            include!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".rs"));
        }

        #[allow(unused_assignments)]
        fn $name() {
            let mut engine = $name::IncrementalEngine::new(1);
            let (mut now, mut content) = (0, Content::default());
            for Command { verb, prefix, number } in commands() {
                assert_eq!(verb, "run");
                $(let mut $relation = Waiting::<$fact>::read(&prefix, stringify!($relation), now);)*
                let count = 0 $(+ $relation.changes.len())*;
                let mut laps = Laps::default();
                while false $(|| $relation.waits())* {
                    now += number;
                    let results = laps.lap(|| {
                        $(
                            let (come, gone) = $relation.take(now);
                            engine.$insert(come);
                            engine.$remove(gone);
                        )*
                        engine.commit()
                    });
                    let mut relation = 0;
                    $(
                        results.$output.iter().for_each(|(row, diff)| content.add(relation, row, *diff as i64));
                        relation += 1;
                    )*
                    content.close();
                }
                laps.answer(count, &content.answer());
            }
        }
    };
}

type One = (u32,);
type Two = (u32, u32);
type Three = (u32, u32, u32);

program!(closure, [edge: Two, insert_edge, remove_edge;], [path]);
program!(generation, [edge: Two, insert_edge, remove_edge;], [same]);
program!(reach, [root: One, insert_root, remove_root; edge: Two, insert_edge, remove_edge;], [reached]);
program!(
    points_to,
    [
        new: Two, insert_new, remove_new;
        assign: Two, insert_assign, remove_assign;
        load: Three, insert_load, remove_load;
        store: Three, insert_store, remove_store;
    ],
    [points, holds]
);
program!(
    ontology,
    [
        includes: Two, insert_includes, remove_includes;
        both: Three, insert_both, remove_both;
        filled: Three, insert_filled, remove_filled;
        means: Three, insert_means, remove_means;
        chain: Three, insert_chain, remove_chain;
    ],
    [is, role]
);
program!(editor, [typed: Two, insert_typed, remove_typed; removed: One, insert_removed, remove_removed;], [text]);

fn main() {
    let session = std::env::args().nth(1).unwrap_or_default();
    match session.as_str() {
        "closure" => closure(),
        "generation" => generation(),
        "reach" => reach(),
        "points_to" => points_to(),
        "ontology" => ontology(),
        "editor" => editor(),
        _ => {
            eprintln!("flowlog: no session {session:?}");
            std::process::exit(2);
        }
    }
}
