//! [`FileStore`]: a store in a folder that all ranks can access.
//!
//! Values are written atomically, even if a process is killed. Data is checked when it is read, so a file written by
//! another program causes an error. Locks are released when the process that holds them ends. No other user can enter
//! the folder, read a value, or redirect a write through a link.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::token::nonce;
use super::values::number;
use super::{LONGEST_KEY, LONGEST_VALUE, Store, check};
use crate::error::{CollectiveError, Error, Result};

/// Magic number at the start of each file. It is followed by the key and the value, each with its length.
const MAGIC: &[u8; 8] = b"WSSTORE1";
/// Polling intervals for the folder.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// Store whose values are files in a folder that all ranks can access. It does not require a network between the ranks.
/// The format is specific to Warpsmith and uses one file per key. PyTorch's `FileStore` cannot read it. The file system
/// must support locks and atomic renames, as local file systems and NFS version 4 or later do.
///
/// Values persist after the processes have exited. Therefore, use a separate folder for each run, or separate keys (as
/// [`Launch::store`](crate::Launch::store) does), and remove the folder afterwards.
///
/// ```
/// use std::time::{Duration, Instant};
/// use warpsmith_collective::Store;
/// use warpsmith_collective::store::FileStore;
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let deadline = Instant::now() + Duration::from_secs(10);
/// # let folder = std::env::temp_dir().join(format!("store-{}", std::process::id()));
/// let store = FileStore::open(&folder)?;
/// store.set("address", b"gpu01:4711", deadline)?;
/// // Another process opens the same folder.
/// assert_eq!(FileStore::open(&folder)?.get("address", deadline)?, b"gpu01:4711");
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
}

impl FileStore {
    /// Opens the store in a folder. If the folder does not exist, it is created so that only its owner has access. The
    /// values must stay secret. An existing folder must therefore belong to this user and must not be accessible to
    /// others (`chmod 700`).
    ///
    /// # Errors
    /// Returns [`CollectiveError::StoreFile`] if the folder cannot be used, if the path is a link, or if the folder
    /// belongs to another user or has other permissions.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        let made = make_folder(&folder).and_then(|()| check_folder(&folder));
        made.map_err(|source| CollectiveError::StoreFile { path: folder.clone(), source })?;
        Ok(Self { folder })
    }

    /// Returns the file of a key. Keys can be longer than file names and can contain characters that file names cannot.
    fn file(&self, key: &str) -> PathBuf {
        self.folder.join(hexadecimal(&Sha256::digest(key.as_bytes())))
    }

    fn read(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let path = self.file(key);
        match read(&path, key) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CollectiveError::StoreFile { path, source }.into()),
        }
    }

    fn write(&self, key: &str, value: &[u8]) -> Result<()> {
        // The file name is unpredictable and unique across processes and hosts.
        let new = self.folder.join(format!("new-{}", hexadecimal(&nonce()?)));
        let written = write(&new, key, value).and_then(|()| fs::rename(&new, self.file(key)));
        written.map_err(|source| {
            // An error can be ignored, because a leftover temporary file is never read.
            let _ = fs::remove_file(&new);
            CollectiveError::StoreFile { path: new, source }.into()
        })
    }

    /// Runs the closure while holding a lock, so that no other process changes a value that depends on the same state.
    fn locked<T>(
        &self,
        operation: &'static str,
        deadline: Instant,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let path = self.folder.join("lock");
        let failed = |source| Error::from(CollectiveError::StoreFile { path: path.clone(), source });
        let file = own_files().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        let locked = poll(deadline, || match file.try_lock() {
            Ok(()) => Ok(Some(())),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(source)) => Err(failed(source)),
        })?;
        if locked.is_none() {
            let source = ErrorKind::TimedOut.into();
            return Err(CollectiveError::StoreSilent {
                address: path.display().to_string(),
                operation,
                source,
            }
            .into());
        }
        // Closing the file releases the lock.
        run()
    }
}

impl Store for FileStore {
    fn set(&self, key: &str, value: &[u8], deadline: Instant) -> Result<()> {
        check(key, &[value])?;
        self.locked("set", deadline, || self.write(key, value))
    }

    fn get(&self, key: &str, deadline: Instant) -> Result<Vec<u8>> {
        check(key, &[])?;
        poll(deadline, || self.read(key))?
            .ok_or_else(|| CollectiveError::StoreTimeout { key: key.to_owned() }.into())
    }

    fn wait(&self, keys: &[&str], deadline: Instant) -> Result<()> {
        keys.iter().try_for_each(|key| self.get(key, deadline).map(drop))
    }

    fn contains(&self, keys: &[&str], _deadline: Instant) -> Result<bool> {
        for key in keys {
            check(key, &[])?;
            if self.read(key)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn add(&self, key: &str, amount: i64, deadline: Instant) -> Result<i64> {
        check(key, &[])?;
        self.locked("add", deadline, || {
            let present = match self.read(key)? {
                None => 0,
                Some(value) => {
                    number(&value).ok_or_else(|| CollectiveError::NotANumber { key: key.to_owned() })?
                }
            };
            let sum = present.wrapping_add(amount);
            self.write(key, sum.to_string().as_bytes())?;
            Ok(sum)
        })
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8], deadline: Instant) -> Result<Vec<u8>> {
        check(key, &[expected, desired])?;
        self.locked("compare and set", deadline, || match self.read(key)? {
            Some(present) if present != expected => Ok(present),
            None if !expected.is_empty() => Ok(Vec::new()),
            _ => {
                self.write(key, desired)?;
                Ok(desired.to_vec())
            }
        })
    }

    fn delete(&self, key: &str, deadline: Instant) -> Result<bool> {
        check(key, &[])?;
        let path = self.file(key);
        self.locked("delete", deadline, || match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(source) => Err(CollectiveError::StoreFile { path: path.clone(), source }.into()),
        })
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Fails unless only this user can enter the folder.
#[cfg(unix)]
fn check_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;

    // Collecting the components removes a trailing slash, which would make the call follow a link.
    let about = fs::symlink_metadata(folder.components().collect::<PathBuf>())?;
    // SAFETY: the call has no preconditions.
    let user = unsafe { libc::geteuid() };
    let refused = |why: String| Err(io::Error::new(ErrorKind::PermissionDenied, why));
    let advice =
        "the store keeps the run's secrets there; give another folder, or one that does not exist yet";
    match about.mode() & 0o777 {
        _ if !about.is_dir() => refused(format!("the path is a link or a file, not a folder; {advice}")),
        _ if about.uid() != user => refused(format!(
            "the folder belongs to user {}, but this process to user {user}; {advice}",
            about.uid()
        )),
        mode if mode & 0o077 != 0 => refused(format!(
            "the folder's mode {mode:o} gives other users access; {advice}, or run `chmod 700 {}`",
            folder.display()
        )),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn check_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Returns options for creating files that only this user can read. A link is an error.
#[cfg(unix)]
fn own_files() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

/// Returns options for creating files. Their folder determines who can read them.
#[cfg(not(unix))]
fn own_files() -> OpenOptions {
    OpenOptions::new()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Polls until there is a result or the deadline has passed.
fn poll<T>(deadline: Instant, mut look: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let mut pause = PAUSES[0];
    loop {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        std::thread::sleep(pause.min(left));
        pause = (2 * pause).min(PAUSES[1]);
    }
}

fn write(path: &Path, key: &str, value: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(MAGIC.len() + 16 + key.len() + value.len());
    bytes.extend(MAGIC);
    for text in [key.as_bytes(), value] {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text);
    }
    own_files().write(true).create_new(true).open(path)?.write_all(&bytes)
}

fn read(path: &Path, key: &str) -> io::Result<Vec<u8>> {
    let file = own_files().read(true).open(path)?;
    let strange = |why| io::Error::new(ErrorKind::InvalidData, why);
    let head = MAGIC.len() + 16;
    let limit = head + LONGEST_KEY + LONGEST_VALUE;
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| strange("this is not a store file"))?;
    let text = |bytes: &[u8]| -> Option<(Vec<u8>, usize)> {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        Some((rest.get(..length)?.to_vec(), 8 + length))
    };
    let damaged = || strange("this store file is damaged");
    let (found, used) = text(rest).ok_or_else(damaged)?;
    let (value, more) = text(&rest[used..]).ok_or_else(damaged)?;
    match found == key.as_bytes() && used + more == rest.len() && value.len() <= LONGEST_VALUE {
        true => Ok(value),
        false => Err(damaged()),
    }
}
