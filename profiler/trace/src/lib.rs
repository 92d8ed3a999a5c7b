//! Traces of what devices and the host did: kernels, copies, calls, ranges, memory, counters.
//!
//! Records go into a [`Sink`]: a [`Trace`], which holds them in memory, or a writer of a file, which holds few.
//! [`ChromeWriter`] writes the JSON that PyTorch's profiler writes, which <https://ui.perfetto.dev> opens. [`Trace::read`]
//! reads it, and PyTorch's; [`Trace::summary`] has the tables.
//!
//! ```
//! use warpsmith_trace::{Kernel, Record, Trace};
//!
//! let mut trace = Trace::default();
//! let name = trace.definitions.names.intern("saxpy");
//! let stream = trace.definitions.stream(0, 7);
//! trace.push(Record::Kernel(Kernel { start: 1_000, end: 5_000, name, stream, ..Kernel::default() }));
//! assert_eq!(trace.summary().kernels[0].total, 4_000);
//! ```
//!
//! Guarantees: equal traces become equal bytes. What was written reads back equal. Files of any size are read and written
//! in bounded memory, unless into a [`Trace`]; a [`Digest`](summary::Digest) has the tables of such a file. A compressed file
//! that unpacks to more than 200 times its size is damaged. A damaged file is an error that says where, never a panic, and what
//! stands before the damage is kept. What a reader leaves out it says: [`Definitions::left_out`].
//!
//! | module | what it holds |
//! | --- | --- |
//! | `trace` | a trace in memory; reading of files |
//! | `sink` | what takes records |
//! | `record`, `definitions`, `names` | records, and what they refer to |
//! | `event` | a record taken apart, for JSON and pages |
//! | `chrome` | Chrome's JSON, as PyTorch writes it |
//! | `summary` | the tables |
//! | `counters` | reports of hardware counters |
//! | `page` | data as a page that draws it |
//! | `html` | one page with a timeline and the tables |
//! | `convert` | from one file to another |
#![deny(missing_docs)]

#[cfg(feature = "traces")]
mod chrome;
#[cfg(feature = "traces")]
mod convert;
#[cfg(feature = "traces")]
pub mod counters;
#[cfg(feature = "traces")]
mod definitions;
#[cfg(feature = "traces")]
mod error;
#[cfg(feature = "traces")]
mod event;
#[cfg(feature = "traces")]
mod html;
#[cfg(feature = "traces")]
mod names;
pub mod page;
#[cfg(feature = "traces")]
mod record;
#[cfg(feature = "traces")]
mod sink;
#[cfg(feature = "traces")]
pub mod summary;
#[cfg(feature = "traces")]
mod trace;

#[cfg(feature = "traces")]
pub use self::chrome::ChromeWriter;
#[cfg(feature = "traces")]
pub use self::convert::{Converted, FileFormat, convert};
#[cfg(feature = "traces")]
pub use self::definitions::{
    Counter, CounterId, Definitions, Device, KernelCounted, Loss, OTHERS, Omission, Stream, StreamId, Thread,
    ThreadId,
};
#[cfg(feature = "traces")]
pub use self::error::{Damage, TraceError};
#[cfg(feature = "traces")]
pub use self::names::{Name, Names};
#[cfg(feature = "traces")]
pub use self::record::{
    Call, Graph, GraphKind, Kernel, Library, Mark, Memory, Payload, Range, Record, Sample, Sync, SyncKind,
    Transfer, TransferKind, Wait,
};
#[cfg(feature = "traces")]
pub use self::sink::Sink;
#[cfg(feature = "traces")]
pub use self::summary::Summary;
#[cfg(feature = "traces")]
pub use self::trace::{Opened, Trace, check_name, read_into};
