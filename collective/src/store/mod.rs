//! Stores: keys and values that all ranks can access.
//!
//! Each operation is atomic. [`get`](Store::get) and [`wait`](Store::wait) return as soon as the keys are
//! set, regardless of the order in which the ranks arrive. No operation exceeds its deadline. A key may have up to
//! [`LONGEST_KEY`] bytes and a value up to [`LONGEST_VALUE`] bytes.
//!
//! | ranks are | use |
//! | --- | --- |
//! | threads of a single process | [`MemoryStore`] |
//! | processes on one or more hosts | [`TcpStore`], with a [`StoreServer`] in one of them (PyTorch's protocol) |
//! | any of these, with a key prefix | [`PrefixStore`] |
//!
//! [`Launch::store`](crate::Launch::store) opens the store that the environment specifies.
//!
//! ```
//! use std::time::{Duration, Instant};
//!
//! use warpsmith_collective::store::{ServerOptions, Store, StoreServer, TcpStore};
//!
//! let deadline = Instant::now() + Duration::from_secs(10);
//! let server = StoreServer::start("127.0.0.1:0".parse().unwrap(), ServerOptions::default())?;
//! let store = TcpStore::connect(&server.address().to_string(), None, deadline)?;
//! store.set("address", b"gpu01:4711", deadline)?;
//! assert_eq!(store.get("address", deadline)?, b"gpu01:4711");
//! assert_eq!(store.add("arrived", 1, deadline)?, 1);
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

mod memory;
mod prefix;
mod tcp;
mod token;
mod values;

use std::fmt;
use std::time::Instant;

pub use self::memory::MemoryStore;
pub use self::prefix::PrefixStore;
#[cfg(feature = "fuzzing")]
pub use self::tcp::fuzzed;
pub use self::tcp::{ServerOptions, StoreServer, TcpStore};
pub(crate) use self::tcp::{Will, is_end, resolve};
pub use self::token::Token;
use crate::error::{CollectiveError, Result};

/// Maximum length of a key, in bytes.
pub const LONGEST_KEY: usize = 4 << 10;
/// Maximum length of a value, in bytes.
pub const LONGEST_VALUE: usize = 1 << 20;

/// Key-value store that all ranks can access.
///
/// ```
/// use std::time::{Duration, Instant};
/// use warpsmith_collective::Store;
/// use warpsmith_collective::store::MemoryStore;
///
/// let deadline = Instant::now() + Duration::from_secs(10);
///
/// /// The number of ranks that have called it so far.
/// fn arrive(store: &dyn Store, deadline: Instant) -> Result<i64, warpsmith_runtime::Error> {
///     store.add("arrived", 1, deadline)
/// }
///
/// let store = MemoryStore::new();
/// assert_eq!((arrive(&store, deadline)?, arrive(&store, deadline)?), (1, 2));
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub trait Store: fmt::Debug + Send + Sync {
    /// Sets a key, replacing its previous value.
    ///
    /// # Errors
    /// Returns an error if the store cannot be reached before the deadline, or [`CollectiveError::TooLong`].
    fn set(&self, key: &str, value: &[u8], deadline: Instant) -> Result<()>;

    /// Waits until a key is set and returns its value.
    ///
    /// # Errors
    /// Returns [`CollectiveError::StoreTimeout`] if the key is not set before the deadline, or an error if the store
    /// cannot be reached.
    fn get(&self, key: &str, deadline: Instant) -> Result<Vec<u8>>;

    /// Waits until all of these keys are set.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::get`].
    fn wait(&self, keys: &[&str], deadline: Instant) -> Result<()>;

    /// Returns whether all of these keys are set.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::set`].
    fn contains(&self, keys: &[&str], deadline: Instant) -> Result<bool>;

    /// Adds a number to the decimal number stored under a key and returns the sum. A key that is not set counts as 0.
    ///
    /// # Errors
    /// Returns [`CollectiveError::NotANumber`], or the same errors as [`Self::set`].
    fn add(&self, key: &str, amount: i64, deadline: Instant) -> Result<i64>;

    /// Sets a key, provided that its current value is `expected`. If `expected` is empty, the key must not be set.
    /// Returns the resulting value, which is empty if the key is still not set.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::set`].
    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8], deadline: Instant) -> Result<Vec<u8>>;

    /// Removes a key. Returns whether the key was set before the call.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::set`].
    fn delete(&self, key: &str, deadline: Instant) -> Result<bool>;
}

/// Fails if a key or value exceeds the limits of the stores.
fn check(key: &str, values: &[&[u8]]) -> Result<()> {
    let limited = |what, length, limit| match length <= limit {
        true => Ok(()),
        false => Err(CollectiveError::TooLong { what, length, limit }.into()),
    };
    limited("key", key.len(), LONGEST_KEY)?;
    values.iter().try_for_each(|value| limited("value", value.len(), LONGEST_VALUE))
}
