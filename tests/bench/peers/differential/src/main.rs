//! One session of the peer: `peer SESSION`, then a command a line on standard input, an answer a line of JSON.
//!
//! The commands name columns in files that the benchmark wrote, so that both sides have the same data; see columns.rs.
mod arrange;
mod checksum;
mod columns;
mod feed;
mod graph;
mod join;
mod laps;
mod recursion;
mod reduce;
mod tpch;

/// `verb prefix number`; the last two may be absent.
pub struct Command {
    pub verb: String,
    pub prefix: String,
    pub number: u64,
}

pub fn commands() -> impl Iterator<Item = Command> {
    println!("{{\"bytes\":{}}}", laps::resident());
    std::io::stdin().lines().map(|line| {
        let line = line.expect("a line");
        let mut words = line.split(' ');
        let verb = words.next().unwrap().to_string();
        let prefix = words.next().unwrap_or_default().to_string();
        let number = words.next().map_or(1, |number| number.parse().expect("a number"));
        Command { verb, prefix, number }
    })
}

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
        "distances" => recursion::session(recursion::distances),
        "closure" => recursion::session(recursion::closure),
        "generation" => recursion::session(recursion::generation),
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
