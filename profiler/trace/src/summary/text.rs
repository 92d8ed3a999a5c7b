//! Tables as text.

use super::rows::ratio;
use super::{AllocationRow, Change, CounterRow, Diff, GraphRow, MemoryRow, RangeRow, Row, Summary, WaitRow};

/// Maximum width of a name. Longer names are shortened in the middle.
const WIDEST: usize = 60;

pub(super) fn text(summary: &Summary, rows: usize) -> String {
    let mut out = format!("{} records in {}\n", summary.records, time(summary.span as f64));
    let loss = summary.loss;
    if loss.issued > 0 {
        out += &format!(
            "{} operations: {} recorded, {} dropped, {} without times, {} refused, {} unaccounted\n",
            loss.issued,
            loss.recorded,
            loss.dropped,
            loss.zero_time,
            loss.refused,
            loss.unaccounted()
        );
    }
    for (key, value) in &summary.about {
        out += &format!("{}: {}\n", shortened(key), shortened(value));
    }
    if summary.related < summary.records {
        out += &format!(
            "Devices, streams, launches, launch-bound gaps and ranges show only the first {} records.\n",
            summary.related
        );
    }
    let devices = summary.devices.iter().map(|row| {
        let part =
            |part: u64| format!("{} ({})", time(part as f64), percent(ratio(part as f64, row.span as f64)));
        let name = format!("{} {}", row.device, row.name);
        let overlap = percent(ratio(row.overlap as f64, row.transfer as f64));
        vec![
            name,
            time(row.span as f64),
            part(row.busy),
            part(row.idle),
            part(row.launch_bound),
            part(row.compute),
            part(row.transfer),
            overlap,
        ]
    });
    let head = [
        "device",
        "span",
        "busy",
        "idle",
        "idle: launch-bound",
        "kernels",
        "copies",
        "copies beside kernels",
    ];
    out += &table("Devices", &head, devices.collect(), rows);
    // The queue depths are unknown if the trace contains no calls.
    let has_queue = summary.streams.iter().any(|row| row.max_queue > 0);
    let streams = summary.streams.iter().map(|row| {
        let name = format!("{} stream {} {}", row.device, row.stream, row.name);
        let parts = [row.busy, row.launch_bound, row.waiting, row.copying, row.other];
        let parts = parts.map(|part| percent(ratio(part as f64, row.span as f64)));
        let mut cells = [vec![name, time(row.span as f64)], parts.to_vec()].concat();
        if has_queue {
            cells.extend([row.max_queue.to_string(), format!("{:.1}", row.average_queue)]);
        }
        cells
    });
    let mut head =
        vec!["stream", "span", "busy", "idle: launch-bound", "waiting for stream", "for copy", "other"];
    if has_queue {
        head.extend(["queue max", "average"]);
    }
    out += &table("Streams", &head, streams.collect(), rows);
    let launches = &summary.launches;
    if launches.kernels > 0 {
        out += &format!(
            "\nLaunches\n{} kernels: {} shorter than 10 us, {} shorter than their call\n",
            launches.kernels, launches.short, launches.shorter_than_call
        );
        out += &format!(
            "delay from call to kernel: average {}, median {}, 99 % {}, longest {} ({} calls known)\n",
            time(launches.average_delay),
            time(launches.median_delay as f64),
            time(launches.delay_99 as f64),
            time(launches.max_delay as f64),
            launches.with_call
        );
        if launches.before_call > 0 {
            out += &format!("{} kernels start before their call: the clocks differ\n", launches.before_call);
        }
    }
    out += &by_name(
        "Launch-bound gaps: devices waited for work that the host enqueued late",
        "line or kernel",
        &summary.launch_bound,
        rows,
    );
    out += &by_name("Kernels", "kernel", &summary.kernels, rows);
    out += &by_name("Copies", "kind", &summary.transfers, rows);
    out += &ranges(summary, rows);
    out += &by_name("Source lines", "line", &summary.lines, rows);
    out += &graphs(summary, rows);
    out += &waits(summary, rows);
    out += &memory(summary, rows);
    out += &counters(summary, rows);
    out += &by_name("Calls", "function", &summary.calls, rows);
    out +=
        &by_name("Driver calls, most of them from the calls above", "function", &summary.driver_calls, rows);
    out + &by_name("Overhead", "kind", &summary.overhead, rows)
}

fn ranges(summary: &Summary, rows: usize) -> String {
    let row = |row: &RangeRow| {
        let times = [row.host, row.host_self, row.device, row.device_self, row.launch_bound];
        let [host, host_self, device, device_self, launch_bound] = times.map(|part| time(part as f64));
        let (count, launches) = (row.count.to_string(), row.launches.to_string());
        vec![row.name.clone(), count, host, host_self, device, device_self, launches, launch_bound]
    };
    let head = ["range", "count", "host", "self", "device", "self", "launches", "idle: launch-bound"];
    table("Ranges", &head, summary.ranges.iter().map(row).collect(), rows)
}

fn graphs(summary: &Summary, rows: usize) -> String {
    let row = |row: &GraphRow| {
        let each = |part: u64| time(ratio(part as f64, row.launches as f64));
        let or_none = |is_known: bool, text: String| if is_known { text } else { "-".to_owned() };
        vec![
            row.graph.to_string(),
            or_none(row.nodes > 0, row.nodes.to_string()),
            row.launches.to_string(),
            or_none(row.launches > 0, each(row.launch_time)),
            or_none(row.launches > 0, each(row.device)),
            row.ran.to_string(),
            time(row.device as f64),
            time(row.build_time as f64),
        ]
    };
    let head = ["graph", "nodes", "launches", "call", "device", "nodes that ran", "device, all", "capture"];
    table("Graphs: call and device time of one launch", &head, summary.graphs.iter().map(row).collect(), rows)
}

fn waits(summary: &Summary, rows: usize) -> String {
    let stream = |(device, stream): (u32, i64)| format!("{device} stream {stream}");
    let row = |row: &WaitRow| {
        let buffer = shortened(&row.buffer);
        vec![stream(row.stream), stream(row.on), buffer, shortened(&row.line), row.count.to_string()]
    };
    let head = ["stream", "waits for", "buffer", "line", "count"];
    table("Waits caused by buffers", &head, summary.waits.iter().map(row).collect(), rows)
}

fn memory(summary: &Summary, rows: usize) -> String {
    let row = |row: &MemoryRow| {
        let sizes = [row.bytes, row.peak_allocated, row.peak_reserved, row.allocated].map(bytes);
        let counts = [row.allocations, row.frees].map(|count| count.to_string());
        [vec![row.device.to_string()], counts.to_vec(), sizes.to_vec()].concat()
    };
    let head =
        ["device", "allocations", "frees", "allocated", "peak in use", "peak reserved", "in use at the end"];
    let devices = table("Memory", &head, summary.memory.iter().map(row).collect(), rows);
    let row = |row: &AllocationRow| {
        let line = if row.line.is_empty() { "unknown" } else { &row.line };
        vec![line.to_owned(), row.count.to_string(), bytes(row.bytes), bytes(row.live)]
    };
    let head = ["line", "count", "bytes", "not freed"];
    devices + &table("Allocations", &head, summary.allocations.iter().map(row).collect(), rows)
}

fn counters(summary: &Summary, rows: usize) -> String {
    let row = |row: &CounterRow| {
        let place = row.device.map_or_else(|| "host".to_owned(), |device| device.to_string());
        let values =
            [row.min, row.average, row.max].map(|value| format!("{value:.1} {}", shortened(&row.unit)));
        [vec![format!("{place} {}", row.name), row.samples.to_string()], values.to_vec()].concat()
    };
    let head = ["counter", "samples", "min", "average", "max"];
    table("Counters", &head, summary.counters.iter().map(row).collect(), rows)
}

pub(super) fn diff(diff: &Diff, rows: usize) -> String {
    let mut out = String::new();
    for (name, (old, new)) in [("span", diff.span), ("busy", diff.busy), ("idle", diff.idle)] {
        out += &format!(
            "{name}: {} -> {} ({})\n",
            time(old as f64),
            time(new as f64),
            change(old as f64, new as f64)
        );
    }
    let head = ["name", "count", "", "total", "", "average", "", "change"];
    let tables =
        [("Kernels", &diff.kernels), ("Copies", &diff.transfers), ("Ranges: time on devices", &diff.ranges)];
    for (title, changes) in tables {
        let row = |row: &Change| {
            let (count, total, average) = (row.count, row.total, row.average);
            vec![
                row.name.clone(),
                count.0.to_string(),
                format!("-> {}", count.1),
                time(total.0 as f64),
                format!("-> {}", time(total.1 as f64)),
                time(average.0),
                format!("-> {}", time(average.1)),
                change(total.0 as f64, total.1 as f64),
            ]
        };
        out += &table(title, &head, changes.iter().map(row).collect(), rows);
    }
    out
}

fn change(old: f64, new: f64) -> String {
    match (old > 0.0, new > 0.0) {
        (true, true) => format!("{:+.1} %", (new / old - 1.0) * 100.0),
        (true, false) => "gone".to_owned(),
        (false, true) => "new".to_owned(),
        (false, false) => "same".to_owned(),
    }
}

fn by_name(title: &str, what: &str, all: &[Row], rows: usize) -> String {
    let has_bytes = all.iter().any(|row| row.bytes > 0);
    let mut head = vec![what, "count", "total", "share", "average", "min", "max"];
    if has_bytes {
        head.extend(["GB/s", "of peak"]);
    }
    let row = |row: &Row| {
        let mut cells = vec![
            row.name.clone(),
            row.count.to_string(),
            time(row.total as f64),
            percent(row.share),
            time(row.average),
            time(row.min as f64),
            time(row.max as f64),
        ];
        if has_bytes {
            let or_none = |is_known: bool, text: String| if is_known { text } else { "-".to_owned() };
            cells.push(or_none(row.bytes > 0, format!("{:.1}", row.bandwidth / 1e9)));
            cells.push(or_none(row.of_peak > 0.0, percent(row.of_peak)));
        }
        cells
    };
    table(title, &head, all.iter().map(row).collect(), rows)
}

/// Formats a table. If the table has no rows, the result is empty.
pub(crate) fn table(title: &str, head: &[&str], all: Vec<Vec<String>>, rows: usize) -> String {
    if all.is_empty() {
        return String::new();
    }
    let left_out = all.len().saturating_sub(rows);
    let mut lines = vec![head.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>()];
    lines.extend(all.into_iter().take(rows));
    for line in &mut lines {
        line[0] = shortened(line[0].trim());
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = format!("\n{title}\n");
    for line in &lines {
        let mut text = format!("{:<width$}", line[0], width = widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            text += &format!("  {cell:>width$}");
        }
        out += text.trim_end();
        out.push('\n');
    }
    if left_out > 0 {
        out += &format!("… {left_out} more\n");
    }
    out
}

/// Replaces line breaks, and shortens long text in the middle.
pub(crate) fn shortened(text: &str) -> String {
    let text: Vec<char> = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.len() <= WIDEST {
        return text.into_iter().collect();
    }
    let half = (WIDEST - 1) / 2;
    let (begin, end) = (text[..half].iter(), text[text.len() - half..].iter());
    begin.chain(&['…']).chain(end).collect()
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats a number of bytes in a suitable unit.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (count.max(1).ilog2() / 10) as usize;
    match unit {
        0 => format!("{count} B"),
        _ => format!("{:.1} {}", count as f64 / (1_u64 << (10 * unit)) as f64, UNITS[unit]),
    }
}

/// Formats a time, given in nanoseconds, in a suitable unit.
pub(crate) fn time(nanoseconds: f64) -> String {
    let (unit, by) = match nanoseconds {
        time if time < 1e3 => ("ns", 1.0),
        time if time < 1e6 => ("us", 1e3),
        time if time < 1e9 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    let decimals = if by == 1.0 { 0 } else { 2 };
    format!("{:.decimals$} {unit}", nanoseconds / by)
}
