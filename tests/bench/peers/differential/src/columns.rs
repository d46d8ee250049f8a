//! Columns in files: raw little-endian 64-bit integers at `PREFIX.NAME`, or texts there, of one width in bytes each.
pub use shared::columns::{Cell, column};

/// One update as it is fed: row, epoch, diff.
pub type Update<D> = (D, u64, isize);

/// What can be read from a prefix's columns.
pub trait Row: differential_dataflow::Data {
    fn read(prefix: &str) -> Vec<Self>;
}

impl Row for u64 {
    fn read(prefix: &str) -> Vec<u64> {
        column(prefix, "key").expect("a key column")
    }
}

impl Row for (u64, u64) {
    fn read(prefix: &str) -> Vec<(u64, u64)> {
        let values = column(prefix, "value").expect("a value column");
        u64::read(prefix).into_iter().zip(values).collect()
    }
}

impl Row for (u32, u32) {
    fn read(prefix: &str) -> Vec<(u32, u32)> {
        <(u64, u64)>::read(prefix).into_iter().map(|(from, to)| (from as u32, to as u32)).collect()
    }
}

impl Row for u32 {
    fn read(prefix: &str) -> Vec<u32> {
        u64::read(prefix).into_iter().map(|key| key as u32).collect()
    }
}

impl Row for (u32, u32, u32) {
    fn read(prefix: &str) -> Vec<(u32, u32, u32)> {
        let thirds = column(prefix, "third").expect("a third column");
        <(u32, u32)>::read(prefix).into_iter().zip(thirds).map(|((one, two), third)| (one, two, third as u32)).collect()
    }
}

impl Row for (u64, String) {
    fn read(prefix: &str) -> Vec<(u64, String)> {
        let keys = u64::read(prefix);
        let texts = String::cells(prefix, "text", keys.len());
        keys.into_iter().zip(texts).collect()
    }
}

/// A table with named columns, which has an epoch column.
#[macro_export]
macro_rules! table {
    ($table:ident { $($name:ident: $kind:ty),* $(,)? }) => {
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $table { $(pub $name: $kind),* }

        impl $crate::columns::Row for $table {
            fn read(prefix: &str) -> Vec<$table> {
                let count = $crate::columns::column(prefix, "epoch").expect("an epoch column").len();
                $(let mut $name = <$kind as $crate::columns::Cell>::cells(prefix, stringify!($name), count).into_iter();)*
                (0..count).map(|_| $table { $($name: $name.next().expect("columns of one length")),* }).collect()
            }
        }
    };
}

/// The updates of a prefix: without an epoch column all are of the epoch `now`, without a diff column all are inserts.
pub fn updates<D: Row>(prefix: &str, now: u64) -> Vec<Update<D>> {
    let rows = D::read(prefix);
    let epochs = column(prefix, "epoch").unwrap_or_else(|| vec![now; rows.len()]);
    let diffs = column(prefix, "diff").unwrap_or_else(|| vec![1; rows.len()]);
    rows.into_iter().zip(epochs).zip(diffs).map(|((row, epoch), diff)| (row, epoch, diff as i64 as isize)).collect()
}
