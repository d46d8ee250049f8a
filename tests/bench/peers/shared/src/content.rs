//! One checksum of what a session's relations hold after each of its epochs, whether it sends changes or begins anew.
//! tests/bench/peers/programs.py has the same in numpy.
use crate::checksum::{Sum, Words, hash, mix};

/// `sum`: of diff × hash(relation, row) over all that the relations hold; `chain`: of the sums after all epochs so far.
#[derive(Default)]
pub struct Content {
    sum: u64,
    chain: u64,
    updates: usize,
}

impl Content {
    /// One row of the relation of that number more, or less.
    pub fn add(&mut self, relation: u64, row: &impl Words, diff: i64) {
        let mut words = vec![relation];
        words.extend(row.words());
        self.sum = self.sum.wrapping_add(hash(&words).wrapping_mul(diff as u64));
        self.updates += 1;
    }

    /// Nothing is held, as before a relation is made anew.
    pub fn clear(&mut self) {
        self.sum = 0;
    }

    /// An epoch is over.
    pub fn close(&mut self) {
        self.chain = mix(self.chain.wrapping_add(self.sum));
    }

    /// The answer of a command: the chain so far, and the updates since the last one.
    pub fn answer(&mut self) -> Sum {
        Sum { value: self.chain, updates: std::mem::take(&mut self.updates) }
    }
}
