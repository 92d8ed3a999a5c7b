//! Stores: values under names, which all ranks see.
//!
//! Guarantees: each operation is atomic; [`get`](Store::get) and [`wait`](Store::wait) return when the keys are set, in
//! whatever order ranks arrive; none takes longer than its deadline.

mod memory;

use std::fmt;
use std::time::Instant;

pub use self::memory::MemoryStore;
use crate::error::Result;

/// Values under names, which all ranks see.
pub trait Store: fmt::Debug + Send + Sync {
    /// Sets a key, in place of the value that it may have.
    ///
    /// # Errors
    /// The store cannot be reached by the deadline.
    fn set(&self, key: &str, value: &[u8], deadline: Instant) -> Result<()>;

    /// The value of a key, as soon as there is one.
    ///
    /// # Errors
    /// [`Error::StoreTimeout`](crate::Error::StoreTimeout) when the key is not set by the deadline; the store cannot be reached.
    fn get(&self, key: &str, deadline: Instant) -> Result<Vec<u8>>;

    /// Waits until all of these keys are set.
    ///
    /// # Errors
    /// As [`Self::get`].
    fn wait(&self, keys: &[&str], deadline: Instant) -> Result<()>;

    /// Whether all of these keys are set.
    ///
    /// # Errors
    /// As [`Self::set`].
    fn contains(&self, keys: &[&str], deadline: Instant) -> Result<bool>;

    /// Adds to the decimal number under a key, which is 0 when it is not set, and returns the sum.
    ///
    /// # Errors
    /// [`Error::NotANumber`](crate::Error::NotANumber); as [`Self::set`].
    fn add(&self, key: &str, amount: i64, deadline: Instant) -> Result<i64>;

    /// Sets a key when its value is `expected`, or, when that is empty, when it is not set. Returns the value after that.
    ///
    /// # Errors
    /// As [`Self::set`].
    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8], deadline: Instant) -> Result<Vec<u8>>;

    /// Removes a key; whether it was set.
    ///
    /// # Errors
    /// As [`Self::set`].
    fn delete(&self, key: &str, deadline: Instant) -> Result<bool>;
}
