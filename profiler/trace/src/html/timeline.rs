//! Timeline data in the form that the script of the page reads. A track consists of slices (in rows), points and
//! series, all stored as columns of integers.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::Value as Json;

use super::reduce::{self, List, MAX_SLICES, Piece, Place, Slice};
use crate::event::{Event, Key, Track as Shown, Value, Values, category};
use crate::names::Name;
use crate::record::Record;
use crate::trace::Trace;

/// Maximum number per page, applied separately to marks and waits, to counter values, and to tracks.
const MAX_POINTS: usize = 20_000;
const MAX_VALUES: usize = 100_000;
const MAX_TRACKS: usize = 500;
/// Maximum length of a string, in characters.
const LONGEST: usize = 1000;

/// Kinds of slices and points, by index.
const KINDS: [&str; 12] = [
    category::KERNEL,
    category::COPY,
    category::MEMSET,
    category::DRIVER,
    category::RUNTIME,
    category::LIBRARY,
    category::OVERHEAD,
    category::SYNC,
    category::RANGE,
    category::GRAPH,
    category::MARK,
    category::WAIT,
];

/// The timeline.
#[derive(Debug, Serialize)]
pub(super) struct Timeline {
    kinds: [&'static str; KINDS.len()],
    /// Start time of the trace, in nanoseconds.
    base: String,
    /// Duration of the trace, in nanoseconds.
    span: u64,
    names: Vec<String>,
    /// Arguments of slices. The first entry stands for no arguments.
    arguments: Vec<Json>,
    tracks: Vec<Track>,
}

/// Stream, thread or counter.
#[derive(Debug, Default, Serialize)]
struct Track {
    group: String,
    name: String,
    rows: Vec<Row>,
    /// Marks and waits.
    points: Row,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Series>,
}

/// Slices that do not overlap, ordered by start time. The columns are start times (as differences from the preceding
/// start), durations, names, kinds, arguments and flows.
#[derive(Debug, Default, Serialize)]
struct Row {
    s: Vec<u64>,
    d: Vec<u64>,
    n: Vec<u32>,
    k: Vec<usize>,
    a: Vec<u32>,
    f: Vec<u32>,
    /// Joined slices: the index of each joined slice, the number of original slices in it, and their total duration.
    joined: Vec<(usize, u64, u64)>,
}

#[derive(Debug, Serialize)]
struct Series {
    unit: String,
    /// Times, as differences from the preceding time.
    t: Vec<u64>,
    v: Vec<f64>,
}

/// Slices and points of a track before their number is reduced.
#[derive(Default)]
struct Lane {
    is_flat: bool,
    work: Vec<Slice>,
    syncs: Vec<Slice>,
    points: Vec<Slice>,
}

impl Timeline {
    /// Creates the timeline of a trace. Adds notes about omitted content to `notes`.
    pub(super) fn of(trace: &Trace, notes: &mut Vec<String>) -> Timeline {
        let base = trace.records().map(|record| record.start()).min().unwrap_or(0);
        let last = trace.records().map(|record| record.end()).max().unwrap_or(base);
        let mut builder = Builder::new(trace, base);
        let mut tracks = builder.lanes(notes);
        // The counters of a device are placed below its streams, and counters of the host at the end.
        for track in series(trace, base, notes) {
            let place = tracks.iter().rposition(|before| before.group == track.group);
            tracks.insert(place.map_or(tracks.len(), |place| place + 1), track);
        }
        Timeline {
            kinds: KINDS,
            base: base.to_string(),
            span: last.saturating_sub(base),
            names: builder.names,
            arguments: builder.arguments,
            tracks,
        }
    }
}

/// Data to which the slices of the page refer.
struct Builder<'a> {
    trace: &'a Trace,
    base: u64,
    names: Vec<String>,
    name_ids: HashMap<String, u32>,
    arguments: Vec<Json>,
    argument_ids: HashMap<String, u32>,
    flows: HashMap<u64, u32>,
    ranges: HashMap<u64, Name>,
    values: Values,
}

impl<'a> Builder<'a> {
    fn new(trace: &'a Trace, base: u64) -> Self {
        let ranges = trace.ranges.iter().filter(|range| range.id != 0);
        Builder {
            trace,
            base,
            names: Vec::new(),
            name_ids: HashMap::new(),
            arguments: vec![Json::Array(Vec::new())],
            argument_ids: HashMap::from([("[]".to_owned(), 0)]),
            flows: HashMap::new(),
            ranges: ranges.map(|range| (range.id, range.name)).collect(),
            values: Values::default(),
        }
    }

    /// Returns the tracks of streams and threads.
    fn lanes(&mut self, notes: &mut Vec<String>) -> Vec<Track> {
        let mut lanes = lanes(self.trace);
        if lanes.len() > MAX_TRACKS {
            notes.push(format!("{} tracks are omitted from the timeline.", lanes.len() - MAX_TRACKS));
            lanes.truncate(MAX_TRACKS);
        }
        let points: usize = lanes.iter().map(|(.., lane)| lane.points.len()).sum();
        let every = points.div_ceil(MAX_POINTS).max(1);
        if every > 1 {
            notes.push(format!("The timeline shows one in {every} of the {points} marks and waits."));
        }
        let laid_out: Vec<_> = lanes
            .into_iter()
            .map(|(group, name, mut lane)| {
                let mut rows = Vec::new();
                reduce::rows(lane.work, lane.is_flat, 0, &mut rows);
                let first = rows.len();
                reduce::rows(lane.syncs, true, first, &mut rows);
                lane.points.sort_unstable_by_key(|point| point.start);
                let points: Vec<Slice> = lane.points.into_iter().step_by(every).collect();
                (group, name, rows, points)
            })
            .collect();
        let length = reduce::length_to_join(laid_out.iter().flat_map(|(_, _, rows, _)| rows), MAX_SLICES);
        let mut joined = (0, 0);
        let mut tracks = Vec::new();
        for (group, name, rows, points) in laid_out {
            let rows = rows.iter().map(|row| self.row(reduce::join(row, length))).collect::<Vec<_>>();
            let points = self.row(reduce::join(&points, 0));
            for (_, count, _) in rows.iter().flat_map(|row| &row.joined) {
                joined = (joined.0 + count, joined.1 + 1);
            }
            tracks.push(Track { group, name, rows, points, series: None });
        }
        if length > 0 {
            notes.push(format!(
                "{} slices shorter than {} ns are merged with their neighbors into {}, which are hatched. The tables \
                 count each slice.",
                joined.0, length, joined.1
            ));
        }
        tracks
    }

    fn row(&mut self, pieces: impl Iterator<Item = Piece>) -> Row {
        let mut row = Row::default();
        let mut before = self.base;
        for piece in pieces {
            let Some(record) = record(self.trace, piece.record) else { continue };
            let event = Event::of(&record, std::mem::take(&mut self.values));
            row.s.push(piece.start.saturating_sub(before));
            before = piece.start;
            row.d.push(piece.end - piece.start);
            row.k.push(KINDS.iter().position(|kind| *kind == event.category).unwrap_or(0));
            row.n.push(self.name(event.label.text(&self.trace.definitions.names)));
            if piece.count > 1 {
                row.joined.push((row.a.len(), piece.count, piece.busy));
                row.a.push(0);
                row.f.push(0);
            } else {
                row.a.push(self.arguments(&event));
                row.f.push(self.flow(&record, &event));
            }
            self.values = event.values;
        }
        row
    }

    fn name(&mut self, text: &str) -> u32 {
        if let Some(id) = self.name_ids.get(text) {
            return *id;
        }
        let id = self.names.len() as u32;
        self.names.push(shortened(text));
        self.name_ids.insert(text.to_owned(), id);
        id
    }

    /// Returns the flow ID that a call shares with the work that it enqueued; 0 if there is no such work.
    fn flow(&mut self, record: &Record, event: &Event) -> u32 {
        let correlation = match record {
            Record::Wait(wait) => wait.correlation,
            _ => event.correlation,
        };
        if correlation == 0 {
            return 0;
        }
        let next = self.flows.len() as u32 + 1;
        *self.flows.entry(correlation).or_insert(next)
    }

    fn arguments(&mut self, event: &Event) -> u32 {
        let names = &self.trace.definitions.names;
        let mut arguments = Vec::new();
        for (key, value) in &event.values.0 {
            let shown = match (key, *value) {
                (Key::Id | Key::Parent | Key::Correlation, _) => continue,
                (Key::Range, Value::Uint(id)) => match self.ranges.get(&id) {
                    Some(name) => shortened(names.text(*name)).into(),
                    None => continue,
                },
                (Key::On, Value::Int(index)) => {
                    let stream = usize::try_from(index)
                        .ok()
                        .and_then(|index| self.trace.definitions.streams().get(index));
                    let Some(stream) = stream else { continue };
                    format!("{} of device {}", stream_name(stream), stream.device).into()
                }
                (Key::Color, Value::Uint(color)) => format!("#{:06x}", color & 0xff_ffff).into(),
                (Key::Address | Key::Node | Key::Event, Value::Uint(id)) => format!("{id:#x}").into(),
                (_, Value::Uint(value)) => value.into(),
                (_, Value::Int(value)) => value.into(),
                (_, Value::Float(value)) => value.into(),
                (_, Value::Text(name)) => shortened(names.text(name)).into(),
                (_, Value::Size([x, y, z])) => format!("{x} x {y} x {z}").into(),
            };
            arguments.push(Json::Array(vec![key.text().into(), shown]));
        }
        let arguments = Json::Array(arguments);
        let text = arguments.to_string();
        if let Some(id) = self.argument_ids.get(&text) {
            return *id;
        }
        let id = self.arguments.len() as u32;
        self.arguments.push(arguments);
        self.argument_ids.insert(text, id);
        id
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST - 1).chain(['…']).collect()
}

fn stream_name(stream: &crate::Stream) -> String {
    match stream.id {
        -1 => "whole device".to_owned(),
        id => format!("stream {id} {}", stream.name).trim_end().to_owned(),
    }
}

fn device_name(trace: &Trace, device: u32) -> String {
    let name = trace.definitions.devices.get(&device).map_or("", |device| &device.name);
    format!("Device {device} {name}").trim_end().to_owned()
}

/// Returns the slices and points of each track, with the group and the name of the track. Devices come first. Empty
/// tracks are omitted.
fn lanes(trace: &Trace) -> Vec<(String, String, Lane)> {
    let mut lanes: BTreeMap<Shown, Lane> = BTreeMap::new();
    let mut add = |track: Shown, list: List, index: usize, start: u64, end: u64| {
        let Ok(index) = u32::try_from(index) else { return };
        let slice = Slice { start, end: end.max(start), record: Place { list, index } };
        let lane = lanes.entry(track).or_default();
        lane.is_flat = matches!(track, Shown::Stream(_));
        match list {
            List::Marks | List::Waits => lane.points.push(slice),
            List::Syncs => lane.syncs.push(slice),
            _ => lane.work.push(slice),
        }
    };
    for (index, kernel) in trace.kernels.iter().enumerate() {
        add(Shown::Stream(kernel.stream), List::Kernels, index, kernel.start, kernel.end);
    }
    for (index, copy) in trace.transfers.iter().enumerate() {
        add(Shown::Stream(copy.stream), List::Transfers, index, copy.start, copy.end);
    }
    for (index, sync) in trace.syncs.iter().enumerate() {
        add(Shown::Stream(sync.stream), List::Syncs, index, sync.start, sync.end);
    }
    for (index, wait) in trace.waits.iter().enumerate() {
        add(Shown::Stream(wait.stream), List::Waits, index, wait.at, wait.at);
    }
    for (index, range) in trace.ranges.iter().enumerate() {
        add(Shown::Thread(range.thread), List::Ranges, index, range.start, range.end);
    }
    for (index, graph) in trace.graphs.iter().enumerate() {
        add(Shown::Thread(graph.thread), List::Graphs, index, graph.start, graph.end);
    }
    for (index, call) in trace.calls.iter().enumerate() {
        add(Shown::Thread(call.thread), List::Calls, index, call.start, call.end);
    }
    for (index, mark) in trace.marks.iter().enumerate() {
        add(Shown::Thread(mark.thread), List::Marks, index, mark.at, mark.at);
    }
    let definitions = &trace.definitions;
    let mut named: Vec<_> = lanes
        .into_iter()
        .map(|(track, lane)| match track {
            Shown::Stream(id) => {
                let stream = definitions.streams().get(id.index()).cloned().unwrap_or_default();
                let place = (0, i64::from(stream.device), stream.id);
                (place, device_name(trace, stream.device), stream_name(&stream), lane)
            }
            Shown::Thread(id) => {
                let thread = definitions.threads().get(id.index()).cloned().unwrap_or_default();
                let name = match thread.name.as_str() {
                    "" => format!("thread {}", thread.id),
                    name => name.to_owned(),
                };
                ((1, thread.process, thread.id), format!("Process {}", thread.process), name, lane)
            }
            Shown::Memory(_) | Shown::Counter(_) => unreachable!("no slice or point is there"),
        })
        .collect();
    named.sort_by_key(|(place, ..)| *place);
    named.into_iter().map(|(_, group, name, lane)| (shortened(&group), shortened(&name), lane)).collect()
}

fn record(trace: &Trace, Place { list, index }: Place) -> Option<Record> {
    let index = index as usize;
    Some(match list {
        List::Kernels => Record::Kernel(*trace.kernels.get(index)?),
        List::Transfers => Record::Transfer(*trace.transfers.get(index)?),
        List::Calls => Record::Call(*trace.calls.get(index)?),
        List::Syncs => Record::Sync(*trace.syncs.get(index)?),
        List::Ranges => Record::Range(*trace.ranges.get(index)?),
        List::Graphs => Record::Graph(*trace.graphs.get(index)?),
        List::Marks => Record::Mark(*trace.marks.get(index)?),
        List::Waits => Record::Wait(*trace.waits.get(index)?),
    })
}

/// Returns the counter tracks and the device memory tracks.
fn series(trace: &Trace, base: u64, notes: &mut Vec<String>) -> Vec<Track> {
    let mut all: BTreeMap<(String, String, String), Vec<(u64, f64)>> = BTreeMap::new();
    for memory in &trace.memory {
        let group = device_name(trace, memory.device);
        for (name, value) in [("memory allocated", memory.allocated), ("memory reserved", memory.reserved)] {
            let key = (group.clone(), name.to_owned(), "B".to_owned());
            all.entry(key).or_default().push((memory.at, value as f64));
        }
    }
    for sample in trace.samples.iter().filter(|sample| sample.value.is_finite()) {
        let counter = trace.definitions.counters().get(sample.counter.index()).cloned().unwrap_or_default();
        let group = counter.device.map_or_else(|| "Host".to_owned(), |device| device_name(trace, device));
        all.entry((group, counter.name, counter.unit)).or_default().push((sample.at, sample.value));
    }
    if all.len() > MAX_TRACKS {
        notes.push(format!("{} counters are omitted from the timeline.", all.len() - MAX_TRACKS));
    }
    let most = MAX_VALUES / all.len().clamp(1, MAX_TRACKS);
    let mut is_thinned = false;
    let mut tracks = Vec::new();
    for ((group, name, unit), mut values) in all.into_iter().take(MAX_TRACKS) {
        values.sort_by_key(|(at, _)| *at);
        is_thinned |= values.len() > most;
        let mut series = Series { unit, t: Vec::new(), v: Vec::new() };
        let mut before = base;
        for (at, value) in reduce::thin(values, most) {
            series.t.push(at - before);
            series.v.push(value);
            before = at;
        }
        let (group, name) = (shortened(&group), shortened(&name));
        tracks.push(Track { group, name, series: Some(series), ..Track::default() });
    }
    if is_thinned {
        notes.push(
            "For counters, the timeline shows the minimum and the maximum of each interval.".to_owned(),
        );
    }
    tracks
}
