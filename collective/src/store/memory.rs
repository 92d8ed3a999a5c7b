//! [`MemoryStore`]: a store within one process.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::values::Values;
use super::{Store, check};
use crate::error::{CollectiveError, Result};

/// Store for ranks that are threads of a single process.
///
/// ```
/// use std::time::{Duration, Instant};
/// use warpsmith_collective::Store;
/// use warpsmith_collective::store::MemoryStore;
///
/// let deadline = Instant::now() + Duration::from_secs(10);
/// let store = MemoryStore::new();
/// store.set("address", b"gpu01:4711", deadline)?;
/// assert_eq!(store.get("address", deadline)?, b"gpu01:4711");
/// assert_eq!(store.add("arrived", 1, deadline)?, 1);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct MemoryStore {
    values: Mutex<Values>,
    changed: Condvar,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waited(&self, key: &str, deadline: Instant) -> Result<Vec<u8>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let (values, _) = self
            .changed
            .wait_timeout_while(self.values(), left, |values| !values.contains(key.as_bytes()))
            .unwrap_or_else(PoisonError::into_inner);
        let value = values.get(key.as_bytes()).map(<[u8]>::to_vec);
        value.ok_or_else(|| CollectiveError::StoreTimeout { key: key.to_owned() }.into())
    }
}

impl Store for MemoryStore {
    fn set(&self, key: &str, value: &[u8], _deadline: Instant) -> Result<()> {
        check(key, &[value])?;
        self.values().set(key.as_bytes(), value.to_vec());
        self.changed.notify_all();
        Ok(())
    }

    fn get(&self, key: &str, deadline: Instant) -> Result<Vec<u8>> {
        self.waited(key, deadline)
    }

    fn wait(&self, keys: &[&str], deadline: Instant) -> Result<()> {
        keys.iter().try_for_each(|key| self.waited(key, deadline).map(drop))
    }

    fn contains(&self, keys: &[&str], _deadline: Instant) -> Result<bool> {
        let values = self.values();
        Ok(keys.iter().all(|key| values.contains(key.as_bytes())))
    }

    fn add(&self, key: &str, amount: i64, _deadline: Instant) -> Result<i64> {
        check(key, &[])?;
        let sum = self.values().add(key.as_bytes(), amount);
        self.changed.notify_all();
        sum.ok_or_else(|| CollectiveError::NotANumber { key: key.to_owned() }.into())
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8], _deadline: Instant) -> Result<Vec<u8>> {
        check(key, &[expected, desired])?;
        let (value, _) = self.values().compare_set(key.as_bytes(), expected, desired);
        self.changed.notify_all();
        Ok(value.unwrap_or_default())
    }

    fn delete(&self, key: &str, _deadline: Instant) -> Result<bool> {
        Ok(self.values().delete(key.as_bytes()))
    }
}
