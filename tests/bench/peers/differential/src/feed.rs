//! Feeding updates in physical batches of so many epochs, and catching what leaves.
use std::cell::RefCell;
use std::rc::Rc;

use differential_dataflow::input::InputSession;
use timely::dataflow::ProbeHandle;
use timely::worker::Worker;

use crate::checksum::{Sum, Words};
use crate::columns::{Row, Update};
use crate::laps::Laps;

/// Updates that a collection sent, kept as they came so that hashing them is no part of a lap.
pub type Caught<D> = Rc<RefCell<Vec<Update<D>>>>;

/// Add up what was caught; `timed`: epochs count.
pub fn caught<D: Words>(updates: &Caught<D>, timed: bool) -> Sum {
    let mut sum = Sum::default();
    for (row, epoch, diff) in updates.take() {
        sum.add(row.words(), timed.then_some(epoch), diff);
    }
    sum
}

/// So many rows are handed over before the worker takes a step, in a batch that is larger.
const CHUNK: usize = 1 << 16;

/// Feed `updates` (ascending by epoch) in batches of `epochs` epochs, each flushed and run until `probe` is past it.
/// `passed` is told of each batch's upper frontier before the worker runs.
pub fn feed<D: Row>(
    worker: &mut Worker, input: &mut InputSession<u64, D, isize>, updates: Vec<Update<D>>, epochs: u64,
    probe: &ProbeHandle<u64>, mut passed: impl FnMut(u64),
) -> Laps {
    let mut laps = Laps::default();
    let mut waiting = updates.into_iter().peekable();
    while waiting.peek().is_some() {
        let upper = input.time() + epochs;
        laps.lap(|| {
            let mut given = 0;
            while let Some((row, epoch, diff)) = waiting.next_if(|update| update.1 < upper) {
                input.update_at(row, epoch, diff);
                given += 1;
                if given % CHUNK == 0 {
                    worker.step();
                }
            }
            input.advance_to(upper);
            input.flush();
            passed(upper);
            worker.step_while(|| probe.less_than(&upper));
        });
    }
    laps
}
