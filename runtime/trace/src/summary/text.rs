//! The tables as text.

use super::rows::ratio;
use super::{Change, Diff, Row, Summary};

/// The widest name; longer ones lose their middle.
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
        out += &format!("{key}: {}\n", shortened(value));
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
            part(row.compute),
            part(row.transfer),
            overlap,
        ]
    });
    let head = ["device", "span", "busy", "idle", "kernels", "copies", "copies beside kernels"];
    out += &table("Devices", &head, devices.collect(), rows);
    let streams = summary.streams.iter().map(|row| {
        let name = format!("{} stream {} {}", row.device, row.stream, row.name);
        let parts = [row.busy, row.host_late, row.waiting, row.copying, row.other];
        let queue = [row.max_queue.to_string(), format!("{:.1}", row.average_queue)];
        let parts = parts.map(|part| percent(ratio(part as f64, row.span as f64)));
        [vec![name, time(row.span as f64)], parts.to_vec(), queue.to_vec()].concat()
    });
    let head = [
        "stream",
        "span",
        "busy",
        "idle: host late",
        "waiting for stream",
        "for copy",
        "other",
        "queue max",
        "average",
    ];
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
            out += &format!("{} kernels begin before their call: the clocks differ\n", launches.before_call);
        }
    }
    out += &by_name("Kernels", "kernel", &summary.kernels, rows);
    out += &by_name("Copies", "kind", &summary.transfers, rows);
    let ranges = summary.ranges.iter().map(|row| {
        let times = [time(row.host as f64), time(row.device as f64)];
        vec![
            row.name.clone(),
            row.count.to_string(),
            times[0].clone(),
            times[1].clone(),
            row.launches.to_string(),
        ]
    });
    out += &table("Ranges", &["range", "count", "host", "device", "launches"], ranges.collect(), rows);
    out += &by_name("Source lines", "line", &summary.lines, rows);
    out + &by_name("Calls", "function", &summary.calls, rows)
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
    for (title, changes) in [("Kernels", &diff.kernels), ("Copies", &diff.transfers)] {
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

/// A table; nothing when it has no rows.
fn table(title: &str, head: &[&str], all: Vec<Vec<String>>, rows: usize) -> String {
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

/// A text without line breaks, its middle left out where it is too long.
fn shortened(text: &str) -> String {
    let text: Vec<char> = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.len() <= WIDEST {
        return text.into_iter().collect();
    }
    let half = (WIDEST - 1) / 2;
    let (begin, end) = (text[..half].iter(), text[text.len() - half..].iter());
    begin.chain(&['…']).chain(end).collect()
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Nanoseconds in the unit that suits them.
fn time(nanoseconds: f64) -> String {
    let (unit, by) = match nanoseconds {
        time if time < 1e3 => ("ns", 1.0),
        time if time < 1e6 => ("us", 1e3),
        time if time < 1e9 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    let decimals = if by == 1.0 { 0 } else { 2 };
    format!("{:.decimals$} {unit}", nanoseconds / by)
}
