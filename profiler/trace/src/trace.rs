//! [`Trace`]: a trace in memory, and its files.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::chrome::{self, ChromeWriter};
use crate::definitions::Definitions;
use crate::error::{Damage, Error, Result, Stop, TraceError};
use crate::record::*;
use crate::sink::Sink;

/// A trace in memory. The records of each kind are in the order in which they arrived.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Definitions to which the records refer.
    pub definitions: Definitions,
    /// Kernels.
    pub kernels: Vec<Kernel>,
    /// Copies and memsets.
    pub transfers: Vec<Transfer>,
    /// Library calls.
    pub calls: Vec<Call>,
    /// Synchronizations.
    pub syncs: Vec<Sync>,
    /// Ranges.
    pub ranges: Vec<Range>,
    /// Marks.
    pub marks: Vec<Mark>,
    /// Waits that the runtime inserted.
    pub waits: Vec<Wait>,
    /// Allocations and frees.
    pub memory: Vec<Memory>,
    /// Samples of counters.
    pub samples: Vec<Sample>,
    /// Captures, instantiations and launches of graphs.
    pub graphs: Vec<Graph>,
}

impl Sink for Trace {
    fn definitions(&mut self) -> &mut Definitions {
        &mut self.definitions
    }

    /// Fails if a file contains more records than fit in memory.
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let space = match record {
            Record::Kernel(_) => self.kernels.try_reserve(1),
            Record::Transfer(_) => self.transfers.try_reserve(1),
            Record::Call(_) => self.calls.try_reserve(1),
            Record::Sync(_) => self.syncs.try_reserve(1),
            Record::Range(_) => self.ranges.try_reserve(1),
            Record::Mark(_) => self.marks.try_reserve(1),
            Record::Wait(_) => self.waits.try_reserve(1),
            Record::Memory(_) => self.memory.try_reserve(1),
            Record::Sample(_) => self.samples.try_reserve(1),
            Record::Graph(_) => self.graphs.try_reserve(1),
        };
        space?;
        self.push(*record);
        Ok(())
    }
}

/// Readable content of a file.
#[derive(Debug)]
#[non_exhaustive]
pub struct Opened {
    /// The trace or, if the file is damaged, the part before the damage.
    pub trace: Trace,
    /// Damage at which reading stopped, or `None` if the file is intact.
    pub damage: Option<Damage>,
}

impl Trace {
    /// Adds a record.
    pub fn push(&mut self, record: Record) {
        match record {
            Record::Kernel(record) => self.kernels.push(record),
            Record::Transfer(record) => self.transfers.push(record),
            Record::Call(record) => self.calls.push(record),
            Record::Sync(record) => self.syncs.push(record),
            Record::Range(record) => self.ranges.push(record),
            Record::Mark(record) => self.marks.push(record),
            Record::Wait(record) => self.waits.push(record),
            Record::Memory(record) => self.memory.push(record),
            Record::Sample(record) => self.samples.push(record),
            Record::Graph(record) => self.graphs.push(record),
        }
    }

    /// Returns all records, one kind after another.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let kernels = self.kernels.iter().map(|record| Record::Kernel(*record));
        let transfers = self.transfers.iter().map(|record| Record::Transfer(*record));
        let calls = self.calls.iter().map(|record| Record::Call(*record));
        let syncs = self.syncs.iter().map(|record| Record::Sync(*record));
        let ranges = self.ranges.iter().map(|record| Record::Range(*record));
        let marks = self.marks.iter().map(|record| Record::Mark(*record));
        let waits = self.waits.iter().map(|record| Record::Wait(*record));
        let memory = self.memory.iter().map(|record| Record::Memory(*record));
        let samples = self.samples.iter().map(|record| Record::Sample(*record));
        let graphs = self.graphs.iter().map(|record| Record::Graph(*record));
        let on_devices = kernels.chain(transfers).chain(syncs).chain(waits).chain(memory).chain(samples);
        ranges.chain(graphs).chain(calls).chain(marks).chain(on_devices)
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        let on_host = self.calls.len() + self.ranges.len() + self.marks.len() + self.graphs.len();
        let on_devices = self.kernels.len() + self.transfers.len() + self.syncs.len() + self.waits.len();
        on_host + on_devices + self.memory.len() + self.samples.len()
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the string of a name.
    pub fn text(&self, name: crate::Name) -> &str {
        self.definitions.names.text(name)
    }

    /// Writes the trace as JSON for Chrome's viewer, Perfetto and PyTorch's tools; the file is compressed if its path
    /// ends in `.gz`. Equal traces are written as identical bytes.
    ///
    /// # Errors
    /// Returns [`TraceError`] if the file cannot be written or its path ends in `.pftrace`.
    pub fn write_chrome(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        check_name(path).map_err(|reason| not_written(path, reason))?;
        self.to_file(path, |file| {
            if is_compressed(path) {
                let encoder = flate2::write::GzEncoder::new(file, flate2::Compression::default());
                self.chrome(ChromeWriter::new(encoder))?.finish()?.flush()
            } else {
                self.chrome(ChromeWriter::new(file))?.flush()
            }
        })
    }

    /// Passes all records of the trace to a new writer, and finishes the writer.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn chrome<W: Write>(&self, writer: ChromeWriter<W>) -> io::Result<W> {
        writer.whole(&self.definitions, self.records().collect())
    }

    fn to_file(
        &self,
        path: &Path,
        content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<()> {
        let written = File::create(path).and_then(|file| {
            let mut file = BufWriter::new(file);
            content(&mut file)?;
            file.flush()
        });
        written.map_err(|error| unwritable(path, &error))
    }

    /// Reads a JSON trace written by this crate or by PyTorch, compressed or not. The format is determined by the
    /// content rather than by the file name. The readable part of a damaged file is kept.
    ///
    /// # Errors
    /// Returns [`TraceError`] if the file does not exist or contains no readable trace.
    pub fn read(path: impl AsRef<Path>) -> Result<Opened> {
        let mut trace = Trace::default();
        let damage = read_into(path, &mut trace)?;
        Ok(Opened { trace, damage })
    }

    /// Reads a trace from the content of a file, like [`Self::read`] from a path.
    ///
    /// # Errors
    /// Returns [`TraceError`] if the content is not a readable trace.
    pub fn from_bytes(bytes: &[u8]) -> Result<Opened> {
        let mut trace = Trace::default();
        let damage = read_from(bytes, &mut trace).map_err(|reason| TraceError::of(None, reason))?;
        Ok(Opened { trace, damage })
    }
}

/// Reads a file into a sink, in bounded memory. If the sink is a writer, this converts a file of any size; if it is a
/// [`Trace`], it collects the records. Returns the damage at which reading stopped.
///
/// # Errors
/// Returns [`TraceError`] if the file does not exist or contains no readable trace, or if the sink fails.
pub fn read_into(path: impl AsRef<Path>, sink: &mut dyn Sink) -> Result<Option<Damage>> {
    // On Windows, opening a folder fails.
    const FOLDER: &str = "is a folder; give the path of a file in it";
    let path = path.as_ref();
    let failure = |reason| TraceError::of(Some(path), reason);
    let file = File::open(path).map_err(|error| {
        failure(match error.kind() {
            _ if path.is_dir() => FOLDER.to_owned(),
            ErrorKind::NotFound => "does not exist; give the path of a trace file".to_owned(),
            _ => format!("cannot be read: {error}"),
        })
    })?;
    if file.metadata().is_ok_and(|about| about.is_dir()) {
        return Err(failure(FOLDER.to_owned()));
    }
    read_from(BufReader::with_capacity(1 << 16, file), sink).map_err(failure)
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

pub(crate) fn unwritable(path: &Path, error: &io::Error) -> Error {
    not_written(path, &format!("{error}; give a path in a writable folder"))
}

fn not_written(path: &Path, reason: &str) -> Error {
    TraceError::of(Some(path), format!("cannot be written: {reason}"))
}

/// Fails if an output file name indicates a different format, because traces are always written as JSON.
///
/// # Errors
/// Returns the cause and the remedy, if the name ends in `.pftrace`.
pub fn check_name(path: &Path) -> Result<(), &'static str> {
    match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("pftrace")) {
        true => Err("traces are JSON, not Perfetto's own format; \
                     give a name that ends in .json or .json.gz, which https://ui.perfetto.dev opens too"),
        false => Ok(()),
    }
}

fn read_from(mut input: impl BufRead, sink: &mut dyn Sink) -> Result<Option<Damage>, String> {
    let head = input.fill_buf().map_err(|error| format!("cannot be read: {error}"))?;
    let read = if Format::of(head) == Format::Compressed {
        let mut inner = Unpacked::new(input);
        inner
            .fill_buf()
            .map_err(|error| format!("cannot be decompressed: {error}; copy or write it again"))?;
        read_plain(inner, sink)?
    } else {
        read_plain(input, sink)?
    };
    let replaced = sink.definitions().add_texts_left_out();
    match read {
        Ok(_) if replaced == 0 => Ok(None),
        Ok(at) => {
            let reason = format!("the trace has too many strings: {replaced} were replaced by `others`");
            Ok(Some(Damage { at, reason }))
        }
        Err(Stop::Damaged(damage)) => Ok(Some(damage)),
        Err(Stop::Foreign(reason)) => Err(reason),
        Err(Stop::Output(error)) => {
            Err(format!("was read, but its records cannot be kept or written: {error}"))
        }
    }
}

fn read_plain(mut input: impl BufRead, sink: &mut dyn Sink) -> Result<Result<u64, Stop>, String> {
    // If this fails, the next read returns the error.
    if input.fill_buf().is_ok_and(|head| head.starts_with(BYTE_ORDER_MARK)) {
        input.consume(BYTE_ORDER_MARK.len());
    }
    Ok(match Format::of(input.fill_buf().map_err(|error| format!("cannot be read: {error}"))?) {
        Format::Empty => return Err("is empty; write it again".to_owned()),
        Format::Json => chrome::read(&mut input, sink),
        Format::Compressed | Format::Other => return Err(NO_TRACE.to_owned()),
    })
}

/// Byte order mark, which some editors write at the start of text files.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Decompressed content of a file. Reading fails if the content is larger than any trace can be.
struct Unpacked<R> {
    inner: BufReader<MultiGzDecoder<Counted<R>>>,
    bytes: u64,
}

/// Maximum ratio of the decompressed size to the file size, and the decompressed size, in bytes, that is always
/// allowed. Traces unpack to about 20 times the size of the file.
const MAX_RATIO: u64 = 200;
const ANY_LENGTH: u64 = 64 << 20;

/// Reader that counts the bytes it has read.
struct Counted<R> {
    input: R,
    bytes: u64,
}

impl<R: BufRead> Unpacked<R> {
    fn new(input: R) -> Self {
        let decoder = MultiGzDecoder::new(Counted { input, bytes: 0 });
        Unpacked { inner: BufReader::with_capacity(1 << 16, decoder), bytes: 0 }
    }
}

impl<R: BufRead> BufRead for Unpacked<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.bytes > ANY_LENGTH && self.bytes / MAX_RATIO > self.inner.get_ref().get_ref().bytes {
            let reason = format!(
                "it decompresses to more than {MAX_RATIO} times its size; decompress it and read the result"
            );
            return Err(io::Error::other(reason));
        }
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.bytes += count as u64;
        self.inner.consume(count);
    }
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let ahead = self.fill_buf()?;
        let count = ahead.len().min(into.len());
        into[..count].copy_from_slice(&ahead[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(into)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.bytes += count as u64;
        self.input.consume(count);
    }
}

const NO_TRACE: &str =
    "is not a trace, because it does not start like JSON; use a file written by this profiler or by PyTorch";

/// Format of a file, as determined by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Empty,
    Compressed,
    Json,
    Other,
}

impl Format {
    fn of(head: &[u8]) -> Format {
        let text = head.trim_ascii_start();
        match (head, text) {
            ([0x1f, 0x8b, ..], _) => Format::Compressed,
            (_, [b'{' | b'[']) => Format::Json,
            (_, [b'{' | b'[', b'{' | b'"' | b'}' | b']' | b',' | b' ' | b'\t' | b'\r' | b'\n', ..]) => {
                Format::Json
            }
            (_, []) => Format::Empty,
            _ => Format::Other,
        }
    }
}
