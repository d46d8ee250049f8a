//! One session of dbsp, Feldera's engine: `dbsp-peer SESSION`, then a command a line on standard input, an answer a line
//! of JSON, as the other peers have it.
//!
//! A step of dbsp is one transaction and its outputs are those of its end, so each epoch is a transaction of its own. One
//! worker, with the merger thread and the allocator that its makers' own benchmarks have.
mod door;
mod feed;
mod join;
mod outlet;
mod reduce;
mod tables;
mod tpch;

#[global_allocator]
static ALLOCATOR: dbsp::mimalloc::MiMalloc = dbsp::mimalloc::MiMalloc;

fn main() {
    let session = std::env::args().nth(1).unwrap_or_default();
    let (name, keeps) = session.strip_suffix("-loose").map_or((session.as_str(), true), |name| (name, false));
    match name {
        "count" => reduce::count(),
        "distinct" => reduce::distinct(),
        "join" => join::join(),
        "q1" => tpch::session(tpch::q1, keeps),
        "q3" => tpch::session(tpch::q3, keeps),
        "q5" => tpch::session(tpch::q5, keeps),
        "q6" => tpch::session(tpch::q6, keeps),
        "q9" => tpch::session(tpch::q9, keeps),
        "q18" => tpch::session(tpch::q18, keeps),
        _ => {
            eprintln!("dbsp-peer: no session {session:?}");
            std::process::exit(2);
        }
    }
}
