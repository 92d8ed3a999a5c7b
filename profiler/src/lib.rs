//! Profiler that records device and host activity and creates traces.
//!
//! ```
//! use warpsmith_profiler::{Profiler, ProfilerOptions};
//! use warpsmith_runtime::{Device, DeviceBuffer};
//!
//! let device = Device::emulated(0)?;
//! let profiler = Profiler::start(ProfilerOptions::default())?;
//! let mut x = DeviceBuffer::<f32>::zeros(&device.default_stream(), 1 << 20)?;
//! device.default_stream().memset(&mut x, 1)?;
//! let trace = profiler.stop()?;
//! println!("{}", trace.summary().text(10));
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```
//!
//! | task | use |
//! | --- | --- |
//! | trace a part of a program | [`Profiler::start`] and [`Profiler::stop`] |
//! | write a trace of unlimited size to a file | [`Profiler::to_file`] |
//! | record selected steps of a loop | [`Schedule`] |
//! | record an unchanged program | the environment variable `WARPSMITH_PROFILE=FILE` |
#![deny(missing_docs)]

mod environment;
mod error;
mod inlet;
mod join;
mod names;
mod observer;
mod options;
mod output;
mod profiler;
mod ranges;
mod raw;
mod recording;
mod samples;
mod schedule;

pub use warpsmith_runtime::driver::activity::ActivityError;
pub use warpsmith_trace as trace;

pub use self::error::ProfilerError;
pub use self::options::ProfilerOptions;
pub use self::profiler::{FileProfiler, Profiler, Written};
pub use self::schedule::{Schedule, Scheduled};
