//! Conversion of a trace file to another format.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::write::GzEncoder;

use crate::chrome::ChromeWriter;
use crate::definitions::{Definitions, Omission};
use crate::error::{Damage, Result, TraceError};
use crate::record::Record;
use crate::sink::Sink;
use crate::summary::Digest;
use crate::trace::{Trace, check_name, is_compressed, not_written, read_into, unwritable};

/// Format of the file to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// Chrome's JSON format, as written by Kineto; the file is compressed if its path ends in `.gz`.
    Chrome,
    /// An HTML page with a timeline and tables.
    Html,
}

/// Maximum number of records that [`convert`] keeps in memory and sorts.
const WHOLE: usize = 2_000_000;

/// Result of a conversion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Converted {
    /// Damage at which reading stopped, or `None` if the file is intact.
    pub damage: Option<Damage>,
    /// Content that the reader omitted.
    pub left_out: Vec<Omission>,
}

/// Converts the trace file `from` to the file `to` in another format. Memory usage is bounded: only the first two million
/// records are sorted, and later records keep their order. An HTML page is created from a [`Digest`].
///
/// # Errors
/// Returns [`TraceError`] if `from` does not exist or contains no readable trace, or if both paths name the same file.
/// The same error is returned if `to` cannot be written, or if it ends in `.pftrace` and the format is JSON.
pub fn convert(from: impl AsRef<Path>, to: impl AsRef<Path>, format: FileFormat) -> Result<Converted> {
    let (from, to) = (from.as_ref(), to.as_ref());
    if from.canonicalize().is_ok_and(|from| to.canonicalize().is_ok_and(|to| from == to)) {
        let reason = "cannot be converted into itself; give another output path";
        return Err(TraceError::of(Some(from), reason));
    }
    if format == FileFormat::Chrome {
        check_name(to).map_err(|reason| not_written(to, reason))?;
    }
    let read = |sink: &mut dyn Sink| read_into(from, sink);
    match format {
        FileFormat::Html => {
            let digest = Digest::read_by(read)?;
            let name = from.file_name().unwrap_or(from.as_os_str());
            digest.write_html(to, &name.to_string_lossy())?;
            let left_out = digest.trace().definitions.left_out();
            Ok(Converted { damage: digest.damage().cloned(), left_out })
        }
        FileFormat::Chrome if is_compressed(to) => {
            let make = |file| ChromeWriter::new(GzEncoder::new(file, flate2::Compression::default()));
            let end = |file: GzEncoder<BufWriter<File>>| file.finish()?.flush();
            write(read, to, make, |writer, trace| end(trace.chrome(writer)?), |writer| end(writer.finish()?))
        }
        FileFormat::Chrome => {
            let whole = |writer, trace: &Trace| trace.chrome(writer).map(|_| ());
            write(read, to, ChromeWriter::new, whole, |writer| writer.finish().map(|_| ()))
        }
    }
}

/// Reads a file and passes its records to a writer. Above a certain number of records, they are written one by one
/// instead of all at once.
fn write<W: Sink>(
    read: impl FnOnce(&mut dyn Sink) -> Result<Option<Damage>>,
    to: &Path,
    make: impl Fn(BufWriter<File>) -> W,
    whole: impl FnOnce(W, &Trace) -> io::Result<()>,
    finish: impl FnOnce(W) -> io::Result<()>,
) -> Result<Converted> {
    let make = || Ok(make(BufWriter::new(File::create(to)?)));
    let mut target = Target { trace: Trace::default(), writer: None, make: &make };
    let damage = read(&mut target);
    let left_out = target.definitions().left_out();
    let is_begun = target.writer.is_some();
    let written = match (&damage, target.writer) {
        (Ok(_), Some(writer)) => finish(writer),
        (Ok(_), None) => make().and_then(|writer| whole(writer, &target.trace)),
        (Err(_), _) => Ok(()),
    };
    if is_begun && (damage.is_err() || written.is_err()) {
        // An error can be ignored, because a leftover partial file does no harm.
        let _ = std::fs::remove_file(to);
    }
    let damage = damage?;
    written.map_err(|error| unwritable(to, &error))?;
    Ok(Converted { damage, left_out })
}

/// Keeps records, and passes them on to a writer as soon as there are too many.
struct Target<'a, W> {
    trace: Trace,
    writer: Option<W>,
    make: &'a dyn Fn() -> io::Result<W>,
}

impl<W: Sink> Sink for Target<'_, W> {
    fn definitions(&mut self) -> &mut Definitions {
        match &mut self.writer {
            Some(writer) => writer.definitions(),
            None => &mut self.trace.definitions,
        }
    }

    fn record(&mut self, record: &Record) -> io::Result<()> {
        if let Some(writer) = &mut self.writer {
            return writer.record(record);
        }
        if self.trace.len() < WHOLE {
            return self.trace.record(record);
        }
        let writer = self.writer.insert((self.make)()?);
        let trace = std::mem::take(&mut self.trace);
        let mut records: Vec<Record> = trace.records().collect();
        *writer.definitions() = trace.definitions;
        records.sort_by_key(Record::start);
        records.push(*record);
        records.iter().try_for_each(|record| writer.record(record))
    }
}
