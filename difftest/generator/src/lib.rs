//! Random kernels for the differential test, as Csmith makes random C: from a seed, always the same text.
//!
//! A [`Kernel`] is a list of steps. Each step is a function of its own that computes something of one kind (sorts of arrays,
//! casts of floats, `dyn` calls, an operation of a warp) and takes it into a hash; a kernel writes the hash after each step, so
//! that the first wrong word names the step. A step is a list of statements, any of which can be left out unless the rest needs
//! it, so that [`Reduction`] can make a kernel small. No step has undefined or unspecified behaviour, panics, or has a
//! result that depends on the order of threads; floats are never contracted, and all NaNs have one pattern.
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
