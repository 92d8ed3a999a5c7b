//! Runs GPU kernels on the CPU, as a GPU would: blocks spread over the cores, the threads of a block as
//! coroutines on one core, with barriers, warp collectives, shared memory and output. Blocks that wait for each
//! other, those of a cluster or of a cooperative launch, run at once on one core.
//!
//! Two sides use it. The runtime describes a launch and calls [`run`]; the device library, whose functions are
//! called by the kernel while it runs, calls [`thread`], [`collective`], [`shared`] and [`output`].
//!
//! An error of a kernel becomes a [`Fault`] with text, never a hang or the end of the process: a panic, a
//! deadlock (with the places where threads wait), lanes that disagree about a warp operation, threads that disagree about
//! an operation on a shared array, a thread that spins for ever. These still end the process, with the usual text: a kernel that uses up its stack (see
//! [`settings`]), a destructor that panics while another panic unwinds, a failed check of an unsafe function's
//! precondition, and any panic in a program built with `panic = "abort"`. A kernel that never ends fails after a time
//! limit.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`launch`] | describes a launch, checks it and spreads its blocks over the cores |
//! | `set` | the blocks that run at once: how their threads start, suspend and end |
//! | `block` | what the threads of a running block share |
//! | `scheduler` | decides which thread continues; stops blocks whose kernel failed |
//! | `diagnosis` | what went wrong, with the places where threads wait |
//! | `runner` | the coroutines that threads run on, kept from block to block |
//! | `fiber` | what ThreadSanitizer must know of these |
//! | `registers` | the identity of the running thread, in thread-local storage |
//! | [`thread`] | indices and sizes, as a kernel queries them |
//! | [`collective`] | barriers, warp exchange, spinning, as a kernel calls them |
//! | [`copies`] | copies of tensors, and the barriers that wait for them |
//! | `under_way` | the state of these |
//! | `arrays`, `barrier`, `cluster`, `parts`, `warp` | which threads have arrived |
//! | `wait` | which threads wait, which can continue |
//! | `watch` | the limit on the time of a block |
//! | [`dynamic`] | kernels launched by kernels |
//! | [`shared`] | shared memory of a block, and of the others of its cluster |
//! | [`redzone`] | notices writes beyond the ends of memory |
//! | [`output`] | text that kernels print, and its capture |
//! | [`fault`] | what can go wrong, in words |
//! | [`check`] | finds races and wrong accesses to memory in instrumented programs |
//! | `panics` | keeps panics of kernels silent and remembers where they happened |
//! | `order` | sequential and seeded orders |
//! | [`settings`] | stack size, limits, the seed |
#![deny(missing_docs)]

mod arrays;
mod barrier;
mod block;
pub mod check;
mod cluster;
pub mod collective;
pub mod copies;
mod diagnosis;
pub mod dynamic;
pub mod fault;
mod fiber;
pub mod launch;
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
mod under_way;
mod wait;
mod warp;
mod watch;

pub use fault::{Fault, Waiting};
pub use launch::{Launch, run};
pub use order::Order;
