//! Writing.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use super::describe::{self, Described};
use super::sequence::{Kind, Point, Sequence};
use super::{BOOTTIME, DESCRIPTORS, REALTIME, STATE_CLEARED, field, kind, track_uuid, uuid};
use crate::definitions::Definitions;
use crate::event::{Event, Key, Track, Value, Values, category};
use crate::lanes::Lanes;
use crate::proto;
use crate::record::Record;
use crate::sink::Sink;

/// Records that are sorted together; a writer holds no more of them.
const BATCH: usize = 1 << 16;
/// Bytes that are written at once.
const CHUNK: usize = 1 << 16;

/// Writes a trace, record by record, in bounded memory: it holds 65 536 records, and the definitions.
///
/// Records may come in any order; those of one track that are out of order by more than a batch may be shown on a track
/// below it. The file is complete after [`Self::finish`]; one that ends earlier can be read up to there.
///
/// ```
/// use warpsmith_trace::{Kernel, PerfettoWriter, Record, Sink, Trace};
///
/// let mut file = Vec::new();
/// let mut writer = PerfettoWriter::new(&mut file);
/// let name = writer.definitions().names.intern("saxpy");
/// let stream = writer.definitions().stream(0, 7);
/// writer.record(&Record::Kernel(Kernel { start: 5, end: 9, name, stream, ..Kernel::default() }))?;
/// writer.finish()?;
/// assert_eq!(Trace::from_bytes(&file).unwrap().trace.kernels[0].end, 9);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct PerfettoWriter<W> {
    out: W,
    definitions: Definitions,
    with_values: bool,
    batch: Vec<Record>,
    lanes: BTreeMap<Track, Lanes>,
    sequences: BTreeMap<u64, Sequence>,
    described: Described,
    has_begun: bool,
    bytes: Vec<u8>,
    values: Values,
}

impl<W: Write> PerfettoWriter<W> {
    /// Writes to `out`, in pieces of 64 KiB.
    pub fn new(out: W) -> Self {
        PerfettoWriter {
            out,
            definitions: Definitions::default(),
            with_values: true,
            batch: Vec::new(),
            lanes: BTreeMap::new(),
            sequences: BTreeMap::new(),
            described: Described::default(),
            has_begun: false,
            bytes: Vec::new(),
            values: Values::default(),
        }
    }

    /// Leaves out what a timeline can do without: all but names, times, and what ties work to its launch.
    pub fn plain(mut self) -> Self {
        self.with_values = false;
        self
    }

    /// Writes all of a trace, sorted as a whole.
    pub(crate) fn whole(mut self, definitions: &Definitions, mut records: Vec<Record>) -> io::Result<W> {
        self.definitions = definitions.clone();
        self.begin(records.iter().map(Record::start).min().unwrap_or(0));
        records.sort_by_key(sort_key);
        self.write_sorted(&records)?;
        drop(records);
        self.finish()
    }

    /// Writes the records that it holds, so that the file can be read up to here.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.flush_batch()?;
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        self.out.flush()
    }

    /// Writes what is left, and what became of the records.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush_batch()?;
        for sequence in self.sequences.values_mut() {
            sequence.end_slices(u64::MAX, &mut self.bytes);
        }
        // Names may have been given after the first records.
        self.described = Described::last();
        self.described.describe(&self.definitions, &mut self.bytes);
        self.out.write_all(&self.bytes)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes records that are sorted.
    fn write_sorted(&mut self, records: &[Record]) -> io::Result<()> {
        for record in records {
            self.write_record(record);
            if self.bytes.len() >= CHUNK {
                self.out.write_all(&self.bytes)?;
                self.bytes.clear();
            }
        }
        Ok(())
    }

    fn flush_batch(&mut self) -> io::Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.begin(batch.iter().map(Record::start).min().unwrap_or(0));
        batch.sort_by_key(sort_key);
        self.write_sorted(&batch)?;
        batch.clear();
        self.batch = batch;
        Ok(())
    }

    /// Describes what is new; the first time, sets the clocks to `time`.
    fn begin(&mut self, time: u64) {
        if !self.has_begun {
            self.has_begun = true;
            proto::message(&mut self.bytes, field::trace::PACKET, |packet| {
                proto::uint(packet, field::packet::SEQUENCE, DESCRIPTORS);
                proto::uint(packet, field::packet::SEQUENCE_FLAGS, STATE_CLEARED);
                proto::message(packet, field::packet::CLOCK_SNAPSHOT, |snapshot| {
                    for clock in [BOOTTIME, REALTIME] {
                        proto::message(snapshot, field::clocks::CLOCK, |out| {
                            proto::uint(out, field::clocks::ID, clock);
                            proto::uint(out, field::clocks::TIMESTAMP, time);
                        });
                    }
                });
            });
        }
        self.described.describe(&self.definitions, &mut self.bytes);
    }

    fn write_record(&mut self, record: &Record) {
        if let Record::Memory(memory) = record {
            self.described.allocator(memory.device, &self.definitions, &mut self.bytes);
        }
        let values = std::mem::take(&mut self.values);
        let mut event = Event::of(record, &self.definitions, self.with_values, values);
        let lane = match Event::is_slice(event.category) {
            true => {
                let is_flat = matches!(event.track, Track::Stream(_));
                self.lanes.entry(event.track).or_default().place(event.start, event.end, is_flat)
            }
            false => None,
        };
        let kind = match (event.category, lane) {
            (category::SAMPLE, _) => {
                if let Record::Sample(sample) = record {
                    self.count(track_uuid(event.track, 0), event.start, sample.value);
                }
                self.values = event.values;
                return;
            }
            (_, Some(_)) => Kind::Slice { end: event.end },
            (_, None) => {
                if Event::is_slice(event.category) {
                    event.values.0.push((Key::Duration, Value::Uint(event.end - event.start)));
                }
                Kind::Instant
            }
        };
        let lane = lane.unwrap_or(0) as u32;
        let uuid = self.sequence(event.track, lane);
        let names = &self.definitions.names;
        let point = Point {
            time: event.start,
            kind,
            category: event.category,
            label: event.label,
            correlation: event.correlation,
            values: &event.values,
        };
        if let Some(sequence) = self.sequences.get_mut(&uuid) {
            sequence.event(&point, names, &mut self.bytes);
        }
        if let Record::Memory(memory) = record {
            self.count(self::uuid(kind::ALLOCATED, 0, memory.device), memory.at, memory.allocated as f64);
            self.count(self::uuid(kind::RESERVED, 0, memory.device), memory.at, memory.reserved as f64);
        }
        self.values = event.values;
    }

    fn count(&mut self, uuid: u64, time: u64, value: f64) {
        self.begin_sequence(uuid);
        if let Some(sequence) = self.sequences.get_mut(&uuid) {
            sequence.count(time, value, &mut self.bytes);
        }
    }

    /// The uuid of a track, whose sequence has begun.
    fn sequence(&mut self, track: Track, lane: u32) -> u64 {
        let uuid = track_uuid(track, lane);
        if self.begin_sequence(uuid) && lane > 0 {
            describe::overlap(&self.definitions, track, lane, &mut self.bytes);
        }
        uuid
    }

    /// Whether the sequence is new.
    fn begin_sequence(&mut self, uuid: u64) -> bool {
        let id = self.sequences.len() as u64 + DESCRIPTORS + 1;
        let std::collections::btree_map::Entry::Vacant(entry) = self.sequences.entry(uuid) else {
            return false;
        };
        entry.insert(Sequence::new(id, uuid));
        true
    }
}

impl<W: Write> Sink for PerfettoWriter<W> {
    fn definitions(&mut self) -> &mut Definitions {
        &mut self.definitions
    }

    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.batch.push(*record);
        if self.batch.len() < BATCH { Ok(()) } else { self.flush_batch() }
    }
}

/// By time, so that the beginning of a file has the beginning of every track. Of what begins at the same time, threads come
/// before what they launch, where flows lead; on one track the longer first.
fn sort_key(record: &Record) -> (u64, Track, Reverse<u64>) {
    (record.start(), track(record), Reverse(record.end()))
}

fn track(record: &Record) -> Track {
    match record {
        Record::Kernel(record) => Track::Stream(record.stream),
        Record::Transfer(record) => Track::Stream(record.stream),
        Record::Sync(record) => Track::Stream(record.stream),
        Record::Wait(record) => Track::Stream(record.stream),
        Record::Call(record) => Track::Thread(record.thread),
        Record::Range(record) => Track::Thread(record.thread),
        Record::Mark(record) => Track::Thread(record.thread),
        Record::Graph(record) => Track::Thread(record.thread),
        Record::Memory(record) => Track::Memory(record.device),
        Record::Sample(record) => Track::Counter(record.counter),
    }
}
