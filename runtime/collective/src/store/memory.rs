//! The store of one process.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::Store;
use crate::error::{Error, Result};

/// The store of ranks that are threads of one process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    values: Mutex<HashMap<String, Vec<u8>>>,
    changed: Condvar,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn values(&self) -> MutexGuard<'_, HashMap<String, Vec<u8>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waited(&self, key: &str, deadline: Instant) -> Result<Vec<u8>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let (values, _) = self
            .changed
            .wait_timeout_while(self.values(), left, |values| !values.contains_key(key))
            .unwrap_or_else(PoisonError::into_inner);
        values.get(key).cloned().ok_or_else(|| Error::StoreTimeout { key: key.to_owned() })
    }
}

impl Store for MemoryStore {
    fn set(&self, key: &str, value: &[u8], _deadline: Instant) -> Result<()> {
        self.values().insert(key.to_owned(), value.to_vec());
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
        Ok(keys.iter().all(|key| values.contains_key(*key)))
    }

    fn add(&self, key: &str, amount: i64, _deadline: Instant) -> Result<i64> {
        let mut values = self.values();
        let number = match values.get(key) {
            None => 0,
            Some(value) => std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse::<i64>().ok())
                .ok_or_else(|| Error::NotANumber { key: key.to_owned() })?,
        };
        let sum = number.wrapping_add(amount);
        values.insert(key.to_owned(), sum.to_string().into_bytes());
        self.changed.notify_all();
        Ok(sum)
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8], _deadline: Instant) -> Result<Vec<u8>> {
        let mut values = self.values();
        let present = values.get(key).map_or(&[][..], Vec::as_slice);
        if present != expected || (expected.is_empty() && values.contains_key(key)) {
            return Ok(present.to_vec());
        }
        values.insert(key.to_owned(), desired.to_vec());
        self.changed.notify_all();
        Ok(desired.to_vec())
    }

    fn delete(&self, key: &str, _deadline: Instant) -> Result<bool> {
        Ok(self.values().remove(key).is_some())
    }
}
