//! Traces of device and host activity: kernels, copies, calls, ranges, memory, and counters.
//!
//! Records are written to a [`Sink`]: either a [`Trace`], which keeps them in memory, or a file writer, which keeps
//! only a few. [`ChromeWriter`] writes the JSON format of PyTorch's profiler, which <https://ui.perfetto.dev> opens.
//! [`Trace::read`] reads that format, both from this crate and from PyTorch; [`Trace::summary`] returns the tables.
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
//! Guarantees: equal traces are written as equal bytes. A written trace is equal to the original when it is read back.
//! Files of any size are read and written in bounded memory, unless they are read into a [`Trace`]; a
//! [`Digest`](summary::Digest) provides the tables of such a file. A compressed file that unpacks to more than 200
//! times its size is reported as damaged. A damaged file never causes a panic: the error contains the position, and the
//! content before it is kept. [`Definitions::left_out`] reports the content that a reader omits.
//!
//! | module | content |
//! | --- | --- |
//! | `trace` | a trace in memory; reading files |
//! | `sink` | destinations of records |
//! | `record`, `definitions`, `names` | records, and the data to which they refer |
//! | `event` | a decomposed record, for JSON and pages |
//! | `chrome` | Chrome's JSON in PyTorch's format |
//! | `summary` | the tables |
//! | `counters` | reports of hardware counters |
//! | `page` | an HTML page that draws its data |
//! | `html` | one page with a timeline and the tables |
//! | `convert` | conversion between files |
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
