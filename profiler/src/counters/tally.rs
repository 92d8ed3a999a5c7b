//! [`Tally`]: totals of the counters per kernel.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use warpsmith_runtime::driver::counters::{Counted, Counter, CounterKind};
use warpsmith_trace::counters::{CounterDevice, CounterReport, KernelCounters, MetricValues, Stall};

/// Stall reason in CUPTI's reports that is not a stall: the warp issues an instruction.
const SELECTED: &str = "selected";

/// Kind of work that an operation enqueues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A kernel.
    Kernel,
    /// A graph.
    Graph,
    /// Any number of kernels, in an unknown order.
    Several,
}

/// Key under which the counters of an operation are summed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) device: u32,
    pub(super) what: What,
    pub(super) name: String,
    /// Symbol of a kernel.
    pub(super) symbol: Option<&'static str>,
    /// Source line of the operation.
    pub(super) line: Option<String>,
}

/// Totals of the counters. See the [module documentation](self).
#[derive(Default)]
pub(super) struct Tally {
    devices: Vec<(CounterDevice, Vec<Counter>)>,
    rows: HashMap<(u32, String), Row>,
    operations: u64,
    counted: u64,
    dropped: u64,
    not_counted: BTreeMap<String, u64>,
}

/// Totals of all operations with the same name.
#[derive(Default)]
struct Row {
    symbol: Option<&'static str>,
    line: Option<String>,
    launches: u64,
    /// Number of counted operations.
    operations: u64,
    /// Number of counted kernels.
    kernels: u64,
    /// Values of each counter, in the order of the device's list of counters.
    values: Vec<Values>,
}

#[derive(Clone, Copy)]
struct Values {
    count: u64,
    sum: f64,
    minimum: f64,
    maximum: f64,
}

impl Values {
    const NONE: Self = Self { count: 0, sum: 0.0, minimum: f64::INFINITY, maximum: f64::NEG_INFINITY };

    fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        (self.minimum, self.maximum) = (self.minimum.min(value), self.maximum.max(value));
    }

    fn average(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

impl Tally {
    /// Adds a device and its counters. The ordinal is enough to identify the device, because only one driver supports
    /// counters.
    pub(super) fn add_device(&mut self, device: CounterDevice, counters: Vec<Counter>) {
        self.devices.retain(|(known, _)| known.device != device.device);
        self.devices.push((device, counters));
    }

    /// Returns the number of operations that have been counted under this key.
    pub(super) fn counted(&self, key: &Key) -> u64 {
        self.rows.get(&(key.device, key.name.clone())).map_or(0, |row| row.operations)
    }

    fn row(&mut self, key: &Key, name: String) -> &mut Row {
        let row = self.rows.entry((key.device, name)).or_default();
        row.symbol = key.symbol;
        row.line = row.line.take().or_else(|| key.line.clone());
        row
    }

    /// Records that an operation was not counted, with the reason.
    pub(super) fn leave_out(&mut self, key: &Key, reason: &str) {
        self.operations += 1;
        self.row(key, key.name.clone()).launches += 1;
        *self.not_counted.entry(reason.to_owned()).or_default() += 1;
    }

    /// Records an operation that the options exclude. Such an operation is not listed in a row.
    pub(super) fn pass_over(&mut self) {
        self.operations += 1;
        *self.not_counted.entry("not selected by name".to_owned()).or_default() += 1;
    }

    /// Adds the counts of an operation.
    pub(super) fn add(&mut self, key: &Key, counted: &Counted) {
        let Counted { kernels, dropped } = counted;
        self.dropped += dropped;
        match (key.what, kernels.len()) {
            (_, 0) => return self.leave_out(key, "the counters saw no kernel"),
            (What::Kernel, 2..) => {
                return self.leave_out(key, "other code launched kernels on the device at the same time");
            }
            _ => {}
        }
        self.operations += 1;
        self.counted += 1;
        for (place, kernel) in kernels.iter().enumerate() {
            let name = match kernels.len() {
                1 => key.name.clone(),
                all => format!("{}, kernel {} of {all}", key.name, place + 1),
            };
            let row = self.row(key, name);
            row.launches += 1;
            row.operations += 1;
            row.kernels += 1;
            row.values.resize(kernel.len(), Values::NONE);
            for (values, value) in row.values.iter_mut().zip(kernel) {
                if let Some(value) = value {
                    values.add(*value);
                }
            }
        }
        if kernels.len() > 1 {
            // The operation as a whole has no counters of its own, but the limit on launches applies to it.
            let whole = self.row(key, key.name.clone());
            whole.launches += 1;
            whole.operations += 1;
        }
    }

    pub(super) fn report(&self) -> CounterReport {
        let mut kernels: Vec<KernelCounters> =
            self.rows.iter().map(|((device, name), row)| self.kernel(*device, name, row)).collect();
        let time = |kernel: &KernelCounters| kernel.time.unwrap_or(0.0) * kernel.launches as f64;
        kernels.sort_by(|a, b| {
            time(b).total_cmp(&time(a)).then_with(|| (a.device, &a.name).cmp(&(b.device, &b.name)))
        });
        let mut devices: Vec<CounterDevice> = self.devices.iter().map(|(device, _)| device.clone()).collect();
        devices.sort_by_key(|device| device.device);
        CounterReport {
            about: about(),
            devices,
            kernels,
            operations: self.operations,
            counted: self.counted,
            dropped: self.dropped,
            not_counted: self.not_counted.clone(),
            ..CounterReport::default()
        }
    }

    fn kernel(&self, device: u32, name: &str, row: &Row) -> KernelCounters {
        let of_device = self.devices.iter().find(|(about, _)| about.device == device);
        let (bandwidth, counters) =
            of_device.map_or((0, &[][..]), |(about, counters)| (about.bandwidth, &counters[..]));
        let known: Vec<(&Counter, &Values)> =
            counters.iter().zip(&row.values).filter(|(_, values)| values.count > 0).collect();
        let average = |kind: CounterKind| {
            known.iter().find(|(counter, _)| counter.kind == kind).and_then(|(_, values)| values.average())
        };
        let share = |kind: CounterKind| average(kind).map(|percent| percent / 100.0);
        let values = |values: &Values| MetricValues {
            average: values.sum / values.count as f64,
            minimum: values.minimum,
            maximum: values.maximum,
        };
        let mut kernel = KernelCounters {
            device,
            name: name.to_owned(),
            symbol: row.symbol.map(str::to_owned),
            line: row.line.clone(),
            launches: row.launches,
            counted: row.kernels,
            time: average(CounterKind::Duration),
            read: average(CounterKind::MemoryRead),
            written: average(CounterKind::MemoryWritten),
            of_peak: None,
            l2_hits: share(CounterKind::L2HitRate),
            occupancy: share(CounterKind::Occupancy),
            tensor: share(CounterKind::TensorActive),
            stalls: stalls(&known),
            metrics: known.iter().map(|(counter, of)| (counter.name.clone(), values(of))).collect(),
        };
        if bandwidth > 0 {
            kernel.of_peak = kernel.bandwidth().map(|achieved| achieved / bandwidth as f64);
        }
        kernel
    }
}

/// Returns the stall reasons, the most frequent one first.
fn stalls(known: &[(&Counter, &Values)]) -> Vec<Stall> {
    let cycles = known.iter().filter_map(|(counter, values)| match &counter.kind {
        CounterKind::Stall(reason) => Some((reason.as_str(), values.average()?)),
        _ => None,
    });
    let cycles: Vec<(&str, f64)> = cycles.collect();
    let all: f64 = cycles.iter().map(|(_, cycles)| cycles).sum();
    let waits = cycles.into_iter().filter(|(reason, cycles)| *reason != SELECTED && *cycles > 0.0);
    let mut stalls: Vec<Stall> = waits
        .map(|(reason, cycles)| Stall { reason: reason.to_owned(), cycles, share: cycles / all })
        .collect();
    stalls.sort_by(|a, b| b.cycles.total_cmp(&a.cycles).then_with(|| a.reason.cmp(&b.reason)));
    stalls
}

/// Returns facts about the program and the host that do not depend on the counts.
fn about() -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    facts.insert("recorder".to_owned(), concat!("warpsmith ", env!("CARGO_PKG_VERSION")).to_owned());
    let program = std::env::args_os().next();
    if let Some(name) = program.as_ref().and_then(|program| Path::new(program).file_name()) {
        facts.insert("program".to_owned(), name.to_string_lossy().into_owned());
    }
    facts.insert("process".to_owned(), std::process::id().to_string());
    facts
}
