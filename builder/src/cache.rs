//! A content-addressed cache of generated PTX and machine code, shared by all projects, profiles and features of a
//! user.
//!
//! An entry holds one part for one architecture. A build writes a temporary file and renames it, so concurrent builds
//! can share the cache. A damaged entry counts as a miss. The least recently used entries are evicted when the cache
//! exceeds [`MAX_BYTES`]. A failure to read or write the cache never fails a build.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::codegen::Facts;
use crate::fingerprint::Fingerprint;
use crate::toolchain::{self, Files};

/// Environment variable that names the cache folder, or disables the cache if set to `off`.
pub const VARIABLE: &str = "WARPSMITH_IMAGE_CACHE";
/// Maximum total size of all entries, in bytes.
const MAX_BYTES: u64 = 1 << 30;
/// Compression level: the fastest level that compresses at all.
const COMPRESSION: u8 = 1;
const ENDING: &str = "code";

/// The user's cache of generated code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    folder: PathBuf,
}

/// Code of one part, compiled for one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Metadata about the code.
    pub facts: Facts,
    /// The PTX.
    pub ptx: Vec<u8>,
    /// The cubin, if it was generated.
    pub cubin: Option<Vec<u8>>,
}

/// Header line of a cache file. The compressed code follows the header.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    facts: Facts,
    ptx: usize,
    cubin: Option<usize>,
    /// Checksum of the code.
    sum: String,
}

impl Cache {
    /// Opens the user's cache. Returns `None` if the cache is off or no cache folder exists.
    pub fn of_user() -> Option<Cache> {
        Self::of(|name| std::env::var_os(name))
    }

    fn of(read: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<Cache> {
        let folder = match read(VARIABLE).filter(|value| !value.is_empty()) {
            Some(off) if off == "off" => return None,
            Some(folder) => PathBuf::from(folder),
            None => toolchain::user_folder(Files::Cache, read)?.join("warpsmith/images"),
        };
        folder.is_absolute().then_some(Cache { folder })
    }

    /// Cache folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the number of entries and their size in bytes.
    pub fn size(&self) -> (usize, u64) {
        let entries = self.entries();
        (entries.len(), entries.iter().map(|(_, bytes, _)| bytes).sum())
    }

    /// Looks up an entry, and marks it as recently used.
    pub(crate) fn get(&self, key: &str) -> Option<Entry> {
        let path = self.path(key);
        let bytes = fs::read(&path).ok()?;
        let entry = Entry::read(&bytes);
        match entry {
            Some(_) => {
                _ = File::options()
                    .append(true)
                    .open(&path)
                    .and_then(|file| file.set_modified(SystemTime::now()))
            }
            None => _ = fs::remove_file(&path),
        }
        entry
    }

    /// Stores an entry.
    pub(crate) fn put(&self, key: &str, entry: &Entry) {
        let temporary = self.folder.join(format!("{key}.{}", std::process::id()));
        let write = || {
            fs::create_dir_all(&self.folder)?;
            File::create(&temporary)?.write_all(&entry.to_bytes())?;
            fs::rename(&temporary, self.path(key))
        };
        if write().is_err() {
            let _ = fs::remove_file(&temporary);
        }
        self.shrink(MAX_BYTES);
    }

    /// Evicts the least recently used entries until at most `most` bytes remain.
    fn shrink(&self, most: u64) {
        let mut entries = self.entries();
        let mut bytes: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        entries.sort_by_key(|(_, _, used)| *used);
        for (path, size, _) in entries {
            if bytes <= most {
                break;
            }
            let _ = fs::remove_file(path);
            bytes -= size;
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(key).with_extension(ENDING)
    }

    /// Returns the path, the size in bytes and the time of last use of each entry.
    fn entries(&self) -> Vec<(PathBuf, u64, SystemTime)> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let about = |path: PathBuf| {
            let about = fs::metadata(&path).ok()?;
            Some((path, about.len(), about.modified().ok()?))
        };
        files
            .filter(|path| path.extension().is_some_and(|ending| ending == ENDING))
            .filter_map(about)
            .collect()
    }
}

impl Entry {
    fn to_bytes(&self) -> Vec<u8> {
        let code = [&self.ptx[..], self.cubin.as_deref().unwrap_or_default()].concat();
        let header = Header {
            facts: self.facts.clone(),
            ptx: self.ptx.len(),
            cubin: self.cubin.as_ref().map(Vec::len),
            sum: sum(&code),
        };
        let mut bytes = serde_json::to_vec(&header).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend(miniz_oxide::deflate::compress_to_vec(&code, COMPRESSION));
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Entry> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let header: Header = serde_json::from_slice(&bytes[..end]).ok()?;
        let len = header.ptx.checked_add(header.cubin.unwrap_or(0))?;
        let code = miniz_oxide::inflate::decompress_to_vec_with_limit(&bytes[end + 1..], len).ok()?;
        if code.len() != len || sum(&code) != header.sum {
            return None;
        }
        let (ptx, cubin) = code.split_at(header.ptx);
        Some(Entry { facts: header.facts, ptx: ptx.to_vec(), cubin: header.cubin.map(|_| cubin.to_vec()) })
    }
}

fn sum(code: &[u8]) -> String {
    let mut sum = Fingerprint::new();
    sum.value(&code);
    sum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptxas::Resources;

    fn entry(text: &str) -> Entry {
        let resources = Resources { registers: 32, ..Resources::default() };
        let facts = Facts { resources: vec![("k".to_owned(), resources)], ..Facts::default() };
        Entry { facts, ptx: text.as_bytes().to_vec(), cubin: Some(vec![1, 2, 3]) }
    }

    fn cache(test: &str) -> Cache {
        let folder = std::env::temp_dir().join(format!("warpsmith-cache-{test}-{}", std::process::id()));
        Cache { folder }
    }

    #[test]
    fn entries_are_found_again_until_they_are_damaged() {
        let cache = cache("entries");
        assert_eq!((cache.get("a"), cache.size()), (None, (0, 0)));
        let without_cubin = Entry { cubin: None, ..entry("two") };
        cache.put("a", &entry("one"));
        cache.put("b", &without_cubin);
        assert_eq!(
            (cache.get("a"), cache.get("b"), cache.get("c")),
            (Some(entry("one")), Some(without_cubin), None)
        );
        let bytes = fs::read(cache.path("a")).unwrap();
        for damaged in
            [&bytes[..bytes.len() - 1], b"", b"{}\n", &[&bytes[..bytes.len() - 2], &[0, 0]].concat()]
        {
            fs::write(cache.path("a"), damaged).unwrap();
            assert_eq!((cache.get("a"), cache.path("a").exists()), (None, false));
        }
        assert_eq!(cache.size().0, 1);
        fs::remove_dir_all(cache.folder()).unwrap();
    }

    #[test]
    fn the_entries_used_last_stay() {
        let cache = cache("shrink");
        for (key, seconds) in [("a", 30), ("b", 10), ("c", 20)] {
            cache.put(key, &entry("x"));
            let used = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            File::options().append(true).open(cache.path(key)).unwrap().set_modified(used).unwrap();
        }
        let (_, all) = cache.size();
        // A lookup marks the entry as used.
        cache.get("b").unwrap();
        cache.shrink(all - 1);
        assert_eq!(["a", "b", "c"].map(|key| cache.get(key).is_some()), [true, true, false]);
        fs::remove_dir_all(cache.folder()).unwrap();
    }

    #[test]
    #[cfg(all(unix, not(target_os = "macos")))]
    fn variables_choose_the_folder_or_none() {
        let of = |all: &[(&str, &str)]| {
            let read =
                |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            Cache::of(read).map(|cache| cache.folder)
        };
        let (home, shared) = (("HOME", "/h"), ("XDG_CACHE_HOME", "/c"));
        assert_eq!(of(&[home]), Some("/h/.cache/warpsmith/images".into()));
        assert_eq!(of(&[home, shared]), Some("/c/warpsmith/images".into()));
        assert_eq!(of(&[home, ("XDG_CACHE_HOME", "c")]), Some("/h/.cache/warpsmith/images".into()));
        assert_eq!(of(&[home, (VARIABLE, "/i")]), Some("/i".into()));
        assert_eq!(
            (of(&[home, (VARIABLE, "off")]), of(&[home, (VARIABLE, "i")]), of(&[])),
            (None, None, None)
        );
    }
}
