//! Columns in files: raw little-endian 64-bit integers at `PREFIX.NAME`; and rows of up to three of them.
use std::fs;
use std::path::{Path, PathBuf};

/// Where a column is.
pub fn path(prefix: &str, name: &str) -> PathBuf {
    PathBuf::from(format!("{prefix}.{name}"))
}

/// A column of integers, where there is one.
pub fn column(prefix: &str, name: &str) -> Option<Vec<u64>> {
    let file = path(prefix, name);
    if !Path::exists(&file) {
        return None;
    }
    let bytes = fs::read(&file).expect("a readable column");
    assert!(bytes.len() % 8 == 0, "a column of 64-bit integers");
    Some(bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect())
}

/// What a column of a named table holds; `count` rows of it are there.
pub trait Cell: Sized {
    fn cells(prefix: &str, name: &str, count: usize) -> Vec<Self>;
}

impl Cell for i64 {
    fn cells(prefix: &str, name: &str, _: usize) -> Vec<i64> {
        column(prefix, name).expect("a column").into_iter().map(|word| word as i64).collect()
    }
}

/// Texts of one width in bytes each.
impl Cell for String {
    fn cells(prefix: &str, name: &str, count: usize) -> Vec<String> {
        let bytes = fs::read(path(prefix, name)).expect("a text column");
        let width = bytes.len() / count.max(1);
        bytes.chunks_exact(width.max(1)).map(|text| String::from_utf8(text.to_vec()).expect("texts are UTF-8")).collect()
    }
}

/// The column of facts that must be there, of numbers that fit 32 bits.
fn narrow(prefix: &str, name: &str) -> Vec<u32> {
    let found = column(prefix, name).unwrap_or_else(|| panic!("no column {prefix}.{name}"));
    found.into_iter().map(|word| u32::try_from(word).expect("a number of 32 bits")).collect()
}

/// Rows of one to three numbers, in the columns `key`, `value` and `third`.
pub trait Fact: Sized + Copy + Ord + std::hash::Hash {
    fn facts(prefix: &str) -> Vec<Self>;
}

impl Fact for u32 {
    fn facts(prefix: &str) -> Vec<u32> {
        narrow(prefix, "key")
    }
}

impl Fact for (u32,) {
    fn facts(prefix: &str) -> Vec<(u32,)> {
        narrow(prefix, "key").into_iter().map(|key| (key,)).collect()
    }
}

impl Fact for (u32, u32) {
    fn facts(prefix: &str) -> Vec<(u32, u32)> {
        narrow(prefix, "key").into_iter().zip(narrow(prefix, "value")).collect()
    }
}

impl Fact for (u32, u32, u32) {
    fn facts(prefix: &str) -> Vec<(u32, u32, u32)> {
        let pairs = <(u32, u32)>::facts(prefix);
        pairs.into_iter().zip(narrow(prefix, "third")).map(|((one, two), three)| (one, two, three)).collect()
    }
}

/// The changes of a prefix, in the order of their epochs; without an epoch column all are of the epoch `now`, without a diff
/// column all are inserts.
pub fn changes<F: Fact>(prefix: &str, now: u64) -> Vec<(F, u64, i64)> {
    let facts = F::facts(prefix);
    let epochs = column(prefix, "epoch").unwrap_or_else(|| vec![now; facts.len()]);
    let diffs = column(prefix, "diff").unwrap_or_else(|| vec![1; facts.len()]);
    facts.into_iter().zip(epochs).zip(diffs).map(|((fact, epoch), diff)| (fact, epoch, diff as i64)).collect()
}
