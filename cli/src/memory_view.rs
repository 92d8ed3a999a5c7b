//! Formats a memory snapshot's report as text for a terminal.
//!
//! No line is longer than the width, unless the width is too small for the numbers themselves.

use warpsmith::bench::command::output::escape;
use warpsmith::bench::size::format_bytes;
use warpsmith::snapshot::{BlockState, Frame};

use crate::memory_bar::{LEGEND, bar};
use crate::memory_report::{Event, Report, SegmentReport, Totals};

/// Maximum number of segments that have their own line.
const SEGMENTS: usize = 30;
/// Minimum width of a bar.
const NARROWEST: usize = 10;

/// Formats the report for `width` columns. If `all` is true, every segment has its own line.
pub fn text(report: &Report, width: usize, all: bool) -> String {
    let mut lines = totals(report);
    if !report.segments.is_empty() {
        lines.push(String::new());
        lines.extend(segments(report, width, all));
        lines.push(String::new());
        lines.extend(call_sites(report, width));
    }
    if !report.last_events.is_empty() {
        lines.push(String::new());
        lines.extend(history(report, width));
    }
    lines.into_iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn totals(report: &Report) -> Vec<String> {
    if report.segments.is_empty() {
        return vec!["The snapshot has no segments: no memory was reserved.".to_owned()];
    }
    let header =
        ["device", "reserved", "allocated", "active", "requested", "free", "free blocks", "largest free"];
    let row = |device: String, t: &Totals| {
        let bytes = [t.reserved, t.allocated, t.active, t.requested, t.free].map(format_bytes);
        let mut row = vec![device];
        row.extend(bytes);
        row.extend([t.free_blocks.to_string(), format_bytes(t.largest_free)]);
        row
    };
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(report.devices.iter().map(|device| row(device.device.to_string(), &device.totals)));
    if report.devices.len() > 1 {
        rows.push(row("all".to_owned(), &report.total));
    }
    aligned(&rows, &[0])
}

fn segments(report: &Report, width: usize, all: bool) -> Vec<String> {
    let shown = match report.segments.len() {
        count if all || count <= SEGMENTS => count,
        _ => SEGMENTS,
    };
    let (each, rest) = report.segments.split_at(shown);
    let header = ["device", "size", "used", "stream", "type", "pool", "expandable"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(each.iter().map(|segment| {
        vec![
            segment.device.to_string(),
            format_bytes(segment.totals.reserved),
            share(segment.totals.allocated, segment.totals.reserved),
            handle(segment.stream),
            segment.kind.name().to_owned(),
            pool(segment.pool),
            if segment.expandable { "yes" } else { "-" }.to_owned(),
        ]
    }));
    let mut spans: Vec<(u64, Vec<(u64, BlockState)>)> =
        each.iter().map(|segment| (segment.totals.reserved, segment.spans.clone())).collect();
    if !rest.is_empty() {
        let (sum, states) = grouped(rest);
        let used = states.first().map_or(0, |(bytes, _)| *bytes);
        let mut row = vec!["all".to_owned(), format_bytes(sum), share(used, sum)];
        row.extend(["-".to_owned(), "-".to_owned(), "-".to_owned(), "-".to_owned()]);
        rows.push(row);
        spans.push((sum, states));
    }
    let mut lines = aligned(&rows, &[3, 4, 5, 6]);
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0) + 2;
    let bar_width = width.saturating_sub(columns).max(NARROWEST);
    for (line, (size, spans)) in lines.iter_mut().skip(1).zip(&spans) {
        let pad = columns - line.chars().count();
        line.push_str(&format!("{:pad$}{}", "", bar(*size, spans, bar_width)));
    }
    let count = report.segments.len();
    let mut title = format!("{count} {}, the largest first; {LEGEND}", plural(count, "segment"));
    if !rest.is_empty() {
        let largest = rest.first().map_or(0, |segment| segment.totals.reserved);
        let last = format!("the last line sums up {} of at most {}", rest.len(), format_bytes(largest));
        lines.push(format!("{last}; --all shows each"));
    }
    title = fit(&title, width);
    lines.insert(0, title);
    lines
}

/// Returns the total bytes of several segments, and how many of these bytes are in each state.
fn grouped(segments: &[SegmentReport]) -> (u64, Vec<(u64, BlockState)>) {
    let sum = |of: fn(&Totals) -> u64| segments.iter().fold(0u64, |sum, s| sum.saturating_add(of(&s.totals)));
    let (allocated, active) = (sum(|t| t.allocated), sum(|t| t.active));
    let states = vec![
        (allocated, BlockState::ActiveAllocated),
        (active.saturating_sub(allocated), BlockState::ActivePendingFree),
        (sum(|t| t.free), BlockState::Inactive),
    ];
    (sum(|t| t.reserved), states)
}

fn call_sites(report: &Report, width: usize) -> Vec<String> {
    if report.call_sites.is_empty() && report.other_call_sites.sites == 0 {
        return vec!["No block is in use.".to_owned()];
    }
    let header = ["in use", "blocks", "asked for at"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(report.call_sites.iter().map(|site| {
        vec![format_bytes(site.bytes), site.blocks.to_string(), place(site.site.as_ref(), width)]
    }));
    let others = &report.other_call_sites;
    if others.sites > 0 {
        let name = format!("{} more {}; --top shows more", others.sites, plural(others.sites, "place"));
        rows.push(vec![format_bytes(others.bytes), others.blocks.to_string(), name]);
    }
    aligned(&rows, &[2]).iter().map(|line| fit(line, width)).collect()
}

fn history(report: &Report, width: usize) -> Vec<String> {
    let header = ["before end", "device", "size", "event", "address", "stream", "pool", "caused at"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(report.last_events.iter().map(|event| {
        vec![
            duration(event.us_before_end),
            event.device.to_string(),
            format_bytes(event.size),
            event.action.name().to_owned(),
            address(event),
            handle(event.stream),
            pool(event.pool),
            place(event.site.as_ref(), width),
        ]
    }));
    let shown = report.last_events.len();
    let mut lines =
        vec![format!("history: the last {shown} of {} {}", report.events, plural(report.events, "event"))];
    lines.extend(aligned(&rows, &[3, 4, 5, 6, 7]).iter().map(|line| fit(line, width)));
    lines
}

fn address(event: &Event) -> String {
    match (event.device_free, event.address) {
        (Some(free), _) => format!("{} free", format_bytes(free)),
        (None, Some(address)) if address > 0 => format!("{address:#x}"),
        _ => "-".to_owned(),
    }
}

/// Formats `file:line function`, without the file's leading folders if it is long.
fn place(frame: Option<&Frame>, width: usize) -> String {
    let Some(frame) = frame else { return "(not recorded)".to_owned() };
    let longest = (width / 3).max(20);
    let (filename, name) = (escape(&frame.filename), escape(&frame.name));
    let file = match filename.chars().count().checked_sub(longest) {
        None | Some(0) => filename.into_owned(),
        Some(over) => {
            let end: String = filename.chars().skip(over + 1).collect();
            let from = end.find('/').unwrap_or(0);
            format!("…{}", &end[from..])
        }
    };
    format!("{file}:{} {name}", frame.line)
}

fn pool(pool: (u64, u64)) -> String {
    match pool {
        (0, 0) => "-".to_owned(),
        (first, second) => format!("({first}, {second})"),
    }
}

/// Formats a stream handle: a small handle as a decimal number, any other as an address.
fn handle(stream: u64) -> String {
    if stream < 1 << 16 { stream.to_string() } else { format!("{stream:#x}") }
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.0} %", part as f64 / whole as f64 * 100.0) }
}

fn duration(us: i64) -> String {
    if us < 1_000 {
        format!("{us} µs")
    } else if us < 1_000_000 {
        format!("{:.1} ms", us as f64 / 1e3)
    } else {
        format!("{:.1} s", us as f64 / 1e6)
    }
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// Truncates the text to the width.
fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Formats rows with columns two spaces apart: columns in `left` are left-aligned, and all other columns are
/// right-aligned.
fn aligned(rows: &[Vec<String>], left: &[usize]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|i| rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| {
            if left.contains(&i) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith::snapshot::{Block, Segment, SegmentType, Snapshot, TraceAction, TraceEntry};

    use BlockState::{ActiveAllocated as A, ActivePendingFree as P, Inactive as F};

    const MIB: u64 = 1 << 20;

    fn frames(line: u32) -> Vec<Frame> {
        let frame =
            |filename: &str, line, name: &str| Frame { filename: filename.into(), line, name: name.into() };
        vec![
            frame("??", 0, "operator new"),
            frame("src/model.rs", line, "Layer::forward"),
            frame("m.rs", 1, "main"),
        ]
    }

    fn segment(device: u32, address: u64, blocks: &[(u64, BlockState)]) -> Segment {
        let mut at = address;
        let block = |&(size, state): &(u64, BlockState)| {
            let address = at;
            at += size;
            let requested_size = if state == F { 0 } else { size - 24 };
            Block { address, size, requested_size, state, frames: frames((size >> 18) as u32) }
        };
        let blocks: Vec<_> = blocks.iter().map(block).collect();
        let total_size = blocks.iter().map(|block| block.size).sum();
        Segment { device, address, total_size, blocks, ..Segment::default() }
    }

    fn sample() -> Snapshot {
        let mut small = segment(0, 0x1000, &[(MIB / 2, A), (MIB / 2, P), (MIB, F)]);
        small.segment_type = SegmentType::Small;
        small.stream = 0x5566_0000_1000;
        let mut graph = segment(0, 0x10_0000_0000, &[(8 * MIB, A), (12 * MIB, F)]);
        graph.segment_pool_id = (3, 0);
        graph.is_expandable = true;
        let event = |action, addr, size, time_us| TraceEntry {
            action,
            addr,
            size,
            stream: 0,
            time_us,
            frames: frames(7),
            pool_id: (0, 0),
        };
        let trace = vec![
            event(TraceAction::SegmentAlloc, 0x1000, 2 * MIB, 1_000_000),
            event(TraceAction::Alloc, 0x1000, MIB / 2, 3_400_000),
            event(TraceAction::FreeRequested, 0x1000, MIB / 2, 3_498_500),
            event(TraceAction::Oom, 3 * MIB, 80 << 30, 3_500_000),
        ];
        Snapshot { segments: vec![small, graph], device_traces: vec![trace], ..Snapshot::default() }
    }

    fn view(snapshot: &Snapshot, width: usize, all: bool) -> String {
        text(&Report::of(snapshot, 10, 3), width, all)
    }

    #[test]
    fn a_snapshot_looks_like_this() {
        let expected = "\
device  reserved  allocated  active  requested    free  free blocks  largest free
0         22 MiB    8.5 MiB   9 MiB    9.0 MiB  13 MiB            2        12 MiB

2 segments, the largest first; # allocated  ~ pending free  . free
device    size  used  stream          type   pool    expandable
     0  20 MiB  40 %  0               large  (3, 0)  yes         ##########...............
     0   2 MiB  25 %  0x556600001000  small  -       -           ######~~~~~~~............

 in use  blocks  asked for at
  8 MiB       1  src/model.rs:32 Layer::forward
512 KiB       1  src/model.rs:2 Layer::forward

history: the last 3 of 4 events
before end  device     size  event           address     stream  pool  caused at
  100.0 ms       0  512 KiB  alloc           0x1000      0       -     src/model.rs:7 Lay…
    1.5 ms       0  512 KiB  free_requested  0x1000      0       -     src/model.rs:7 Lay…
      0 µs       0   80 GiB  oom             3 MiB free  0       -     src/model.rs:7 Lay…
";
        let text = view(&sample(), 90, false);
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn an_empty_snapshot_says_so() {
        assert_eq!(
            view(&Snapshot::default(), 80, false),
            "The snapshot has no segments: no memory was reserved.\n"
        );
    }

    #[test]
    fn several_devices_have_a_line_each_and_one_for_all() {
        let mut snapshot = sample();
        snapshot.segments.push(segment(3, 0x1000, &[(6 * MIB, F)]));
        let text = view(&snapshot, 90, false);
        let firsts: Vec<_> =
            text.lines().take(4).map(|line| line.split_whitespace().next().unwrap()).collect();
        assert_eq!(firsts, ["device", "0", "3", "all"]);
        assert!(text.lines().nth(3).unwrap().contains("28 MiB"), "{text}");
    }

    #[test]
    fn many_segments_are_summed_up_unless_all_are_wanted() {
        let mut snapshot = Snapshot::default();
        for i in 0..40 {
            snapshot.segments.push(segment(0, i << 32, &[(MIB, A), ((40 - i) * MIB, F)]));
        }
        let bars =
            |text: &str| text.lines().filter(|line| line.ends_with('.') || line.ends_with('#')).count();
        let short = view(&snapshot, 100, false);
        assert_eq!(bars(&short), 31);
        assert!(short.contains("the last line sums up 10 of at most 11 MiB; --all shows each"), "{short}");
        let group = short.lines().find(|line| line.trim_start().starts_with("all")).unwrap();
        assert!(group.contains("65 MiB  15 %"), "{group}");
        let long = view(&snapshot, 100, true);
        assert_eq!(bars(&long), 40);
        assert!(!long.contains("sums up"), "{long}");
    }

    #[test]
    fn lines_keep_to_the_width() {
        let mut snapshot = sample();
        let long = "/a/very/long/path/of/folders/that/goes/on/and/on/until/it/does/not/fit/src/model.rs";
        snapshot.segments[0].blocks[0].frames[1].filename = long.into();
        for width in [80, 90, 120, 300] {
            let text = view(&snapshot, width, false);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width.max(81), "{widest} of {width}:\n{text}");
            assert!(text.contains("src/model.rs:2 "), "{text}");
        }
        assert!(view(&snapshot, 300, false).contains(long));
        assert!(view(&snapshot, 90, false).contains("…/"));
        assert!(!view(&snapshot, 1, false).is_empty());
    }

    #[test]
    fn places_that_are_not_shown_are_counted() {
        let report = Report::of(&sample(), 1, 0);
        let text = text(&report, 80, false);
        assert!(text.contains("512 KiB       1  1 more place; --top shows more"), "{text}");
        assert!(!text.contains("history"), "{text}");
    }

    #[test]
    fn names_of_a_snapshot_control_no_terminal() {
        let mut snapshot = sample();
        let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}\n";
        let frame = &mut snapshot.segments[0].blocks[0].frames[1];
        (frame.filename, frame.name) = (format!("a{evil}"), format!("f{evil}"));
        let text = view(&snapshot, 200, false);
        assert!(!text.contains(|c: char| c != '\n' && c.is_control()), "{text:?}");
        assert!(!text.contains('\u{202e}') && text.contains(r"a\u{1b}]0;owned\u{7}\u{1b}[2J"), "{text}");
        let narrow = view(&snapshot, 90, false);
        assert!(narrow.lines().all(|line| line.chars().count() <= 90), "{narrow}");
    }

    #[test]
    fn a_block_without_frames_is_counted_as_not_recorded() {
        let mut snapshot = sample();
        snapshot.segments[0].blocks[0].frames.clear();
        assert!(view(&snapshot, 80, false).contains("512 KiB       1  (not recorded)"));
    }
}
