//! Traces of device and host activity: kernels, copies, calls, ranges, memory, and counters.
//!
//! Records are written to a [`Sink`]. A sink is either a [`Trace`], which keeps all records in memory, or a file
//! writer, which keeps only a few of them. [`ChromeWriter`] writes the JSON format of PyTorch's profiler, which
//! <https://ui.perfetto.dev> opens. [`Trace::read`] reads this format, whether written by this crate or by PyTorch;
//! [`Trace::summary`] returns the tables.
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
//! Equal traces are written as identical bytes. When a trace is written and read back, the result equals the original.
//! Files of any size are written and read in bounded memory, unless they are read into a [`Trace`]; a
//! [`Digest`](summary::Digest) provides the tables of such a file. A compressed file that unpacks to more than 200
//! times its size is reported as damaged. A damaged file never causes a panic; the error contains the position of the
//! damage, and the content before it is kept. [`Definitions::left_out`] reports the content that a reader has omitted.
//!
//! | module | content |
//! | --- | --- |
//! | `trace` | a trace in memory; reading files |
//! | `sink` | destinations of records |
//! | `record`, `definitions`, `names` | records, and the data to which they refer |
//! | `event` | a record decomposed into its parts, for JSON and pages |
//! | `chrome` | Chrome's JSON format, as used by PyTorch |
//! | `summary` | the tables |
//! | `page` | an HTML page that draws its own data |
//! | `html` | an HTML page with a timeline and tables |
#![deny(missing_docs)]

#[cfg(feature = "traces")]
mod chrome;
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
pub use self::definitions::{
    Counter, CounterId, Definitions, Device, Loss, OTHERS, Omission, Stream, StreamId, Thread, ThreadId,
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
