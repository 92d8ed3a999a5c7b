//! Writer of Chrome's JSON.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::{
    CATEGORIES, FLOW, Facts, INSTANT, MARK, MEMORY, OF_DEVICE, OF_HOST, OURS, RANGES, RANK, SYNC_STREAM,
    SYNCS, TRANSFERS, WAIT, runtime_name,
};
use crate::definitions::{Definitions, StreamId, ThreadId};
use crate::event::{Event, Key, Track, Value, Values};
use crate::record::{Library, Record};
use crate::sink::Sink;

/// Number of bytes per write.
const CHUNK: usize = 1 << 16;
/// Offset between the track IDs of adjacent lanes of a stream.
const LANE: i64 = 1_000_000;
/// Maximum number of tracks per stream. More tracks would not help a reader.
const LANES: usize = 64;

/// Writes a trace as JSON, record by record; only the definitions are kept in memory. The file is complete after
/// [`Self::finish`] has been called.
///
/// ```
/// use warpsmith_trace::{ChromeWriter, Kernel, Record, Sink};
///
/// let mut file = Vec::new();
/// let mut writer = ChromeWriter::new(&mut file);
/// let name = writer.definitions().names.intern("saxpy");
/// writer.record(&Record::Kernel(Kernel { start: 5, end: 9, name, ..Kernel::default() }))?;
/// writer.finish()?;
/// assert!(String::from_utf8_lossy(&file).contains(r#""name":"saxpy""#));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct ChromeWriter<W> {
    out: W,
    definitions: Definitions,
    /// Base time to which all other times are relative; `None` before the first record.
    base: Option<u64>,
    has_events: bool,
    /// End time of the last slice on each track of a stream. Viewers drop slices that overlap on the same track. With
    /// programmatic dependent launch, kernels can overlap, so overlapping slices are written to separate tracks.
    lanes: BTreeMap<StreamId, Vec<u64>>,
    overlaps: BTreeSet<(i64, i64)>,
    bytes: Vec<u8>,
    values: Values,
}

impl<W: Write> ChromeWriter<W> {
    /// Creates a writer that writes to `out` in chunks of 64 KiB.
    pub fn new(out: W) -> Self {
        ChromeWriter {
            out,
            definitions: Definitions::default(),
            base: None,
            has_events: false,
            lanes: BTreeMap::new(),
            overlaps: BTreeSet::new(),
            bytes: Vec::new(),
            values: Values::default(),
        }
    }

    pub(crate) fn whole(mut self, definitions: &Definitions, mut records: Vec<Record>) -> io::Result<W> {
        self.definitions = definitions.clone();
        self.begin(records.iter().map(Record::start).min().unwrap_or(0));
        records.sort_by_key(|record| (record.start(), Reverse(record.end())));
        for record in records {
            self.record(&record)?;
        }
        self.finish()
    }

    /// Writes buffered records, so that the file is readable up to this point.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.write_out()?;
        self.out.flush()
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    /// Writes the definitions and the loss counters.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.begin(0);
        self.name_tracks()?;
        let definitions = &self.definitions;
        let facts = Facts {
            about: definitions.about.clone(),
            loss: definitions.loss,
            devices: definitions.devices.clone(),
        };
        let properties: Vec<_> = definitions
            .devices
            .iter()
            .map(|(ordinal, device)| {
                serde_json::json!({
                    "id": ordinal, "name": device.name, "totalGlobalMem": device.memory, "numSms": device.multiprocessors,
                    "computeMajor": device.capability.0, "computeMinor": device.capability.1,
                })
            })
            .collect();
        write!(self.bytes, "\n],\"deviceProperties\":")?;
        serde_json::to_writer(&mut self.bytes, &properties)?;
        write!(self.bytes, ",\n\"warpsmith\":")?;
        serde_json::to_writer(&mut self.bytes, &facts)?;
        self.bytes.extend_from_slice(b"}\n");
        self.flush()?;
        Ok(self.out)
    }

    fn begin(&mut self, base: u64) {
        if self.base.is_none() {
            self.base = Some(base);
            // Holistic Trace Analysis searches the lines of the file for the rank, with exactly this spacing.
            let rank =
                self.definitions.about.get(RANK).and_then(|rank| rank.parse::<u32>().ok()).unwrap_or(0);
            let head = format!(
                "{{\"schemaVersion\":1,\"distributedInfo\":{{\"rank\": {rank}}},\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":{base},\"traceName\":\"{OURS}\",\"traceEvents\":["
            );
            self.bytes.extend_from_slice(head.as_bytes());
        }
    }

    fn name_tracks(&mut self) -> io::Result<()> {
        let out = &mut self.bytes;
        let mut meta = |what: &str, process: i64, thread: i64, key: &str, value: serde_json::Value| {
            let head =
                format!("{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{process},\"tid\":{thread},\"ts\":0,");
            separate(&mut self.has_events, out);
            write!(out, "{head}\"args\":{{\"{key}\":{value}}}}}")
        };
        let mut processes = BTreeSet::new();
        for thread in self.definitions.threads() {
            if processes.insert(thread.process) {
                meta("process_name", thread.process, 0, "name", "host".into())?;
                meta("process_labels", thread.process, 0, "labels", "CPU".into())?;
            }
            if !thread.name.is_empty() {
                meta("thread_name", thread.process, thread.id, "name", thread.name.as_str().into())?;
            }
        }
        for (device, track) in std::mem::take(&mut self.overlaps) {
            meta("thread_name", device, track, "name", format!("stream {} overlap", track % LANE).into())?;
        }
        let mut devices = BTreeSet::new();
        for stream in self.definitions.streams() {
            let device = i64::from(stream.device);
            if devices.insert(device) {
                let name = self.definitions.devices.get(&stream.device).map_or("", |device| &device.name);
                meta("process_name", device, 0, "name", format!("device {device} {name}").trim().into())?;
                meta("process_labels", device, 0, "labels", format!("GPU {device}").into())?;
            }
            let name = format!("stream {} {}", stream.id, stream.name);
            meta("thread_name", device, stream.id, "name", name.trim().into())?;
        }
        Ok(())
    }

    /// Writes `{"ph":…,"cat":…,"name":…,"pid":…,"tid":…,"ts":…`, without the end of the object.
    fn head(
        &mut self,
        phase: u8,
        category: &str,
        name: &str,
        (process, thread): (i64, i64),
        time: u64,
    ) -> io::Result<()> {
        let base = self.base.unwrap_or(0);
        let out = &mut self.bytes;
        separate(&mut self.has_events, out);
        out.extend_from_slice(b"{\"ph\":\"");
        out.push(phase);
        out.extend_from_slice(b"\",\"cat\":");
        serde_json::to_writer(&mut *out, category)?;
        out.extend_from_slice(b",\"name\":");
        serde_json::to_writer(&mut *out, name)?;
        out.extend_from_slice(b",\"pid\":");
        int(out, process);
        out.extend_from_slice(b",\"tid\":");
        int(out, thread);
        out.extend_from_slice(b",\"ts\":");
        if time < base {
            out.push(b'-');
        }
        microseconds(out, time.abs_diff(base));
        Ok(())
    }

    fn thread(&self, id: ThreadId) -> (i64, i64) {
        self.definitions.threads().get(id.index()).map_or((0, 0), |thread| (thread.process, thread.id))
    }

    fn stream(&self, id: StreamId) -> (i64, i64) {
        self.definitions.streams().get(id.index()).map_or((0, 0), |stream| (stream.device.into(), stream.id))
    }

    fn write(&mut self, record: &Record, event: &Event) -> io::Result<()> {
        let mut shown = match event.track {
            Track::Thread(id) => self.thread(id),
            Track::Stream(id) => self.stream(id),
            Track::Memory(_) => (0, 0),
            Track::Counter(id) => {
                let device = self.definitions.counters().get(id.index()).and_then(|counter| counter.device);
                (device.map_or(0, i64::from), 0)
            }
        };
        let place = shown;
        if let Track::Stream(id) = event.track
            && Event::is_slice(event.category)
        {
            let lane = lane_of(self.lanes.entry(id).or_default(), event.start, event.end) as i64;
            if lane > 0 {
                shown.1 += lane * LANE;
                self.overlaps.insert(shown);
            }
        }
        let mut name = event.label.text(&self.definitions.names).to_owned();
        let (mut phase, mut kind) = (
            b'X',
            CATEGORIES.iter().find(|(ours, _)| *ours == event.category).map_or("", |(_, cat)| cat).to_owned(),
        );
        match record {
            Record::Transfer(transfer) => {
                name = TRANSFERS
                    .iter()
                    .find(|(kind, _)| *kind == transfer.kind)
                    .map_or("", |(_, name)| name)
                    .to_owned();
            }
            Record::Sync(sync) => {
                name =
                    SYNCS.iter().find(|(kind, _)| *kind == sync.kind).map_or("", |(_, name)| name).to_owned();
            }
            Record::Range(range) => {
                let own = self.definitions.names.text(range.category);
                if RANGES.contains(&own) {
                    own.clone_into(&mut kind);
                }
            }
            Record::Mark(_) => (phase, kind) = (b'i', MARK.to_owned()),
            Record::Wait(_) => (phase, kind) = (b'i', WAIT.to_owned()),
            Record::Memory(_) => (phase, kind, name) = (b'i', INSTANT.to_owned(), MEMORY.to_owned()),
            Record::Sample(sample) => {
                let counter =
                    self.definitions.counters().get(sample.counter.index()).cloned().unwrap_or_default();
                let of = if counter.device.is_some() { OF_DEVICE } else { OF_HOST };
                (phase, kind) = (b'C', of.to_owned());
                name = match counter.unit.as_str() {
                    "" => counter.name,
                    unit => format!("{} ({unit})", counter.name),
                };
            }
            Record::Call(call) if call.library == Library::Driver => {
                if let Some(theirs) = runtime_name(&name) {
                    theirs.clone_into(&mut name);
                }
            }
            Record::Kernel(_) | Record::Call(_) | Record::Graph(_) => {}
        }
        self.head(phase, &kind, &name, shown, event.start)?;
        match phase {
            b'X' => {
                self.bytes.extend_from_slice(b",\"dur\":");
                microseconds(&mut self.bytes, event.end - event.start);
            }
            b'i' => self.bytes.extend_from_slice(b",\"s\":\"t\""),
            _ => {}
        }
        self.bytes.extend_from_slice(b",\"args\":{");
        self.arguments(record, event, place)?;
        self.bytes.extend_from_slice(b"}}");
        if event.correlation != 0 {
            let (phase, bind): (u8, &[u8]) = match event.track {
                Track::Thread(_) => (b's', b""),
                _ => (b'f', b",\"bp\":\"e\""),
            };
            self.head(phase, FLOW, FLOW, shown, event.start)?;
            self.bytes.extend_from_slice(b",\"id\":");
            uint(&mut self.bytes, event.correlation);
            self.bytes.extend_from_slice(bind);
            self.bytes.push(b'}');
        }
        Ok(())
    }

    fn arguments(&mut self, record: &Record, event: &Event, (device, stream): (i64, i64)) -> io::Result<()> {
        let mut separator: &[u8] = b"\"";
        let waits_for = match record {
            Record::Wait(wait) => Some(self.stream(wait.on)),
            _ => None,
        };
        let names = &self.definitions.names;
        let out = &mut self.bytes;
        let mut put = |key: &str, value: Json<'_>| {
            out.extend_from_slice(separator);
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(b"\":");
            separator = b",\"";
            value.write(out)
        };
        if matches!(event.track, Track::Stream(_)) {
            put("device", Json::Int(device))?;
            // Holistic Trace Analysis treats every event with a stream as work of this stream.
            let is_wait = matches!(record, Record::Sync(_));
            put("stream", Json::Int(if is_wait { -1 } else { stream }))?;
            if is_wait {
                put(SYNC_STREAM, Json::Int(stream))?;
            }
        }
        if event.correlation != 0 {
            put("correlation", Json::Uint(event.correlation))?;
        }
        match record {
            Record::Kernel(kernel) => {
                let shared = u64::from(kernel.shared_static) + u64::from(kernel.shared_dynamic);
                put("shared memory", Json::Uint(shared))?;
            }
            Record::Transfer(transfer) if transfer.end > transfer.start => {
                let bandwidth = transfer.bytes as f64 / (transfer.end - transfer.start) as f64;
                put("memory bandwidth (GB/s)", Json::Float(bandwidth))?;
            }
            Record::Call(call) if call.library == Library::Driver => {
                let function = names.text(call.name);
                if runtime_name(function).is_some() {
                    put("function", Json::Text(function))?;
                }
            }
            Record::Memory(memory) => {
                put("Device Type", Json::Uint(1))?;
                put("Device Id", Json::Uint(memory.device.into()))?;
            }
            Record::Sample(sample) => {
                return put("value", Json::Float(sample.value));
            }
            _ => {}
        }
        if let Some((device, stream)) = waits_for {
            put("waits for device", Json::Int(device))?;
            put("waits for stream", Json::Int(stream))?;
        }
        for (key, value) in &event.values.0 {
            let key = match (record, key) {
                (_, Key::On) => continue,
                (Record::Memory(_), Key::Address) => "Addr",
                (Record::Memory(_), Key::Bytes) => "Bytes",
                (Record::Memory(_), Key::Allocated) => "Total Allocated",
                (Record::Memory(_), Key::Reserved) => "Total Reserved",
                (_, Key::Range | Key::Id) => "External id",
                (_, Key::Graph) => "graph id",
                (_, Key::Node) => "graph node id",
                (_, key) => key.text(),
            };
            let value = match *value {
                Value::Uint(value) => Json::Uint(value),
                Value::Int(value) => Json::Int(value),
                Value::Float(value) => Json::Float(value),
                Value::Text(name) => Json::Text(names.text(name)),
                Value::Size(size) => Json::Size(size),
            };
            put(key, value)?;
        }
        Ok(())
    }
}

impl<W: Write> Sink for ChromeWriter<W> {
    fn definitions(&mut self) -> &mut Definitions {
        &mut self.definitions
    }

    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.begin(record.start());
        let event = Event::of(record, std::mem::take(&mut self.values));
        self.write(record, &event)?;
        self.values = event.values;
        if self.bytes.len() < CHUNK { Ok(()) } else { self.write_out() }
    }
}

/// Returns the first track on which the slice does not overlap an earlier one. If all `LANES` tracks overlap the slice,
/// returns the first track.
fn lane_of(ends: &mut Vec<u64>, start: u64, end: u64) -> usize {
    if let Some(lane) = ends.iter().position(|last| *last <= start) {
        ends[lane] = end;
        lane
    } else if ends.len() < LANES {
        ends.push(end);
        ends.len() - 1
    } else {
        0
    }
}

/// Writes the separator between an event and the preceding one.
fn separate(has_events: &mut bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if *has_events { b",\n" } else { b"\n" });
    *has_events = true;
}

/// Value of an argument. `serde_json` writes the strings, but numbers are formatted here for speed, because every event
/// contains about a dozen of them.
enum Json<'a> {
    Uint(u64),
    Int(i64),
    Float(f64),
    Text(&'a str),
    Size([u32; 3]),
}

impl Json<'_> {
    fn write(self, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Json::Uint(value) => uint(out, value),
            Json::Int(value) => int(out, value),
            Json::Float(value) if value.is_finite() => write!(out, "{value:?}")?,
            // JSON cannot represent non-finite numbers.
            Json::Float(value) => write!(out, "\"{value:?}\"")?,
            Json::Text(text) => serde_json::to_writer(out, text)?,
            Json::Size(size) => {
                for (axis, side) in size.into_iter().enumerate() {
                    out.push(if axis == 0 { b'[' } else { b',' });
                    uint(out, side.into());
                }
                out.push(b']');
            }
        }
        Ok(())
    }
}

fn uint(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

fn int(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    uint(out, value.unsigned_abs());
}

/// Writes a time in nanoseconds as microseconds with three decimals.
fn microseconds(out: &mut Vec<u8>, nanoseconds: u64) {
    uint(out, nanoseconds / 1000);
    let part = (nanoseconds % 1000) as u16;
    out.extend([b'.', b'0' + (part / 100) as u8, b'0' + (part / 10 % 10) as u8, b'0' + (part % 10) as u8]);
}
