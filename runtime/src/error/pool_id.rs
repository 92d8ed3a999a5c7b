//! [`PoolId`]: ID of a memory pool.

use std::fmt;

/// ID of a pool: `(0, 0)` is the default pool, `(0, n)` a pool created by the program, `(n, 0)` a graph's private pool.
///
/// ```
/// use warpsmith_runtime::memory::statistics::PoolId;
///
/// assert_eq!(PoolId(0, 1).to_string(), "0_1");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PoolId(pub u64, pub u64);

/// Formats the ID as it appears in the keys of statistics, for example `0_1`.
impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.0, self.1)
    }
}
