//! From one file to another, in another format.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::chrome::ChromeWriter;
use crate::counters::CounterReport;
use crate::definitions::Definitions;
use crate::error::{Damage, TraceError};
use crate::perfetto::PerfettoWriter;
use crate::record::Record;
use crate::sink::Sink;
use crate::summary::Digest;
use crate::trace::{Trace, is_compressed, read_into, unwritable};

/// The format of a file to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// Perfetto's.
    Perfetto,
    /// Chrome's JSON as Kineto writes it, compressed when the path ends in `.gz`.
    Chrome,
    /// One HTML page with a timeline and the tables.
    Html,
}

/// The largest file, in bytes, that [`convert`] reads as a whole, so that its records are sorted as a whole.
const WHOLE: u64 = 256 << 20;

/// Writes the trace in `from` to the file `to`, in another format. The kernels get what `counters` has of them as arguments, if
/// there is a report: see [`CounterReport::annotate`]. Takes bounded memory: the records of a file of more than
/// 256 MiB are sorted only as far as [`PerfettoWriter`] does, and a page is of a [`Digest`]. Returns the damage at which
/// reading stopped.
///
/// # Errors
/// [`TraceError`] when there is no such file, nothing in it can be read as a trace, both paths name one file, the report has
/// none of the kernels, or `to` cannot be written.
pub fn convert(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    format: FileFormat,
    counters: Option<&CounterReport>,
) -> Result<Option<Damage>, TraceError> {
    let (from, to) = (from.as_ref(), to.as_ref());
    if from.canonicalize().is_ok_and(|from| to.canonicalize().is_ok_and(|to| from == to)) {
        let reason = "cannot be converted into itself; give another path to write to".to_owned();
        return Err(TraceError { path: from.to_path_buf(), reason });
    }
    if format == FileFormat::Html {
        let digest = Digest::read_by(|sink| read(from, counters, sink))?;
        let name = from.file_name().unwrap_or(from.as_os_str());
        digest.write_html(to, &name.to_string_lossy())?;
        return Ok(digest.damage().cloned());
    }
    if std::fs::metadata(from).is_ok_and(|about| about.len() > WHOLE) {
        return convert_piecewise(from, to, format, counters);
    }
    let mut trace = Trace::default();
    let damage = read(from, counters, &mut trace)?;
    match format {
        FileFormat::Chrome => trace.write_chrome(to)?,
        _ => trace.write_perfetto(to)?,
    }
    Ok(damage)
}

/// Reads a file whose kernels are to have counters.
fn read(
    from: &Path,
    counters: Option<&CounterReport>,
    sink: &mut dyn Sink,
) -> Result<Option<Damage>, TraceError> {
    let Some(counters) = counters else { return read_into(from, sink) };
    counters.annotate(sink.definitions());
    let mut annotated = Annotated { sink, has_counters: false };
    let damage = read_into(from, &mut annotated)?;
    if annotated.has_counters {
        return Ok(damage);
    }
    let reason =
        "has no kernel of which the report has counters; give the report of the same program".to_owned();
    Err(TraceError { path: from.to_path_buf(), reason })
}

/// Passes records on, and looks whether one is of a kernel with counters.
struct Annotated<'a> {
    sink: &'a mut dyn Sink,
    has_counters: bool,
}

impl Sink for Annotated<'_> {
    fn definitions(&mut self) -> &mut Definitions {
        self.sink.definitions()
    }

    fn record(&mut self, record: &Record) -> io::Result<()> {
        if let Record::Kernel(kernel) = record
            && !self.has_counters
        {
            let counted = self.sink.definitions().counted_of(kernel.name, kernel.stream);
            self.has_counters = counted.is_some();
        }
        self.sink.record(record)
    }
}

fn convert_piecewise(
    from: &Path,
    to: &Path,
    format: FileFormat,
    counters: Option<&CounterReport>,
) -> Result<Option<Damage>, TraceError> {
    let file = BufWriter::new(File::create(to).map_err(|error| unwritable(to, &error))?);
    let damage = match format {
        FileFormat::Chrome if is_compressed(to) => {
            let encoder = flate2::write::GzEncoder::new(file, flate2::Compression::default());
            let mut writer = ChromeWriter::new(encoder);
            let damage = read(from, counters, &mut writer);
            let end = |writer: ChromeWriter<flate2::write::GzEncoder<BufWriter<File>>>| {
                writer.finish()?.finish()?.flush()
            };
            damage.map(|damage| (damage, end(writer)))
        }
        FileFormat::Chrome => {
            let mut writer = ChromeWriter::new(file);
            let damage = read(from, counters, &mut writer);
            damage.map(|damage| (damage, writer.finish().map(|_| ())))
        }
        _ => {
            let mut writer = PerfettoWriter::new(file);
            let damage = read(from, counters, &mut writer);
            damage.map(|damage| (damage, writer.finish().map(|_| ())))
        }
    };
    let written = damage.and_then(|(damage, written)| {
        written.map_err(|error| unwritable(to, &error))?;
        Ok(damage)
    });
    if written.is_err() {
        // A part that stays does no harm.
        let _ = std::fs::remove_file(to);
    }
    written
}
