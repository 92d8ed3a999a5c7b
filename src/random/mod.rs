//! Random numbers on the device: generators with PyTorch's seeds, states and order, and operations that fill arrays
//! with their numbers.
//!
//! A [`Generator`] consists of a seed and an offset. Each operation takes its numbers from a generator and advances the
//! offset. With [`Generator::manual_seed`], a program therefore produces the same numbers in every run, on a GPU and on
//! the emulated device. The numbers are computed by Philox 4x32-10 ([`gpu_std::random`]).
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
//! random::uniform(&stream, &generator, &mut x)?; // different numbers
//! assert_ne!(x.to_host()?, first);
//! generator.manual_seed(42)?; // the first numbers again
//! random::uniform(&stream, &generator, &mut x)?;
//! assert_eq!(x.to_host()?, first);
//!
//! // A shuffled deck of cards.
//! let mut deck = DeviceBuffer::<u32>::uninit(&stream, 52)?;
//! random::permutation(&stream, &generator, &mut deck)?;
//! let mut cards = deck.to_host()?;
//! cards.sort_unstable();
//! assert!(cards.into_iter().eq(0..52));
//! # Ok::<(), warpsmith::Error>(())
//! ```
//!
//! | operation | numbers | counterpart in `torch` | types |
//! | --- | --- | --- | --- |
//! | [`uniform()`] | in [0, 1) | `rand`, bit-identical | f32, f64, f16, bf16 |
//! | [`uniform_in()`] | from `low` to `high` | `uniform_`, bit-identical | f32, f64, f16, bf16 |
//! | [`normal()`] | normal, with a given mean and standard deviation | `normal_`, may differ in the last bits; for f64 it has [more numbers near 0](crate::gpu_std::random::normal2) | f32, f64, f16, bf16 |
//! | [`exponential()`] | exponential, with a given rate | `exponential_`, may differ in the last bits | f32, f64, f16, bf16 |
//! | [`integers()`] | in `low..high` | `randint`, identical | i32, u32, i64, u64 |
//! | [`bernoulli()`] | 1 with a given probability, otherwise 0 | `bernoulli_`, identical except for f64 and for a probability of 1 | u8, f32, f64, f16, bf16 |
//! | [`dropout()`] | elements of an array, some of which are dropped | `dropout`, but drops different elements | f32, f64, f16, bf16 |
//! | [`permutation()`] | 0 to n − 1 in random order | `randperm`, but in a different order | i32, u32, i64, u64 |
//!
//! All operations except the last two follow PyTorch's order on a CUDA device, which depends on the device's SM count
//! and threads per SM. This number is part of the generator ([`Layout`]), not of the device on which the generator is
//! used. A generator for a CUDA device uses the device's layout. A generator for the emulated device uses the layout of
//! an H100 or H200, so it produces the same numbers as these GPUs for the same seed. To match any other device, set the
//! same layout on both generators. Arrays of more than 2³¹ bytes are halved until no part is longer, as in PyTorch, and
//! the parts are filled one after another.
//!
//! In a graph, captured operations read their seed and offset from memory that each graph launch updates. Each launch
//! produces new numbers: those that the operations would produce without a graph. A launch takes numbers once for each
//! capture that its graph contains. If a part of the graph runs several times in a launch (in a loop, or because it was
//! added several times), it uses the same numbers each time. A part that does not run, because it is in a conditional
//! node, still takes its numbers. A rejected launch takes no numbers.
//!
//! An operation on zero elements, or an operation that fails, takes no numbers from its generator. A generator can be
//! used from any thread. Each operation reserves its numbers atomically, so two operations never use the same numbers.

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
    Bernoulli, bernoulli, dropout, exponential, integers, normal, permutation, uniform, uniform_in,
};
