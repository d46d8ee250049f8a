//! Feeding updates in physical batches of so many epochs, and catching what leaves.
use std::cell::RefCell;
use std::iter::Peekable;
use std::rc::Rc;

use differential_dataflow::input::InputSession;
use timely::dataflow::ProbeHandle;
use timely::worker::Worker;

use crate::checksum::{Sum, Words};
use crate::columns::{Row, Update, updates};
use crate::laps::Laps;

/// Updates that a collection sent, kept as they came so that hashing them is no part of a lap.
pub type Caught<D> = Rc<RefCell<Vec<Update<D>>>>;

/// Add up what was caught; `timed`: epochs count.
pub fn caught<D: Words>(updates: &Caught<D>, timed: bool) -> Sum {
    let mut sum = Sum::default();
    catch(&mut sum, updates, timed);
    sum
}

/// Add what was caught to a sum.
pub fn catch<D: Words>(sum: &mut Sum, updates: &Caught<D>, timed: bool) {
    for (row, epoch, diff) in updates.take() {
        sum.add(row.words(), timed.then_some(epoch), diff);
    }
}

/// So many rows are handed over before the worker takes a step, in a batch that is larger.
const CHUNK: usize = 1 << 16;

/// An input, and the updates (ascending by epoch) that wait for it.
pub struct Door<D: Row> {
    pub input: InputSession<u64, D, isize>,
    waiting: Peekable<std::vec::IntoIter<Update<D>>>,
}

impl<D: Row> Door<D> {
    pub fn new(input: InputSession<u64, D, isize>) -> Self {
        Door { input, waiting: Vec::new().into_iter().peekable() }
    }
}

/// What `feed` does with an input, whatever its rows are.
pub trait Feed {
    fn time(&self) -> u64;
    /// Let the updates of a prefix wait; how many they are.
    fn read(&mut self, prefix: &str) -> usize;
    fn waits(&mut self) -> bool;
    /// Hand over a chunk of what is before `upper`; whether there may be more.
    fn give(&mut self, upper: u64) -> bool;
    /// Nothing more comes before `upper`.
    fn close(&mut self, upper: u64);
}

impl<D: Row> Feed for Door<D> {
    fn time(&self) -> u64 { *self.input.time() }

    fn read(&mut self, prefix: &str) -> usize {
        let rows = updates(prefix, self.time());
        let count = rows.len();
        self.waiting = rows.into_iter().peekable();
        count
    }

    fn waits(&mut self) -> bool { self.waiting.peek().is_some() }

    fn give(&mut self, upper: u64) -> bool {
        for _ in 0..CHUNK {
            let Some((row, epoch, diff)) = self.waiting.next_if(|update| update.1 < upper) else { return false };
            self.input.update_at(row, epoch, diff);
        }
        true
    }

    fn close(&mut self, upper: u64) {
        self.input.advance_to(upper);
        self.input.flush();
    }
}

/// Feed what waits at all `doors` in batches of `epochs` epochs, each flushed and run until `probe` is past it.
/// `passed` is told of each batch's upper frontier before the worker runs; `after` is called between laps.
pub fn feed(
    worker: &mut Worker, doors: &mut [&mut dyn Feed], epochs: u64, probe: &ProbeHandle<u64>,
    mut passed: impl FnMut(u64), mut after: impl FnMut(),
) -> Laps {
    let mut laps = Laps::default();
    while doors.iter_mut().any(|door| door.waits()) {
        let upper = doors[0].time() + epochs;
        laps.lap(|| {
            for door in doors.iter_mut() {
                while door.give(upper) {
                    worker.step();
                }
            }
            doors.iter_mut().for_each(|door| door.close(upper));
            passed(upper);
            worker.step_while(|| probe.less_than(&upper));
        });
        after();
    }
    laps
}
