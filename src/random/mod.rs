//! Random numbers on the device: generators with PyTorch's seeds, states and order, and arrays of numbers.
//!
//! A [`Generator`] has a seed and an offset; each operation takes its numbers there and moves the offset on, so that one
//! program gives the same numbers in every run ([`Generator::manual_seed`]), on a GPU and on the emulated device alike. The
//! numbers are those of Philox 4x32-10 ([`gpu_std::random`]).
//!
//! ```
//! use warpsmith::prelude::*;
//! use warpsmith::random::{self, Generator};
//!
//! let device = Device::open("cpu")?;
//! let stream = Stream::new(&device)?;
//! let generator = Generator::new(&device);
//! generator.manual_seed(42)?;
//!
//! let mut x = DeviceBuffer::<f32>::uninit(&stream, 1000)?;
//! random::uniform(&stream, &generator, &mut x)?;
//! let first = x.to_host()?;
//! assert!(first.iter().all(|x| (0.0..1.0).contains(x)));
//!
//! random::uniform(&stream, &generator, &mut x)?; // others
//! assert_ne!(x.to_host()?, first);
//! generator.manual_seed(42)?; // and the first again
//! random::uniform(&stream, &generator, &mut x)?;
//! assert_eq!(x.to_host()?, first);
//!
//! // A deck of cards, shuffled.
//! let mut deck = DeviceBuffer::<u32>::uninit(&stream, 52)?;
//! random::permutation(&stream, &generator, &mut deck)?;
//! let mut cards = deck.to_host()?;
//! cards.sort_unstable();
//! assert!(cards.into_iter().eq(0..52));
//! # Ok::<(), warpsmith::Error>(())
//! ```
//!
//! | operation | numbers | of `torch` | types |
//! | --- | --- | --- | --- |
//! | [`uniform()`] | in [0, 1) | `rand`, the same bits | f32, f64, f16, bf16 |
//! | [`uniform_in()`] | from low to high | `uniform_`, the same bits | f32, f64, f16, bf16 |
//! | [`normal()`] | of a mean and a standard deviation | `normal_`, but for some last bits; but for f64 [more near 0](crate::gpu_std::random::normal2) | f32, f64, f16, bf16 |
//! | [`exponential()`] | of a rate | `exponential_`, but for some last bits | f32, f64, f16, bf16 |
//! | [`integers()`] | in low..high | `randint`, the same | i32, u32, i64, u64 |
//! | [`bernoulli()`] | 1 with a probability, else 0 | `bernoulli_`, but for f64 and a probability of 1 | u8, f32, f64, f16, bf16 |
//! | [`dropout()`] | what of an array stays | other choices than `dropout`'s | f32, f64, f16, bf16 |
//! | [`permutation()`] | 0 to n − 1 in random order | another order than `randperm`'s | i32, u32, i64, u64 |
//!
//! Order. All but the last two have PyTorch's order on a CUDA device, which depends on the number of multiprocessors: that is
//! part of a generator ([`Layout`]), not of the device it is used on. A generator for a CUDA device has the device's own; one
//! for the emulated device has that of an H100 or H200, so that it gives what those give, with the same seed. Set the same
//! layout on both for others. Arrays of more than 2³¹ bytes are halved until no part is longer, as PyTorch does, and the
//! parts are filled one after the other.
//!
//! Graphs. While a stream is captured, operations take their place from memory that each launch of the graph writes anew:
//! each launch has other numbers, the same that the operations would have given outside of a graph. A launch takes numbers
//! once for each capture that is part of its graph. A part that runs several times in a launch (in a loop, or added in several
//! places) has the same numbers each time; a part that does not run (of a condition) takes its numbers too. A launch that is
//! refused takes none.
//!
//! Zero elements take nothing from a generator, nor does an operation that fails. Any thread may use a generator; an operation takes its place in one step, so
//! two operations never have the same numbers.

#[cfg(feature = "bench")]
pub(crate) mod fixed;
mod generator;
mod launch;
mod layout;
mod operations;
mod replay;

#[cfg(feature = "rows")]
pub(crate) use generator::Numbers;
pub use generator::{
    DEFAULT_SEED, Generator, default_generator, manual_seed_all, seed_all, set_states, states,
};
#[cfg(feature = "rows")]
pub(crate) use launch::with_base;
pub use layout::Layout;
pub use operations::{
    Bernoulli, Integer, bernoulli, dropout, exponential, integers, normal, normal_with, permutation, uniform,
    uniform_in, uniform_with,
};
