//! Checksums that do not depend on the order of updates, nor on whether they are consolidated: the sum over all updates
//! of diff × hash(row, epoch), modulo 2^64. tests/bench/peers/columns.py has the same in numpy.

pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D049BB133111EB);
    x ^ (x >> 31)
}

pub fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0x9E3779B97F4A7C15, |found, word| mix(found.wrapping_add(*word)))
}

/// The words by which a row is hashed.
pub trait Words {
    fn words(&self) -> Vec<u64>;
}

macro_rules! word {
    ($($kind:ty),*) => {
        $(impl Words for $kind {
            fn words(&self) -> Vec<u64> { vec![*self as u64] }
        })*
    };
}

word!(u64, u32, i64, isize);

impl Words for () {
    fn words(&self) -> Vec<u64> { Vec::new() }
}

impl Words for String {
    fn words(&self) -> Vec<u64> {
        self.as_bytes().chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }
}

macro_rules! words {
    ($($name:ident),*) => {
        impl<$($name: Words),*> Words for ($($name,)*) {
            fn words(&self) -> Vec<u64> {
                #[allow(non_snake_case)]
                let ($($name,)*) = self;
                [$($name.words()),*].concat()
            }
        }
    };
}

words!(A);
words!(A, B);
words!(A, B, C);
words!(A, B, C, D);

/// A running checksum and how many updates it is of.
#[derive(Default)]
pub struct Sum {
    pub value: u64,
    pub updates: usize,
}

impl Sum {
    pub fn add(&mut self, mut words: Vec<u64>, epoch: Option<u64>, diff: isize) {
        words.extend(epoch);
        self.value = self.value.wrapping_add(hash(&words).wrapping_mul(diff as u64));
        self.updates += 1;
    }
}
