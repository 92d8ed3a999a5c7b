//! Definitions to which records refer: strings, devices, streams, host threads, counters, and facts about the whole
//! trace.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use crate::names::Names;

/// Device in a trace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Name of the device, for example `NVIDIA H200`.
    pub name: String,
    /// Memory size in bytes; 0 if unknown.
    pub memory: u64,
    /// Peak memory bandwidth in bytes per second; 0 if unknown.
    pub bandwidth: u64,
    /// Number of SMs; 0 if unknown.
    pub multiprocessors: u32,
    /// Compute capability, for example (9, 0); (0, 0) if unknown.
    pub capability: (u32, u32),
}

/// Stream of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stream {
    /// Ordinal of the device.
    pub device: u32,
    /// Stream ID assigned by the driver; -1 stands for the whole device.
    pub id: i64,
    /// Name assigned by the program; may be empty.
    pub name: String,
}

/// Thread of a host process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    /// ID of the process.
    pub process: i64,
    /// The system's thread ID.
    pub id: i64,
    /// Name of the thread; may be empty.
    pub name: String,
}

/// Quantity that is sampled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counter {
    /// Ordinal of the device; `None` for the host.
    pub device: Option<u32>,
    /// Name of the quantity, for example `power`.
    pub name: String,
    /// Unit of the values, for example `W`.
    pub unit: String,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// Returns the index of the entry in its list in [`Definitions`].
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A [`Stream`] of the [`Definitions`].
    StreamId;
    /// A [`Thread`] of the [`Definitions`].
    ThreadId;
    /// A [`Counter`] of the [`Definitions`].
    CounterId;
}

/// Numbers of recorded and lost operations. If [`Self::unaccounted`] returns 0, every loss is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Loss {
    /// Operations that were enqueued during the recording.
    pub issued: u64,
    /// Operations with a record that contains times.
    pub recorded: u64,
    /// Operations for which the recorder had no space.
    pub dropped: u64,
    /// Operations whose record contains no times, because the device's own buffers were full.
    pub zero_time: u64,
    /// Operations whose records were rejected because there was no memory for another buffer.
    pub refused: u64,
}

impl Loss {
    /// Returns the number of issued operations for which no other field accounts.
    pub fn unaccounted(&self) -> u64 {
        let known = [self.recorded, self.dropped, self.zero_time, self.refused];
        known.into_iter().fold(self.issued, u64::saturating_sub)
    }

    /// Returns the number of operations without a usable record.
    pub fn lost(&self) -> u64 {
        self.issued.saturating_sub(self.recorded)
    }
}

/// ID of merged entries. A trace contains up to 65 536 individual streams, threads and counters each. Further ones are
/// merged into an additional entry named `others`: one stream per device, one thread per process, and one counter per
/// device.
pub const OTHERS: i64 = i64::MIN;
const OTHERS_NAME: &str = "others";

/// Entries of one kind. Their number is bounded.
#[derive(Debug, Clone)]
struct Table<K, T> {
    entries: Vec<T>,
    places: HashMap<K, u32>,
}

impl<K, T> Default for Table<K, T> {
    fn default() -> Self {
        Self { entries: Vec::new(), places: HashMap::new() }
    }
}

impl<K: Hash + Eq, T> Table<K, T> {
    /// Maximum number of individual entries.
    const MAX: usize = 1 << 16;
    /// Maximum number of entries, including the `others` entries of all devices or processes.
    const MAX_WITH_OTHERS: usize = Self::MAX + (1 << 12);

    /// Returns the index of the entry for a key. If the key is new, `new` creates its entry. If the table is full, the
    /// key that `others` returns is used instead.
    fn place(&mut self, key: K, others: impl FnOnce() -> K, new: impl FnOnce(&K) -> T) -> u32 {
        let is_full = self.entries.len() >= Self::MAX;
        let key = if is_full && !self.places.contains_key(&key) { others() } else { key };
        let next = self.entries.len();
        match self.places.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(_) if next == Self::MAX_WITH_OTHERS => next as u32 - 1,
            Entry::Vacant(entry) => {
                self.entries.push(new(entry.key()));
                *entry.insert(next as u32)
            }
        }
    }
}

/// Maximum number of facts in a file, and maximum number of devices.
const MAX_FACTS: usize = 1 << 10;
const MAX_DEVICES: usize = 1 << 12;

/// Kinds of content that a reader omits from a trace or shortens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftOut {
    All,
    Timeless,
    End,
    Texts,
}

impl LeftOut {
    const ALL: [LeftOut; 4] = [LeftOut::All, LeftOut::Timeless, LeftOut::End, LeftOut::Texts];

    /// Returns the key of the fact that reports this kind.
    fn key(self) -> &'static str {
        match self {
            LeftOut::All => "none of the events is read",
            LeftOut::Timeless => "events without a time",
            LeftOut::End => "end of the file",
            LeftOut::Texts => "texts",
        }
    }

    /// Returns true if the omission makes the tables incomplete.
    fn is_lost(self) -> bool {
        !matches!(self, LeftOut::End | LeftOut::Texts)
    }
}

/// Content that the reader omitted from a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Omission {
    /// Description, with the number.
    pub text: String,
    /// True if the omission makes the tables incomplete, for example if a kernel has no time.
    pub is_lost: bool,
}

/// Definitions to which the records of a trace refer; their memory is bounded. See [`OTHERS`] and [`Names`].
#[derive(Debug, Clone, Default)]
pub struct Definitions {
    /// Interned strings.
    pub names: Names,
    /// Facts about the trace: the program, the host, the recorder, and the content that was omitted.
    pub about: BTreeMap<String, String>,
    /// Numbers of recorded and lost operations.
    pub loss: Loss,
    /// Devices, by ordinal.
    pub devices: BTreeMap<u32, Device>,
    streams: Table<(u32, i64), Stream>,
    threads: Table<(i64, i64), Thread>,
    counters: Table<(Option<u32>, String), Counter>,
}

impl Definitions {
    /// Returns the stream with the given ID on a device, adding it if necessary.
    pub fn stream(&mut self, device: u32, id: i64) -> StreamId {
        let others = || (device, OTHERS);
        let new = |&(device, id): &_| Stream { device, id, name: name_of(id) };
        StreamId(self.streams.place((device, id), others, new))
    }

    /// Returns the thread with the given ID in a process, adding it if necessary.
    pub fn thread(&mut self, process: i64, id: i64) -> ThreadId {
        let others = || (process, OTHERS);
        let new = |&(process, id): &_| Thread { process, id, name: name_of(id) };
        ThreadId(self.threads.place((process, id), others, new))
    }

    /// Adds a fact about the trace, within the limits on the number and length of facts.
    pub(crate) fn add_fact(&mut self, key: &str, value: &str) {
        if self.about.len() < MAX_FACTS || self.about.contains_key(key) {
            let (key, value) = (self.names.kept(key), self.names.kept(value));
            self.about.insert(key, value);
        }
    }

    /// Adds a device, within the limits on the number of devices and on the length of their names.
    pub(crate) fn add_device(&mut self, ordinal: u32, device: Device) {
        if self.devices.len() < MAX_DEVICES || self.devices.contains_key(&ordinal) {
            let name = self.names.kept(&device.name);
            self.devices.insert(ordinal, Device { name, ..device });
        }
    }

    /// Adds a fact about content that the reader omitted or shortened.
    pub(crate) fn add_left_out(&mut self, what: LeftOut, text: &str) {
        self.about.insert(what.key().to_owned(), text.to_owned());
    }

    /// Returns the content that was omitted or shortened while the trace was read. Kinds of events that no record can
    /// represent are not included if other events have records. [`Self::about`] lists these kinds.
    pub fn left_out(&self) -> Vec<Omission> {
        let said = |what: LeftOut| {
            let text = self.about.get(what.key())?;
            Some(Omission { text: format!("{}: {text}", what.key()), is_lost: what.is_lost() })
        };
        LeftOut::ALL.into_iter().filter_map(said).collect()
    }

    /// Adds facts about strings that were shortened or replaced. Returns the number of strings that were replaced.
    pub(crate) fn add_texts_left_out(&mut self) -> u64 {
        let (shortened, replaced) = self.names.not_kept();
        if shortened + replaced > 0 {
            let text = format!("{shortened} shortened to 16 KiB, {replaced} replaced by `others`");
            self.add_left_out(LeftOut::Texts, &text);
        }
        replaced
    }

    /// Returns the counter with the given name for a device or for the host, adding it if necessary.
    pub fn counter(&mut self, device: Option<u32>, name: &str, unit: &str) -> CounterId {
        let others = || (device, OTHERS_NAME.to_owned());
        let key = (device, name.to_owned());
        if let Some(place) = self.counters.places.get(&key) {
            return CounterId(*place);
        }
        let (key, unit) = ((device, self.names.kept(name)), self.names.kept(unit));
        let new = |(device, name): &(_, String)| Counter { device: *device, name: name.clone(), unit };
        CounterId(self.counters.place(key, others, new))
    }

    /// Names a stream.
    pub fn name_stream(&mut self, id: StreamId, name: &str) {
        if let Some(stream) = self.streams.entries.get_mut(id.index())
            && stream.id != OTHERS
            && stream.name != name
        {
            stream.name = self.names.kept(name);
        }
    }

    /// Names a thread.
    pub fn name_thread(&mut self, id: ThreadId, name: &str) {
        if let Some(thread) = self.threads.entries.get_mut(id.index())
            && thread.id != OTHERS
            && thread.name != name
        {
            thread.name = self.names.kept(name);
        }
    }

    /// Returns the streams, indexed by [`StreamId`].
    pub fn streams(&self) -> &[Stream] {
        &self.streams.entries
    }

    /// Returns the threads, indexed by [`ThreadId`].
    pub fn threads(&self) -> &[Thread] {
        &self.threads.entries
    }

    /// Returns the counters, indexed by [`CounterId`].
    pub fn counters(&self) -> &[Counter] {
        &self.counters.entries
    }
}

fn name_of(id: i64) -> String {
    if id == OTHERS { OTHERS_NAME.to_owned() } else { String::new() }
}
