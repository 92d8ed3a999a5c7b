//! Named parts of a program, which profilers and tools show beside what the GPU does.
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
//! | wanted | use |
//! | --- | --- |
//! | a range for a scope | [`range!`] |
//! | a moment | [`mark!`] |
//! | a range that another thread ends | [`start`], [`end`] |
//! | the names of `torch.cuda.nvtx` | [`nvtx`] |
//! | the spans of `tracing` as ranges | `RangeLayer`, with the feature `tracing` |
//! | to get the ranges of a program | [`listen`] |
//! | the range that the thread is in | [`current()`] |
//!
//! While nothing listens, [`range!`] and [`mark!`] cost one load and a branch: names are not formatted, and no time is taken.
//!
//! # Where ranges go
//!
//! To every [`Listener`], for example a profiler's, and to the tool that is attached by NVTX, for example Nsight Systems: see
//! [`nvtx`].
//!
//! # Mistakes
//!
//! A range that ends before one inside it, a pop without a push, also on another thread, and the like are a [`Misuse`]: a
//! warning of `tracing`, which names both ranges or threads, and a call of the listeners. Nothing panics, and what was
//! recorded is kept. The guard of [`range!`] cannot be sent to another thread, so such a program does not compile.
//!
//! # Forks
//!
//! A forked process has no listeners and no tool. Ranges of the process before can be dropped there, and it can listen anew.

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
