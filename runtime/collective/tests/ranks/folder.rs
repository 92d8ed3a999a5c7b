//! A store in a folder, for processes of one host.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use warpsmith_collective::{Error, Result, Store};

/// One file a key.
#[derive(Debug)]
pub struct FolderStore {
    pub folder: PathBuf,
}

impl FolderStore {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder.join(format!("key-{}", key.replace('/', "%")))
    }

    fn read(&self, key: &str) -> Option<Vec<u8>> {
        std::fs::read(self.file(key)).ok()
    }

    fn write(&self, key: &str, value: &[u8]) {
        let other = self.folder.join(format!("new-{}-{:?}", std::process::id(), std::thread::current().id()));
        std::fs::write(&other, value).expect("written");
        std::fs::rename(other, self.file(key)).expect("renamed");
    }

    fn locked<R>(&self, work: impl FnOnce() -> R) -> R {
        let file = std::fs::File::create(self.folder.join("lock")).expect("a file");
        file.lock().expect("a lock");
        work()
    }
}

impl Store for FolderStore {
    fn set(&self, key: &str, value: &[u8], _deadline: Instant) -> Result<()> {
        self.write(key, value);
        Ok(())
    }

    fn get(&self, key: &str, deadline: Instant) -> Result<Vec<u8>> {
        loop {
            match self.read(key) {
                Some(value) => return Ok(value),
                None if Instant::now() > deadline => return Err(Error::StoreTimeout { key: key.to_owned() }),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn wait(&self, keys: &[&str], deadline: Instant) -> Result<()> {
        keys.iter().try_for_each(|key| self.get(key, deadline).map(drop))
    }

    fn contains(&self, keys: &[&str], _deadline: Instant) -> Result<bool> {
        Ok(keys.iter().all(|key| self.file(key).exists()))
    }

    fn add(&self, key: &str, amount: i64, _deadline: Instant) -> Result<i64> {
        self.locked(|| {
            let text =
                self.read(key).map_or("0".to_owned(), |value| String::from_utf8(value).expect("a number"));
            let sum = text.parse::<i64>().expect("a number") + amount;
            self.write(key, sum.to_string().as_bytes());
            Ok(sum)
        })
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8], _deadline: Instant) -> Result<Vec<u8>> {
        self.locked(|| {
            let present = self.read(key).unwrap_or_default();
            if present != expected {
                return Ok(present);
            }
            self.write(key, desired);
            Ok(desired.to_vec())
        })
    }

    fn delete(&self, key: &str, _deadline: Instant) -> Result<bool> {
        Ok(std::fs::remove_file(self.file(key)).is_ok())
    }
}
