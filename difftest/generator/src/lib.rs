//! Random kernels for the differential test, as Csmith generates random C: the same seed always gives the same text.
//!
//! A [`Kernel`] is a list of steps. Each step is a separate function that computes something of one kind (array sorts,
//! float casts, `dyn` calls, a warp operation) and adds it to a hash. A kernel writes the hash after each step, so that
//! the first wrong word identifies the step.
//!
//! No step has undefined or unspecified behavior, panics, or has a result that depends on the order of threads. Floats
//! are never contracted, and all NaNs have one bit pattern.
#![deny(missing_docs)]

mod expressions;
mod kernel;
mod kinds;
mod project;
mod random;

pub use self::kernel::{Kernel, Step, kernels};
pub use self::project::{Project, cases_of, module_of};
pub use self::random::Random;
