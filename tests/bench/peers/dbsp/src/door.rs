//! Inputs of a circuit, and the changes (ascending by epoch) that wait for them.
use std::iter::Peekable;
use std::vec::IntoIter;

use shared::columns::column;

/// Changes as the input's handle takes them, each with its epoch.
pub type Changes<I> = Vec<(u64, I)>;

/// An input of changes `I`.
pub struct Door<I> {
    waiting: Peekable<IntoIter<(u64, I)>>,
    read: fn(&str, u64) -> Changes<I>,
    append: Box<dyn FnMut(&mut Vec<I>) + Send>,
}

impl<I> Door<I> {
    /// `read` makes the changes of a prefix, those without an epoch column of the epoch it is told; `append` hands them over.
    pub fn new(read: fn(&str, u64) -> Changes<I>, append: impl FnMut(&mut Vec<I>) + Send + 'static) -> Self {
        Door { waiting: Vec::new().into_iter().peekable(), read, append: Box::new(append) }
    }
}

/// What `feed` does with an input, whatever its changes are.
pub trait Feed {
    /// Let the changes of a prefix wait; how many they are.
    fn read(&mut self, prefix: &str, now: u64) -> usize;
    /// The epoch of the first change that waits.
    fn next(&mut self) -> Option<u64>;
    /// Hand over what is of an epoch.
    fn give(&mut self, epoch: u64);
}

impl<I> Feed for Door<I> {
    fn read(&mut self, prefix: &str, now: u64) -> usize {
        let changes = (self.read)(prefix, now);
        let count = changes.len();
        self.waiting = changes.into_iter().peekable();
        count
    }

    fn next(&mut self) -> Option<u64> {
        self.waiting.peek().map(|change| change.0)
    }

    fn give(&mut self, epoch: u64) {
        let mut given = Vec::new();
        while let Some((_, change)) = self.waiting.next_if(|change| change.0 == epoch) {
            given.push(change);
        }
        if !given.is_empty() {
            (self.append)(&mut given);
        }
    }
}

/// The changes of some rows: with their epochs where there is such a column, and their diffs where there is one.
pub fn changes<R, I>(prefix: &str, now: u64, rows: Vec<R>, made: impl Fn(R, i64) -> I) -> Changes<I> {
    let epochs = column(prefix, "epoch").unwrap_or_else(|| vec![now; rows.len()]);
    let diffs = column(prefix, "diff").unwrap_or_else(|| vec![1; rows.len()]);
    rows.into_iter().zip(epochs).zip(diffs).map(|((row, epoch), diff)| (epoch, made(row, diff as i64))).collect()
}

/// The column `key`, and what must be there beside it.
pub fn keys(prefix: &str) -> Vec<u64> {
    column(prefix, "key").expect("a key column")
}
