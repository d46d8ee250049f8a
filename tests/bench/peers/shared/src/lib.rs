//! What the peers' programs have in common: a command a line on standard input, an answer a line of JSON.
//!
//! The commands name columns in files that the benchmark wrote, so that all sides have the same data; see columns.rs.
pub mod checksum;
pub mod columns;
pub mod content;
pub mod laps;

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
