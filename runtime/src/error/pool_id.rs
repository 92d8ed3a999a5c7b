//! [`PoolId`]: which memory pool.

use std::fmt;

/// Identity of a pool: `(0, 0)` the default pool, `(0, n)` made by a user, `(n, 0)` made for a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PoolId(pub u64, pub u64);

/// As in the keys of statistics: `0_1`.
impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.0, self.1)
    }
}
