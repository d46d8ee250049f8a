//! One session of the peer: `peer SESSION`, then a command a line on standard input, an answer a line of JSON.
//!
//! The commands name columns in files that the benchmark wrote, so that both sides have the same data; see columns.rs.
mod arrange;
mod columns;
mod feed;
mod graph;
mod join;
mod programs;
mod questions;
mod reduce;
mod tpch;

pub use shared::{Command, checksum, commands, laps};

fn main() {
    let session = std::env::args().nth(1).unwrap_or_default();
    match session.as_str() {
        "keys" => arrange::keys(),
        "pairs" => arrange::pairs(),
        "texts" => arrange::texts(),
        "count" => reduce::count(),
        "count_total" => reduce::count_total(),
        "distinct" => reduce::distinct(),
        "distinct_total" => reduce::distinct_total(),
        "join" => join::join(),
        "install" => join::install(),
        "hop1" => graph::session(1),
        "hop2" => graph::session(2),
        "path4" => graph::session(4),
        "distances" => programs::session(programs::distances),
        "components" => programs::session(programs::components),
        "closure" => programs::session(programs::closure),
        "generation" => programs::session(programs::generation),
        "reach" => programs::session(programs::reach),
        "points_to" => programs::session(programs::points_to),
        "ontology" => programs::session(programs::ontology),
        "editor" => programs::session(programs::editor),
        "closure_from" => programs::session(questions::closure_from),
        "closure_to" => programs::session(questions::closure_to),
        "generation_of" => programs::session(questions::generation_of),
        "q1" => tpch::session(tpch::q1),
        "q3" => tpch::session(tpch::q3),
        "q5" => tpch::session(tpch::q5),
        "q6" => tpch::session(tpch::q6),
        "q9" => tpch::session(tpch::q9),
        "q18" => tpch::session(tpch::q18),
        "shared" => join::queries(10, true),
        "private" => join::queries(10, false),
        _ => {
            eprintln!("peer: no session {session:?}");
            std::process::exit(2);
        }
    }
}
