//! Compiles the programs in `programs` to Rust.
use std::path::Path;

const PROGRAMS: [&str; 6] = [
    "programs/closure.dl",
    "programs/editor.dl",
    "programs/generation.dl",
    "programs/ontology.dl",
    "programs/points_to.dl",
    "programs/reach.dl",
];

fn main() {
    for program in PROGRAMS {
        if let Err(error) = flowlog_build::Builder::default().compile(&[program], &[] as &[&Path]) {
            eprintln!("{program}: {error}");
            std::process::exit(1);
        }
    }
}
