//! Counts and distinct rows of a collection of keys: `run PREFIX EPOCHS`.
use differential_dataflow::VecCollection;
use differential_dataflow::input::Input;
use differential_dataflow::operators::{CountTotal, ThresholdTotal};
use timely::dataflow::ProbeHandle;

use crate::checksum::Words;
use crate::feed::{Caught, Door, Feed, caught, feed};
use crate::{Command, commands};

type Keys<'scope> = VecCollection<'scope, u64, u64, isize>;

pub fn count() { session(|keys| keys.count()) }
pub fn count_total() { session(|keys| keys.count_total()) }
pub fn distinct() { session(|keys| keys.distinct()) }

/// The published `distinct_total` never retracts a row whose count falls to zero, so the threshold is spelt out.
pub fn distinct_total() { session(|keys| keys.threshold_total(|_, count| isize::from(*count > 0))) }

fn session<D: Words + differential_dataflow::Data>(
    operator: impl for<'scope> Fn(Keys<'scope>) -> VecCollection<'scope, u64, D, isize> + Send + Sync + 'static,
) {
    timely::execute_directly(move |worker| {
        let probe = ProbeHandle::new();
        let out = Caught::<D>::default();
        let mut input = Door::new(worker.dataflow::<u64, _, _>(|scope| {
            let (input, keys) = scope.new_collection::<u64, isize>();
            let into = out.clone();
            operator(keys).inspect_batch(move |_, sent| into.borrow_mut().extend_from_slice(sent)).probe_with(&probe);
            input
        }));
        for Command { verb, prefix, number } in commands() {
            assert_eq!(verb, "run");
            let count = input.read(&prefix);
            feed(worker, &mut [&mut input], number, &probe, |_| (), || ()).answer(count, &caught(&out, true));
        }
    });
}
