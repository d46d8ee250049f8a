//! Outputs of a circuit: what a transaction sent, and its checksum.
use dbsp::operator::OutputHandle;
use dbsp::typed_batch::{IndexedZSetReader, TypedBatch};
use dbsp::utils::{Tup2, Tup3, Tup4, Tup5, Tup6};
use dbsp::{DBData, ZWeight};
use shared::checksum::Sum;

/// Adds a transaction's updates to a checksum, as those of an epoch; no part of a lap.
pub type Later = Box<dyn FnOnce(&mut Sum, u64)>;

/// Takes what the last transaction sent.
pub type Outlet = Box<dyn Fn() -> Option<Later> + Send>;

/// The words by which a key or value is hashed.
pub trait Cells: DBData {
    fn put(&self, words: &mut Vec<u64>);
}

impl Cells for () {
    fn put(&self, _: &mut Vec<u64>) {}
}

impl Cells for u64 {
    fn put(&self, words: &mut Vec<u64>) {
        words.push(*self);
    }
}

impl Cells for i64 {
    fn put(&self, words: &mut Vec<u64>) {
        words.push(*self as u64);
    }
}

impl Cells for String {
    fn put(&self, words: &mut Vec<u64>) {
        words.extend(self.as_bytes().chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())));
    }
}

macro_rules! cells {
    ($tuple:ident: $($name:ident),*) => {
        impl<$($name: Cells),*> Cells for $tuple<$($name),*>
        where
            $tuple<$($name),*>: DBData,
        {
            #[allow(non_snake_case)]
            fn put(&self, words: &mut Vec<u64>) {
                let $tuple($($name),*) = self;
                $($name.put(words);)*
            }
        }
    };
}

cells!(Tup2: A, B);
cells!(Tup3: A, B, C);
cells!(Tup4: A, B, C, D);
cells!(Tup5: A, B, C, D, E);
cells!(Tup6: A, B, C, D, E, F);

/// The outlet of an accumulated output: one snapshot a transaction, in how many steps dbsp ever made it.
pub fn outlet<K, V, B>(handle: OutputHandle<TypedBatch<K, V, ZWeight, B>>) -> Outlet
where
    K: Cells,
    V: Cells,
    B: 'static,
    TypedBatch<K, V, ZWeight, B>: IndexedZSetReader<Key = K, Val = V> + Clone + Send + 'static,
{
    Box::new(move || {
        let sent = handle.take_from_worker(0)?;
        Some(Box::new(move |sum: &mut Sum, epoch: u64| {
            for (key, value, weight) in sent.iter() {
                let mut words = Vec::new();
                key.put(&mut words);
                value.put(&mut words);
                sum.add(words, Some(epoch), weight as isize);
            }
        }))
    })
}
