//! [`PrefixStore`]: the keys of a store that start with a prefix.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::Store;
use crate::error::Result;

/// View of another store, limited to the keys that start with a prefix. Keys are passed without the prefix. With
/// different prefixes, the keys of several users of one store cannot collide. Errors contain the keys including the
/// prefix.
///
/// ```
/// use std::sync::Arc;
/// use std::time::{Duration, Instant};
///
/// use warpsmith_collective::store::{MemoryStore, PrefixStore, Store};
///
/// let deadline = Instant::now() + Duration::from_secs(1);
/// let all = Arc::new(MemoryStore::new());
/// let mine = PrefixStore::new("run-7", all.clone());
/// mine.set("address", b"gpu01:4711", deadline)?;
/// assert_eq!(all.get("run-7/address", deadline)?, b"gpu01:4711");
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct PrefixStore {
    prefix: String,
    store: Arc<dyn Store>,
}

impl PrefixStore {
    /// Creates a view of the keys `PREFIX/…` of a store.
    pub fn new(prefix: impl Into<String>, store: Arc<dyn Store>) -> Self {
        Self { prefix: prefix.into(), store }
    }

    fn key(&self, key: &str) -> String {
        format!("{}/{key}", self.prefix)
    }

    fn with_keys<T>(&self, keys: &[&str], run: impl FnOnce(&[&str]) -> T) -> T {
        let keys: Vec<String> = keys.iter().map(|key| self.key(key)).collect();
        run(&keys.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

impl fmt::Debug for PrefixStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PrefixStore").field("prefix", &self.prefix).field("store", &self.store).finish()
    }
}

impl Store for PrefixStore {
    fn set(&self, key: &str, value: &[u8], deadline: Instant) -> Result<()> {
        self.store.set(&self.key(key), value, deadline)
    }

    fn get(&self, key: &str, deadline: Instant) -> Result<Vec<u8>> {
        self.store.get(&self.key(key), deadline)
    }

    fn wait(&self, keys: &[&str], deadline: Instant) -> Result<()> {
        self.with_keys(keys, |keys| self.store.wait(keys, deadline))
    }

    fn contains(&self, keys: &[&str], deadline: Instant) -> Result<bool> {
        self.with_keys(keys, |keys| self.store.contains(keys, deadline))
    }

    fn add(&self, key: &str, amount: i64, deadline: Instant) -> Result<i64> {
        self.store.add(&self.key(key), amount, deadline)
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8], deadline: Instant) -> Result<Vec<u8>> {
        self.store.compare_set(&self.key(key), expected, desired, deadline)
    }

    fn delete(&self, key: &str, deadline: Instant) -> Result<bool> {
        self.store.delete(&self.key(key), deadline)
    }
}
