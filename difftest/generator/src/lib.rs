//! Random kernels for the differential test, as Csmith generates random C: the same seed always gives the same text.
//!
//! A [`Kernel`] is a list of steps. Each step is a separate function that computes something of one kind (array sorts,
//! float casts, `dyn` calls, a warp operation) and adds it to a hash. A kernel writes the hash after each step, so that
//! the first wrong word identifies the step.
//!
//! A step is a list of statements, any of which can be left out unless the rest needs it, so that [`Reduction`] can
//! shrink a kernel. No step has undefined or unspecified behavior, panics, or has a result that depends on the order of
//! threads. Floats are never contracted, and all NaNs have one bit pattern.
#![deny(missing_docs)]

mod expressions;
mod kernel;
mod kinds;
mod project;
mod random;
mod reduction;

pub use self::kernel::{Kernel, Line, Step, kernels};
pub use self::project::{Project, cases_of, module_of};
pub use self::random::Random;
pub use self::reduction::Reduction;
