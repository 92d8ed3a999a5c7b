//! What records refer to: texts, devices, streams, host threads, counters, and what the whole trace says of itself.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use crate::names::{Name, Names};

/// A device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Its name, for example `NVIDIA H200`.
    pub name: String,
    /// Bytes of memory; 0 when unknown.
    pub memory: u64,
    /// Peak bandwidth of its memory in bytes a second; 0 when unknown.
    pub bandwidth: u64,
    /// Multiprocessors; 0 when unknown.
    pub multiprocessors: u32,
    /// Compute capability, for example (9, 0); (0, 0) when unknown.
    pub capability: (u32, u32),
}

/// A stream of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stream {
    /// The ordinal of the device.
    pub device: u32,
    /// The id that the driver uses; -1 stands for the whole device.
    pub id: i64,
    /// The name that the program gave it; may be empty.
    pub name: String,
}

/// A thread of a host process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    /// The process.
    pub process: i64,
    /// The thread, by the system's id.
    pub id: i64,
    /// Its name; may be empty.
    pub name: String,
}

/// What the hardware counts of a kernel, as the average of some launches: see [`counters`](crate::counters).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KernelCounted {
    /// Bytes read from the device's memory.
    pub read: u64,
    /// Bytes written to the device's memory.
    pub written: u64,
    /// The share of accesses to the L2 cache that it served.
    pub l2_hits: Option<f64>,
    /// Achieved occupancy, as a share.
    pub occupancy: Option<f64>,
    /// The most frequent reasons for which warps did not issue instructions, with their shares; may be empty.
    pub stalls: Name,
}

/// Something that was sampled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counter {
    /// The ordinal of the device; `None` for the host.
    pub device: Option<u32>,
    /// What it is, for example `power`.
    pub name: String,
    /// The unit of its values, for example `W`.
    pub unit: String,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// Its place in the list of the [`Definitions`].
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

/// What became of the records. Nothing is lost unreported when [`Self::unaccounted`] is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Loss {
    /// Operations that were enqueued while recording.
    pub issued: u64,
    /// Those that have a record with times.
    pub recorded: u64,
    /// Those for which the recorder had no space.
    pub dropped: u64,
    /// Those whose record has no times: the device's own buffers were full.
    pub zero_time: u64,
    /// Those that were refused, because no memory was left for a buffer.
    pub refused: u64,
}

impl Loss {
    /// Operations that were issued and of which nothing else is known.
    pub fn unaccounted(&self) -> u64 {
        let known = [self.recorded, self.dropped, self.zero_time, self.refused];
        known.into_iter().fold(self.issued, u64::saturating_sub)
    }

    /// Operations without a usable record.
    pub fn lost(&self) -> u64 {
        self.issued.saturating_sub(self.recorded)
    }
}

/// The id of what a trace does not tell apart any more. It has 65 536 streams, threads and counters of its own each; what is
/// defined later is one more stream of its device, thread of its process or counter of its device, named `others`.
pub const OTHERS: i64 = i64::MIN;
const OTHERS_NAME: &str = "others";

/// Things of one kind, in bounded number.
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
    /// Entries of their own.
    const MOST: usize = 1 << 16;
    /// With those of the others of a device or process.
    const MOST_WITH_OTHERS: usize = Self::MOST + (1 << 12);

    /// The place of a key. `new` makes the entry of a new one; of that of `others` if the table is full.
    fn place(&mut self, key: K, others: impl FnOnce() -> K, new: impl FnOnce(&K) -> T) -> u32 {
        let is_full = self.entries.len() >= Self::MOST;
        let key = if is_full && !self.places.contains_key(&key) { others() } else { key };
        let next = self.entries.len();
        match self.places.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(_) if next == Self::MOST_WITH_OTHERS => next as u32 - 1,
            Entry::Vacant(entry) => {
                self.entries.push(new(entry.key()));
                *entry.insert(next as u32)
            }
        }
    }
}

/// Facts and devices that a file may have.
const MOST_FACTS: usize = 1 << 10;
const MOST_DEVICES: usize = 1 << 12;

/// What a reader leaves out of a trace, or shortens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftOut {
    All,
    Timeless,
    Begins,
    Ends,
    End,
    Texts,
}

impl LeftOut {
    const ALL: [LeftOut; 6] =
        [LeftOut::All, LeftOut::Timeless, LeftOut::Begins, LeftOut::Ends, LeftOut::End, LeftOut::Texts];

    /// The key among the facts.
    fn key(self) -> &'static str {
        match self {
            LeftOut::All => "none of the events is read",
            LeftOut::Timeless => "events without a time",
            LeftOut::Begins => "begins without an end",
            LeftOut::Ends => "ends without a begin",
            LeftOut::End => "end of the file",
            LeftOut::Texts => "texts",
        }
    }

    /// Whether tables lack something for it.
    fn is_lost(self) -> bool {
        !matches!(self, LeftOut::End | LeftOut::Texts)
    }
}

/// Something that was left out of a trace when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Omission {
    /// What, and how many.
    pub text: String,
    /// Whether the tables lack something for it, such as a kernel that has no time.
    pub is_lost: bool,
}

/// What the records of a trace refer to, in bounded memory: see [`OTHERS`] and [`Names`].
#[derive(Debug, Clone, Default)]
pub struct Definitions {
    /// The texts.
    pub names: Names,
    /// Facts about the trace: the program, the host, the recorder, what was left out.
    pub about: BTreeMap<String, String>,
    /// What became of the records.
    pub loss: Loss,
    /// The devices, by ordinal.
    pub devices: BTreeMap<u32, Device>,
    /// What was counted of kernels, by the ordinal of the device and the name. Files have it as arguments of the kernels.
    pub counted: HashMap<(u32, Name), KernelCounted>,
    streams: Table<(u32, i64), Stream>,
    threads: Table<(i64, i64), Thread>,
    counters: Table<(Option<u32>, String), Counter>,
}

impl Definitions {
    /// The stream `id` of a device.
    pub fn stream(&mut self, device: u32, id: i64) -> StreamId {
        let others = || (device, OTHERS);
        let new = |&(device, id): &_| Stream { device, id, name: name_of(id) };
        StreamId(self.streams.place((device, id), others, new))
    }

    /// The thread `id` of a process.
    pub fn thread(&mut self, process: i64, id: i64) -> ThreadId {
        let others = || (process, OTHERS);
        let new = |&(process, id): &_| Thread { process, id, name: name_of(id) };
        ThreadId(self.threads.place((process, id), others, new))
    }

    /// Adds a fact about the trace, and bounds how many there are and how long.
    pub(crate) fn add_fact(&mut self, key: &str, value: &str) {
        if self.about.len() < MOST_FACTS || self.about.contains_key(key) {
            let (key, value) = (self.names.kept(key), self.names.kept(value));
            self.about.insert(key, value);
        }
    }

    /// Adds a device, and bounds how many there are and how long their names.
    pub(crate) fn add_device(&mut self, ordinal: u32, device: Device) {
        if self.devices.len() < MOST_DEVICES || self.devices.contains_key(&ordinal) {
            let name = self.names.kept(&device.name);
            self.devices.insert(ordinal, Device { name, ..device });
        }
    }

    /// Says of a trace what its reader left out or shortened.
    pub(crate) fn add_left_out(&mut self, what: LeftOut, text: &str) {
        self.about.insert(what.key().to_owned(), text.to_owned());
    }

    /// What was left out of the trace or shortened when it was read. Kinds of events that no record stands for are not among
    /// it if there are others: [`Self::about`] has them.
    pub fn left_out(&self) -> Vec<Omission> {
        let said = |what: LeftOut| {
            let text = self.about.get(what.key())?;
            Some(Omission { text: format!("{}: {text}", what.key()), is_lost: what.is_lost() })
        };
        LeftOut::ALL.into_iter().filter_map(said).collect()
    }

    /// Says which texts were shortened or replaced; how many were replaced.
    pub(crate) fn add_texts_left_out(&mut self) -> u64 {
        let (shortened, replaced) = self.names.not_kept();
        if shortened + replaced > 0 {
            let text = format!("{shortened} shortened to 16 KiB, {replaced} replaced by `others`");
            self.add_left_out(LeftOut::Texts, &text);
        }
        replaced
    }

    /// What was counted of a kernel on a stream.
    pub(crate) fn counted_of(&self, kernel: Name, stream: StreamId) -> Option<KernelCounted> {
        if self.counted.is_empty() {
            return None;
        }
        let device = self.streams.entries.get(stream.index())?.device;
        self.counted.get(&(device, kernel)).copied()
    }

    /// A file has it among the arguments of a kernel.
    pub(crate) fn read_counted(&mut self, kernel: Name, stream: StreamId, counted: KernelCounted) {
        if counted != KernelCounted::default()
            && let Some(stream) = self.streams.entries.get(stream.index())
        {
            self.counted.insert((stream.device, kernel), counted);
        }
    }

    /// The counter `name` of a device, or of the host.
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

    /// The streams, by [`StreamId`].
    pub fn streams(&self) -> &[Stream] {
        &self.streams.entries
    }

    /// The threads, by [`ThreadId`].
    pub fn threads(&self) -> &[Thread] {
        &self.threads.entries
    }

    /// The counters, by [`CounterId`].
    pub fn counters(&self) -> &[Counter] {
        &self.counters.entries
    }
}

fn name_of(id: i64) -> String {
    if id == OTHERS { OTHERS_NAME.to_owned() } else { String::new() }
}
