//! Feeding changes in physical batches of so many epochs, a transaction each, and the processor time of merges beside them.
use std::thread::sleep;
use std::time::{Duration, Instant};

use dbsp::DBSPHandle;
use shared::checksum::Sum;
use shared::laps::{Laps, others};
use shared::{Command, commands};

use crate::door::Feed;
use crate::outlet::Outlet;

/// An input and its name.
pub type Named = (&'static str, Box<dyn Feed + Send>);

/// A circuit, its inputs and its output.
pub struct Served {
    pub circuit: DBSPHandle,
    pub doors: Vec<Named>,
    pub outlet: Outlet,
}

/// Serve commands until standard input ends. `place`: which prefix an input of some name is fed from, by verb and prefix.
pub fn serve(mut served: Served, place: impl Fn(&str, &str, &str) -> Option<String>) {
    let mut now = 0;
    for Command { verb, prefix, number } in commands() {
        let mut count = 0;
        let mut known = false;
        for (name, door) in served.doors.iter_mut() {
            if let Some(from) = place(&verb, &prefix, name) {
                count += door.read(&from, now);
                known = true;
            }
        }
        assert!(known, "unknown command {verb}");
        let mut sum = Sum::default();
        feed(&mut served, number, &mut now, &mut sum).answer(count, &sum);
    }
    served.circuit.kill().expect("a circuit that ends");
}

/// Feed what waits in batches of `epochs` epochs; an epoch in which nothing comes is no transaction.
fn feed(served: &mut Served, epochs: u64, now: &mut u64, sum: &mut Sum) -> Laps {
    let Served { circuit, doors, outlet } = served;
    let mut laps = Laps::default();
    let begun = others();
    let mut counted = 0.0;
    while next(doors).is_some() {
        let upper = *now + epochs;
        let mut sent = Vec::new();
        let before = others();
        laps.lap(|| {
            while let Some(epoch) = next(doors).filter(|epoch| *epoch < upper) {
                doors.iter_mut().for_each(|(_, door)| door.give(epoch));
                circuit.transaction().expect("a transaction");
                sent.push((epoch, outlet()));
            }
        });
        counted += others() - before;
        for (epoch, later) in sent {
            later.into_iter().for_each(|add| add(sum, epoch));
        }
        *now = upper;
    }
    laps.add(settled() - begun - counted);
    laps
}

/// The first epoch that waits at any door.
fn next(doors: &mut [Named]) -> Option<u64> {
    doors.iter_mut().filter_map(|(_, door)| door.next()).min()
}

/// Processor seconds of the other threads once they are idle: merges that the last batches left to them are work of these.
fn settled() -> f64 {
    let (begin, mut found, mut idle) = (Instant::now(), others(), 0);
    while idle < 3 && begin.elapsed() < Duration::from_secs(120) {
        sleep(Duration::from_millis(15));
        let after = others();
        idle = if after - found < 5e-4 { idle + 1 } else { 0 };
        found = after;
    }
    found
}
