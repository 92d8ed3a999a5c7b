//! Measures kernel configurations and checks their results.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`kernel`] | the kernels that can be measured |
//! | [`size`] | element counts as people write them |
//! | [`config`] | the space of configurations |
//! | [`run`] | a whole run: request, plan, results |
//! | [`measure`] | timing by events |
//! | [`case`], [`prepare`] | a kernel with its buffers, from names |
//! | [`data`], [`verify`] | what kernels are run on, and the comparison with a float64 reference |
//! | [`stats`] | medians, percentiles, when to stop |
//! | [`report`] | the result document |
//!
//! ```no_run
//! use warpsmith_tuner::{config::Space, measure::Effort, run::{Plan, Request}};
//!
//! let device = warpsmith::Device::best()?;
//! let request = Request {
//!     kernels: vec!["axpy".to_string()],
//!     dtypes: vec!["f32".to_string()],
//!     sizes: vec![1 << 20],
//!     space: Space::gpu(),
//!     effort: Effort::QUICK,
//! };
//! Plan::new(&device, &request)?.run(|_, measured| {
//!     println!("{}: {:.1} us", measured.record.config, measured.record.median_us);
//! })?;
//! # Ok::<(), warpsmith_tuner::error::Error>(())
//! ```
#![deny(missing_docs)]

pub mod case;
pub mod config;
pub mod data;
pub mod error;
pub mod kernel;
pub mod measure;
pub mod prepare;
pub mod report;
pub mod run;
pub mod size;
pub mod stats;
pub mod verify;
