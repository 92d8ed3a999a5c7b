//! Runs GPU kernels on the CPU. Blocks are distributed over the cores. The threads of a block are coroutines on one
//! core. Barriers, warp collectives, shared memory and printing are supported. Blocks that wait for each other, in a
//! cluster or a cooperative launch, run concurrently on one core.
//!
//! The crate has two clients. The runtime describes a launch and calls [`run`]. The device library, called by the
//! running kernel, calls [`thread`], [`collective`], [`shared`] and [`output`].
//!
//! An error in a kernel becomes a [`Fault`] with a message and neither hangs nor terminates the process. Such errors
//! include panics, deadlocks (with the source locations where threads wait), and threads that spin forever. They also
//! include lanes that disagree about a warp operation, and threads that disagree about an operation on a shared array.
//! A few errors still terminate the process with the usual message: a stack overflow (see [`settings`]), a destructor
//! that panics during another panic, and a failed precondition check of an unsafe function. In a program that was built
//! with `panic = "abort"`, any panic terminates the process. A kernel that never ends fails after a time limit.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`launch`] | describes and validates a launch, and distributes its blocks over the cores |
//! | `set` | blocks that run concurrently: starting, suspending and exiting their threads |
//! | `block` | state that a running block's threads share |
//! | `scheduler` | selects the next thread; stops blocks whose kernel has failed |
//! | `diagnosis` | faults, with the source locations where threads wait |
//! | `runner` | coroutines that run threads and are reused from block to block |
//! | `fiber` | ThreadSanitizer annotations of the coroutines |
//! | `registers` | identity of the running thread, in thread-local storage |
//! | [`thread`] | indices and sizes, as queried by a kernel |
//! | [`collective`] | barriers, warp exchange and spinning, as called by a kernel |
//! | [`copies`] | TMA copies, and the transaction barriers that track them |
//! | `in_flight` | state of in-flight copies and their barriers |
//! | `arrays`, `barrier`, `cluster`, `parts`, `warp` | arrivals at barriers and exchanges |
//! | `wait` | waiting and ready threads |
//! | `watch` | time limit of a block |
//! | [`shared`] | shared memory of a block and of the other blocks in its cluster |
//! | [`redzone`] | detects out-of-bounds writes |
//! | [`output`] | text printed by kernels, and its capture |
//! | [`fault`] | errors that a launch returns |
//! | [`check`] | finds races and invalid memory accesses in instrumented programs |
//! | `panics` | suppresses the output of panics in kernels and records their locations |
//! | `order` | sequential and seeded orders |
//! | [`settings`] | stack size, limits and the seed |
//! | [`machine`] | memory of this machine |
#![deny(missing_docs)]

mod arrays;
mod barrier;
mod block;
pub mod check;
mod cluster;
pub mod collective;
pub mod copies;
mod diagnosis;
pub mod fault;
mod fiber;
mod in_flight;
pub mod launch;
pub mod machine;
mod order;
pub mod output;
mod panics;
mod parts;
pub mod redzone;
mod registers;
mod runner;
mod scheduler;
mod set;
pub mod settings;
pub mod shared;
pub mod thread;
mod wait;
mod warp;
mod watch;

pub use fault::{Fault, FaultKind, Waiting};
pub use launch::{Launch, run};
pub use order::Order;
