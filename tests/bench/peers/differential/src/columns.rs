//! Columns in files: raw little-endian 64-bit integers at `PREFIX.NAME`, and texts of 32 bytes at `PREFIX.text`.
use std::fs;
use std::path::{Path, PathBuf};

/// One update as it is fed: row, epoch, diff.
pub type Update<D> = (D, u64, isize);

/// What can be read from a prefix's columns.
pub trait Row: differential_dataflow::ExchangeData {
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

impl Row for (u64, String) {
    fn read(prefix: &str) -> Vec<(u64, String)> {
        let bytes = fs::read(path(prefix, "text")).expect("a text column");
        let texts = bytes.chunks_exact(32).map(|text| String::from_utf8(text.to_vec()).expect("texts are UTF-8"));
        u64::read(prefix).into_iter().zip(texts).collect()
    }
}

/// The updates of a prefix: without an epoch column all are of the epoch `now`, without a diff column all are inserts.
pub fn updates<D: Row>(prefix: &str, now: u64) -> Vec<Update<D>> {
    let rows = D::read(prefix);
    let epochs = column(prefix, "epoch").unwrap_or_else(|| vec![now; rows.len()]);
    let diffs = column(prefix, "diff").unwrap_or_else(|| vec![1; rows.len()]);
    rows.into_iter().zip(epochs).zip(diffs).map(|((row, epoch), diff)| (row, epoch, diff as i64 as isize)).collect()
}

fn path(prefix: &str, name: &str) -> PathBuf {
    PathBuf::from(format!("{prefix}.{name}"))
}

fn column(prefix: &str, name: &str) -> Option<Vec<u64>> {
    let file = path(prefix, name);
    if !Path::exists(&file) {
        return None;
    }
    let bytes = fs::read(&file).expect("a readable column");
    assert!(bytes.len() % 8 == 0, "a column of 64-bit integers");
    Some(bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect())
}
