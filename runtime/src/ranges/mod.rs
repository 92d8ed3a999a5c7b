//! Named ranges of a program, which profilers and tools display next to the GPU work.
//!
//! ```
//! use warpsmith_runtime::{mark, range};
//!
//! for step in 0..2 {
//!     let _step = range!("step {step}", category = "training");
//!     {
//!         let _forward = range!("forward", color = 0x3070d0);
//!         // Profilers attribute work enqueued here to `forward`, even if it runs later.
//!     }
//!     mark!("loss", payload = 0.5);
//! }
//! ```
//!
//! | goal | use |
//! | --- | --- |
//! | a range for a scope | [`range!`] |
//! | a point in time | [`mark!`] |
//! | a range that another thread may end | [`start`], [`end`] |
//! | the function names of `torch.cuda.nvtx` | [`nvtx`] |
//! | the spans of `tracing` as ranges | `RangeLayer`, with the feature `tracing` |
//! | a listener for the program's ranges | [`listen`] |
//! | the thread's current range | [`current()`] |
//!
//! Without a listener or a tool, [`range!`] and [`mark!`] cost one load and one branch: no name is formatted, and no
//! clock is read.
//!
//! # Destinations of ranges
//! Ranges are reported to every [`Listener`], such as a profiler's, and to the tool attached through [NVTX](nvtx), such
//! as Nsight Systems.
//!
//! # Mistakes
//! Mistakes such as ending a range before a range nested in it, or a pop without a push on the same thread, are
//! [`Misuse`]s. A misuse is reported to the listeners and as a `tracing` warning that names the ranges or the thread.
//! It does not panic, and recorded ranges are kept. The guard of [`range!`] is `!Send`, so sending it to another thread
//! does not compile.
//!
//! # Forks
//! A forked process has no listeners and no tool. It can drop ranges of the parent process and register new listeners.

mod injection;
mod label;
#[cfg(feature = "tracing")]
mod layer;
mod listener;
mod macros;
mod misuse;
pub mod nvtx;
mod stack;
mod started;
mod state;

#[doc(hidden)]
pub use self::label::text;
pub use self::label::{Label, Payload};
#[cfg(feature = "tracing")]
pub use self::layer::RangeLayer;
pub use self::listener::{Event, Kind, Listener, Listening, RangeId, listen};
pub use self::misuse::Misuse;
pub use self::stack::{Range, current};
pub use self::started::{end, mark, start};
pub use crate::{mark, range};
