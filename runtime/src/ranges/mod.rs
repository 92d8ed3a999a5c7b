//! Named ranges of a program, which profilers and tools display next to the GPU's work.
//!
//! ```
//! use warpsmith_runtime::{mark, range};
//!
//! for step in 0..2 {
//!     let _step = range!("step {step}", category = "training");
//!     {
//!         let _forward = range!("forward", colour = 0x3070d0);
//!         // What is enqueued here belongs to `forward`, in the trace of a profiler also when it runs later.
//!     }
//!     mark!("loss", payload = 0.5);
//! }
//! ```
//!
//! | goal | use |
//! | --- | --- |
//! | a range for a scope | [`range!`] |
//! | a point in time | [`mark!`] |
//! | a range that another thread ends | [`start`], [`end`] |
//! | the function names of `torch.cuda.nvtx` | [`nvtx`] |
//! | the spans of `tracing` as ranges | `RangeLayer`, with the feature `tracing` |
//! | a listener for the ranges of a program | [`listen`] |
//! | the thread's current range | [`current()`] |
//!
//! Without a listener or a tool, [`range!`] and [`mark!`] cost one load and a branch, because no name is formatted and
//! no clock is read.
//!
//! # Destinations of ranges
//!
//! Ranges are reported to every [`Listener`], for example the listener of a profiler, and to the tool that is attached
//! through [NVTX](nvtx), for example Nsight Systems.
//!
//! # Mistakes
//!
//! Ending a range before a range inside it, a pop without a push on the same thread, and similar mistakes count as a
//! [`Misuse`]. A misuse is reported to the listeners and as a `tracing` warning that names both ranges or threads. It
//! causes no panic, and recorded ranges are kept. The guard of [`range!`] cannot be sent to another thread, so a
//! program that tries this does not compile.
//!
//! # Forks
//!
//! A forked process has no listeners and no tool. It can drop ranges of the parent process and can register new
//! listeners.

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
