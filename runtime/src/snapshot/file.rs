//! Snapshot files: JSON and pickles.
//!
//! [`Snapshot::read`] returns an equal snapshot from a file that [`Snapshot::write_json`] or [`Snapshot::write_pickle`]
//! wrote. The format is detected from the content of a file, not from its name. Reading never runs code that a pickle
//! names. A file that is missing, damaged or in another format causes an error with a one-line message, never a panic.

use std::borrow::Cow;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::data;
use super::machine::Problem;
use super::{Snapshot, write};
use crate::error::{Error, Result, SnapshotError};

/// First byte of a pickle that uses protocol 2 or later.
const PICKLE: u8 = 0x80;
/// First bytes of a gzip file.
const GZIP: &[u8] = b"\x1f\x8b";
/// UTF-8 byte order mark, which some editors write at the start of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Snapshot {
    /// Returns the snapshot as one JSON document.
    pub fn to_json(&self) -> String {
        // Keys are strings and numbers are finite or null, so serialization cannot fail.
        serde_json::to_string(&self.for_files()).unwrap_or_default()
    }

    /// Writes the snapshot as JSON.
    ///
    /// # Errors
    /// Returns a [`SnapshotError`] if the file cannot be written.
    pub fn write_json(&self, path: impl AsRef<Path>) -> Result<()> {
        to_file(path.as_ref(), |file| serde_json::to_writer(file, &self.for_files()).map_err(io::Error::from))
    }

    /// Writes the snapshot as a pickle, which PyTorch's viewers can read.
    ///
    /// # Errors
    /// Returns a [`SnapshotError`] if the file cannot be written.
    pub fn write_pickle(&self, path: impl AsRef<Path>) -> Result<()> {
        to_file(path.as_ref(), |file| write::write(&self.for_files(), file))
    }

    /// Reads a snapshot of this crate or of PyTorch, as JSON or pickle, gzip-compressed or not.
    ///
    /// # Errors
    /// Returns a [`SnapshotError`] if the file does not exist, is larger than 2 GiB, is damaged, or is not a snapshot.
    /// The same error occurs if the decompressed content is larger than 2 GiB, or larger than both 50 times the file's
    /// size and 64 MiB.
    pub fn read(path: impl AsRef<Path>) -> Result<Snapshot> {
        let path = path.as_ref();
        let bytes = bounded(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => failure(Some(path), "does not exist; give the path of a snapshot file"),
            _ => failure(Some(path), format!("cannot be read: {error}")),
        })?;
        Self::of_content(&bytes).map_err(|reason| failure(Some(path), reason))
    }

    /// Like [`Self::read`], but reads the given content of a file.
    ///
    /// # Errors
    /// Returns a [`SnapshotError`] under the same conditions as for [`Self::read`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Snapshot> {
        Self::of_content(bytes).map_err(|reason| failure(None, reason))
    }

    fn of_content(bytes: &[u8]) -> Result<Snapshot, String> {
        if bytes.starts_with(GZIP) {
            return Self::from_plain(&unpacked(bytes)?, bytes.len());
        }
        Self::from_plain(bytes, bytes.len())
    }

    /// Reads a snapshot from uncompressed content that occupies `in_file` bytes in its file.
    fn from_plain(bytes: &[u8], in_file: usize) -> Result<Snapshot, String> {
        let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        match (bytes.first(), first) {
            (Some(&PICKLE), _) => from_pickle(bytes, in_file),
            // Pickles of protocols 0 and 1 have no header. They start with the opcode of the outermost value: a dict, a
            // list, or a global (the name of a class or function).
            (Some(b'(' | b'}' | b']' | b'c'), _) => from_pickle(bytes, in_file),
            (_, Some(b'{' | b'[')) => from_json(bytes),
            (_, None) => Err("is empty; write it again".to_owned()),
            _ => Err("is neither a pickle nor JSON; use a file written by `write_pickle` or `write_json`"
                .to_owned()),
        }
    }

    /// Returns the snapshot with a history, possibly empty, for every device that has segments, because viewers find
    /// the devices in the histories.
    fn for_files(&self) -> Cow<'_, Snapshot> {
        let devices = self.segments.iter().map(|segment| segment.device as usize + 1).max().unwrap_or(0);
        if self.device_traces.len() >= devices || devices > MAX_DEVICES {
            return Cow::Borrowed(self);
        }
        let mut padded = self.clone();
        padded.device_traces.resize_with(devices, Vec::new);
        Cow::Owned(padded)
    }
}

/// Maximum number of devices, which is more than any machine has. A larger ordinal is treated as damage and must not
/// create a list per device.
const MAX_DEVICES: usize = 1024;

/// Maximum size of a file that is read, in bytes.
const MAX_BYTES: u64 = 2 << 30;

/// Returns the content of a file whose size is at most [`MAX_BYTES`].
fn bounded(path: &Path) -> io::Result<Vec<u8>> {
    let too_large = || {
        let limit = MAX_BYTES >> 30;
        io::Error::other(format!("it is larger than {limit} GiB; record fewer entries or shorter stacks"))
    };
    let file = File::open(path)?;
    if file.metadata()?.len() > MAX_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // The content is limited as well, because not every readable file reports its length.
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES { Err(too_large()) } else { Ok(bytes) }
}

/// Limits on the content of a compressed file: the maximum ratio of its length to the file's length, and the length
/// that is always permitted.
const MAX_RATIO: u64 = 50;
const ANY_LENGTH: u64 = 64 << 20;

/// Returns the content of a compressed file.
fn unpacked(file: &[u8]) -> Result<Vec<u8>, String> {
    let most = (file.len() as u64 * MAX_RATIO).clamp(ANY_LENGTH, MAX_BYTES);
    let mut bytes = Vec::new();
    MultiGzDecoder::new(file).take(most + 1).read_to_end(&mut bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => too_short(file),
        _ => format!("cannot be decompressed: {error}; copy or write it again"),
    })?;
    if bytes.len() as u64 > most {
        let mib = most >> 20;
        return Err(format!("decompresses to more than {mib} MiB; decompress it and read the result"));
    }
    Ok(bytes)
}

fn to_file(path: &Path, content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    let written = File::create(path).and_then(|file| {
        let mut file = BufWriter::new(file);
        content(&mut file)?;
        file.flush()
    });
    written.map_err(|error| {
        failure(Some(path), format!("cannot be written: {error}; give a path in a writable folder"))
    })
}

fn failure(path: Option<&Path>, reason: impl Into<String>) -> Error {
    SnapshotError { path: path.map(Path::to_path_buf), reason: reason.into() }.into()
}

fn from_json(bytes: &[u8]) -> Result<Snapshot, String> {
    serde_json::from_slice(bytes)
        .map_err(|error| if error.is_eof() { too_short(bytes) } else { no_snapshot("JSON", &error) })
}

fn from_pickle(bytes: &[u8], in_file: usize) -> Result<Snapshot, String> {
    data::read(bytes, in_file).map_err(|problem| match problem {
        Problem::TooMany => no_snapshot("a pickle", &"it contains more values than a file of its size can"),
        Problem::CutOff => too_short(bytes),
        Problem::At(at) => no_snapshot("a pickle", &format_args!("byte {at} is not an opcode of plain data")),
        Problem::Content(error) => no_snapshot("a pickle", &error),
    })
}

fn too_short(bytes: &[u8]) -> String {
    format!("is truncated after {} bytes; copy or write it again", bytes.len())
}

fn no_snapshot(kind: &str, reason: &dyn Display) -> String {
    const LONGEST: usize = 200;
    let reason = reason.to_string();
    let words = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = words.chars().take(LONGEST).collect();
    format!("is {kind}, but not a snapshot: {shown}; give another file, or write it again")
}
