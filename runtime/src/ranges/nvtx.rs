//! Ranges under the function names of `torch.cuda.nvtx`, with the same stack and the same listeners as
//! [`range!`](crate::range).
//!
//! No NVIDIA library is required. A tool such as Nsight Systems, which sets `NVTX_INJECTION64_PATH` for programs that
//! it starts, receives all ranges and marks of the process in the domain `warpsmith`.
//!
//! ```
//! use warpsmith_runtime::ranges::nvtx;
//!
//! assert_eq!(nvtx::range_push("epoch"), 0);
//! assert_eq!(nvtx::range_push("step"), 1);
//! nvtx::mark("loaded");
//! assert_eq!(nvtx::range_pop(), Some(1));
//! assert_eq!(nvtx::range_pop(), Some(0));
//!
//! let id = nvtx::range_start("upload");
//! std::thread::spawn(move || nvtx::range_end(id)).join().unwrap();
//! let _range = nvtx::range("download");
//! ```

use std::borrow::Cow;

use crate::ranges::label::Label;
use crate::ranges::listener::RangeId;
use crate::ranges::stack::{self, Range};
use crate::ranges::started;

pub use crate::ranges::injection::{allow_cupti, name_thread, tool};

/// Starts a range on the calling thread; [`range_pop`] ends it. Returns the number of enclosing ranges, including
/// ranges started with [`range!`](crate::range) if a listener or a tool received them.
#[track_caller]
pub fn range_push(name: impl Into<Cow<'static, str>>) -> usize {
    let label = Label::new(name);
    stack::push_depth(|| label)
}

/// Ends the range that the calling thread pushed last. Returns the number of enclosing ranges; `None`, reported as a
/// [`Misuse`](super::Misuse), if no range was pushed.
pub fn range_pop() -> Option<usize> {
    stack::pop()
}

/// Marks a point in time.
#[track_caller]
pub fn mark(name: impl Into<Cow<'static, str>>) {
    let label = Label::new(name);
    started::mark(|| label);
}

/// Starts a range that any thread may end. Returns `None` if no listener or tool receives ranges.
#[track_caller]
pub fn range_start(name: impl Into<Cow<'static, str>>) -> Option<RangeId> {
    let label = Label::new(name);
    started::start(|| label)
}

/// Ends a range that was started.
pub fn range_end(id: Option<RangeId>) {
    started::end(id);
}

/// Starts a range that ends when the result is dropped.
#[track_caller]
pub fn range(name: impl Into<Cow<'static, str>>) -> Range {
    let label = Label::new(name);
    Range::new(|| label)
}
