//! Measuring and tuning kernels: those of [`ops`](crate::ops), and a program's own. With the feature `bench`.
//!
//! Everything of `warpsmith_tuner` is here. [`suite`] adds to it what is known of this crate's operations, and the probes
//! that results are held against.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `operations` | the operations as benchmarks |
//! | `prepare` | their data, and the reference they are checked against |
//! | `probes` | copies, reads and multiplications that stand for the device's limits |

mod operations;
mod prepare;
mod probes;

pub use operations::{OPERATIONS, Operation};
pub use probes::probes;
pub use warpsmith_tuner::*;

use benchmark::{Benchmark, Suite};

/// The operations of [`ops`](crate::ops), after `own` benchmarks.
///
/// ```
/// let suite = warpsmith::bench::suite(Vec::new());
/// assert_eq!(suite.find("sum")?.name(), "reduce_sum");
/// # Ok::<(), warpsmith::bench::error::Error>(())
/// ```
pub fn suite(own: Vec<Box<dyn Benchmark>>) -> Suite {
    let operations = OPERATIONS.iter().map(|operation| Box::new(*operation) as Box<dyn Benchmark>);
    Suite { benchmarks: own.into_iter().chain(operations).collect(), probes }
}
