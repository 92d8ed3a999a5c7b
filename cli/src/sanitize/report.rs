//! Reads the text that compute-sanitizer writes: one paragraph per report, each line after a prefix of equals signs.
//!
//! The first line of a paragraph states the error, and the following lines state where it occurred. A line is
//! classified by its words, not by its indentation, which differs between versions. A first line that is not recognized
//! becomes a finding with the same text, so that no report is lost. The summaries show whether all reports were read.

use std::path::Path;

use warpsmith_check::Frame;

use super::finding::{Access, Finding, Kind};
use super::place::{first_of, frame, host_frame, index};

/// Errors of calls on a context that a kernel fault has already destroyed.
const AFTER_A_FAULT: [&str; 8] = ["700", "710", "714", "715", "716", "717", "718", "719"];
/// First words of messages about the run itself.
const NOTES: [&str; 8] = [
    "Warning",
    "Error:",
    "Error launching",
    "Internal",
    "Target application",
    "Tracking kernels",
    "Unable to",
    "Failed to",
];

/// Content of a report.
#[derive(Debug, Default)]
pub struct Report {
    /// Distinct findings.
    pub findings: Vec<Finding>,
    /// Number of reports that were not written because they exceeded the limit.
    pub more: u64,
    /// Messages about the run itself.
    pub notes: Vec<String>,
    /// True if the program exited before it called CUDA.
    pub used_no_gpu: bool,
    /// Number of reports that were read.
    read: u64,
    /// Number of reports according to the summaries, or `None` if there is no summary.
    summary: Option<u64>,
}

/// The first line of a report and the lines that follow it.
struct Paragraph<'a> {
    head: &'a str,
    lines: Vec<&'a str>,
}

impl Report {
    /// Reads a report. Paths below `folder` become relative to it.
    pub fn read(text: &str, folder: &Path) -> Self {
        let mut report = Report::default();
        let mut paragraphs: Vec<Paragraph<'_>> = Vec::new();
        for line in text.lines().filter_map(content) {
            match paragraphs.last_mut() {
                Some(paragraph) if is_continuation(line) => paragraph.lines.push(line),
                _ if !line.is_empty() => paragraphs.push(Paragraph { head: line, lines: Vec::new() }),
                _ => {}
            }
        }
        paragraphs.iter().for_each(|paragraph| report.add(paragraph, folder));
        let ends_context =
            [Kind::OutOfBounds, Kind::Misaligned, Kind::Barrier, Kind::DeviceHeap, Kind::Other];
        if report.findings.iter().any(|finding| ends_context.contains(&finding.kind)) {
            report.findings.retain(|finding| !is_after_a_fault(finding));
        }
        report.findings.iter_mut().for_each(Finding::describe);
        report
    }

    /// Returns true if there is a summary, all reports that it counts were read, and compute-sanitizer did not fail.
    pub fn is_complete(&self) -> bool {
        self.summary.is_some_and(|summary| self.read + self.more >= summary)
            && !self.notes.iter().any(|note| note.starts_with("Internal"))
    }

    /// Returns the findings and their number as text.
    pub fn text(&self, tool: &str) -> String {
        let mut text: String = self.findings.iter().map(Finding::paragraph).collect();
        for note in &self.notes {
            text += &format!("compute-sanitizer: {note}\n");
        }
        text += &match self.findings.len() {
            0 => format!("warpsmith sanitize: {tool} found nothing\n"),
            1 => format!("warpsmith sanitize: 1 finding of {tool}\n"),
            count => format!("warpsmith sanitize: {count} findings of {tool}\n"),
        };
        if self.more > 0 {
            text += &format!("and {} more reports beyond the limit\n", self.more);
        }
        text
    }

    fn add(&mut self, paragraph: &Paragraph<'_>, folder: &Path) {
        let head = without_severity(paragraph.head);
        if let Some((_, count)) = paragraph.head.split_once("SUMMARY:") {
            self.add_summary(paragraph.head, count);
        } else if head.contains("first instrumented API call") {
            self.used_no_gpu = true;
        } else if head.contains("Race reported") {
            self.read += 1;
            self.add_races(head, &paragraph.lines, folder);
        } else if head == "COMPUTE-SANITIZER" {
            // The title.
        } else if kind(head) == Kind::Other && NOTES.iter().any(|note| paragraph.head.starts_with(note)) {
            self.notes.push(paragraph.head.to_owned());
        } else {
            self.read += 1;
            let finding = if head.contains("hazard detected") {
                hazard(head, &paragraph.lines, folder)
            } else {
                finding(head, &paragraph.lines, folder)
            };
            self.group(finding);
        }
    }

    fn add_summary(&mut self, head: &str, rest: &str) {
        let number = number(rest);
        if head.contains("not printed") {
            self.more += number;
        } else if head.contains("ERROR SUMMARY") || head.contains("RACECHECK SUMMARY") {
            *self.summary.get_or_insert(0) += number;
        }
    }

    /// Adds a report from racecheck: one finding per access that races with the first access.
    fn add_races(&mut self, head: &str, lines: &[&str], folder: &Path) {
        let text = head.split_once("between").map_or(head, |(_, rest)| rest);
        let (first, joined) = text.split_once(" and ").unwrap_or((text, ""));
        let others = lines.iter().filter_map(|line| line.strip_prefix("and "));
        let others = others.chain(Some(joined).filter(|joined| !joined.is_empty()));
        for other in others {
            let (place, hazards) = other.rsplit_once('[').unwrap_or((other, "1"));
            let access = racing(first, folder);
            let kernel = kernel_of(&access.frames);
            self.group(Finding {
                kind: Kind::Race,
                kernel,
                memory: "shared memory".to_owned(),
                access: Some(access),
                other: Some(racing(place, folder)),
                count: number(hazards),
                text: String::new(),
            });
        }
    }

    fn group(&mut self, finding: Finding) {
        match self.findings.iter_mut().find(|other| other.is_same(&finding)) {
            Some(same) => same.count += finding.count,
            None => self.findings.push(finding),
        }
    }
}

/// Returns the line without the prefix, or `None` if it has no prefix.
fn content(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("========")?;
    Some(rest.trim_start_matches('=').trim())
}

/// Returns true for a line that states where an error occurred.
fn is_continuation(line: &str) -> bool {
    let words = [
        "at ",
        "by ",
        "and ",
        "in ",
        "on ",
        "Address ",
        "Access ",
        "Device Frame",
        "Host Frame",
        "Saved host",
        "Write Thread",
        "Read Thread",
        "Atomic Thread",
        "Current Value",
        "Incoming Value",
        "The application may",
    ];
    words.iter().any(|word| line.starts_with(word))
}

/// Removes a severity such as `Error:` or `WARN:(Warp Level Programming)`.
fn without_severity(head: &str) -> &str {
    let (severity, rest) = head.split_once(':').unwrap_or(("", head));
    let is_severity = ["error", "warn", "warning", "info"].contains(&severity.to_lowercase().as_str());
    let rest = if is_severity { rest.trim_start() } else { head };
    rest.strip_prefix("(Warp Level Programming)").unwrap_or(rest).trim_start()
}

fn kind(head: &str) -> Kind {
    if head.starts_with("Invalid __") || head.starts_with("Potential invalid") {
        Kind::OutOfBounds
    } else if head.starts_with("Uninitialized") || head.contains("uninitialized memory access") {
        Kind::Uninitialized
    } else if head.starts_with("Misaligned") {
        Kind::Misaligned
    } else if head.contains("hazard detected") {
        Kind::Race
    } else if head.starts_with("Barrier error") {
        Kind::Barrier
    } else if head.starts_with("Leaked") {
        Kind::Leak
    } else if head.starts_with("Program hit") {
        Kind::ApiError
    } else if head.starts_with("Malloc/Free error") {
        Kind::DeviceHeap
    } else {
        Kind::Other
    }
}

/// Reads a report from memcheck, initcheck or synccheck.
fn finding(head: &str, lines: &[&str], folder: &Path) -> Finding {
    let mut kind = kind(head);
    let of = |word: &'static str| lines.iter().filter_map(move |line| line.strip_prefix(word)).map(str::trim);
    let of_frame = |word| of(word).map(|rest| rest.trim_start_matches([':', ' ']));
    let address = of("Address ").chain(of("Access at ")).chain(of("Access to ")).next();
    if kind == Kind::OutOfBounds && address.is_some_and(|address| address.contains("misaligned")) {
        kind = Kind::Misaligned;
    }
    let mut frames: Vec<Frame> = of("at ").map(|place| frame(place, folder)).collect();
    frames.extend(of_frame("Device Frame").map(|place| frame(place, folder)));
    // Older versions repeat the location of the access.
    frames.dedup();
    let kernel = kernel_of(&frames);
    let thread = lines.iter().find_map(|line| index(line, "thread"));
    let block = lines.iter().find_map(|line| index(line, "block"));
    if frames.is_empty() {
        frames =
            of_frame("Host Frame").map(|place| host_frame(place, folder)).filter(is_of_program).collect();
    }
    let operation = operation(kind, head);
    let access = Access { operation, block, thread, place: first_of(&frames), frames };
    let is_empty = access.frames.is_empty() && access.thread.is_none();
    let memory = memory(kind, head, address, of("and "));
    Finding {
        kind,
        kernel,
        memory,
        access: (!is_empty).then_some(access),
        other: None,
        count: 1,
        text: String::new(),
    }
}

/// Reads a racecheck report about one byte.
fn hazard(head: &str, lines: &[&str], folder: &Path) -> Finding {
    let accesses = lines.iter().filter(|line| line.contains(" Thread ")).map(|line| Access {
        block: index(head, "block"),
        thread: index(line, "Thread"),
        ..racing(line, folder)
    });
    let mut accesses = accesses.collect::<Vec<_>>().into_iter();
    // The accesses are listed in order of occurrence. The later one is shown first, as in `warpsmith check`.
    let (other, access) = (accesses.next(), accesses.next());
    let kernel = access.as_ref().map_or_else(String::new, |access| kernel_of(&access.frames));
    let memory = "shared memory".to_owned();
    Finding { kind: Kind::Race, kernel, memory, access, other, count: 1, text: String::new() }
}

/// Reads one side of a race: `Write access at PLACE`, `Read Thread (1,0,0) at PLACE`.
fn racing(text: &str, folder: &Path) -> Access {
    let (what, place) = text.trim().split_once(" at ").unwrap_or(("access", text));
    let operation = what.split(' ').next().unwrap_or(what).to_lowercase();
    Access { operation, block: None, thread: None, place: 0, frames: vec![frame(place, folder)] }
}

fn operation(kind: Kind, head: &str) -> String {
    let words = ["read", "write", "atomic"];
    let named = words.into_iter().find(|word| head.to_lowercase().split(' ').any(|other| other == *word));
    match kind {
        Kind::Barrier => "barrier",
        Kind::ApiError => "call",
        Kind::Leak => "allocation",
        _ => named.unwrap_or("access"),
    }
    .to_owned()
}

/// Describes the memory of a report, or the call with its error.
fn memory<'a>(
    kind: Kind,
    head: &str,
    address: Option<&str>,
    mut more: impl Iterator<Item = &'a str>,
) -> String {
    let head = head.trim_end_matches('.');
    match kind {
        Kind::OutOfBounds | Kind::Misaligned | Kind::Uninitialized => {
            let size = head.rsplit_once("of size ").map(|(_, size)| size.trim_end_matches("bytes").trim());
            let space = head.split("__").nth(1);
            let mut text = match (size, space) {
                (Some(size), Some(space)) => format!("{size} bytes of {space} memory"),
                _ => head.to_owned(),
            };
            if let Some(address) = address {
                let address = address.trim_end_matches('.').trim_end_matches(" is out of bounds");
                text += &format!(" at {}", address.trim_end_matches(" is misaligned"));
            }
            if let Some(nearest) = more.next() {
                text += &format!(", {}", nearest.strip_prefix("is ").unwrap_or(nearest));
            }
            text
        }
        Kind::Barrier => after(head, "detected").trim_start_matches(['.', ' ']).to_owned(),
        Kind::Leak => after(head, "Leaked").to_owned(),
        Kind::DeviceHeap => after(head, "encountered").trim_start_matches([':', ' ']).to_owned(),
        Kind::ApiError => {
            let (error, call) = head.split_once(" on CUDA API call to ").unwrap_or((head, ""));
            let error = after(error, "Program hit");
            if call.is_empty() { error.to_owned() } else { format!("{call}: {error}") }
        }
        Kind::Race | Kind::Other => head.to_owned(),
    }
}

/// Returns the text after a word, or all of the text if the word is missing.
fn after<'a>(text: &'a str, word: &str) -> &'a str {
    text.split_once(word).map_or(text, |(_, rest)| rest).trim()
}

/// Returns the outermost function of a stack.
fn kernel_of(frames: &[Frame]) -> String {
    frames.last().map_or_else(String::new, |frame| frame.function.clone())
}

/// Returns true for a host frame that belongs to neither the driver nor Rust's or Warpsmith's libraries.
fn is_of_program(frame: &Frame) -> bool {
    let foreign = ["cu", "core::", "std::", "alloc::", "warpsmith_", "cudarc::", "__", "/", "an unknown"];
    !foreign.iter().any(|start| frame.function.trim_start_matches('<').starts_with(start))
}

fn is_after_a_fault(finding: &Finding) -> bool {
    finding.kind == Kind::ApiError
        && AFTER_A_FAULT.iter().any(|code| finding.memory.contains(&format!("(error {code})")))
}

/// Returns the first number in `text`, or 0 if there is none. The number may contain commas.
fn number(text: &str) -> u64 {
    let digits =
        text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(|c| c.is_ascii_digit() || *c == ',');
    digits.filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests;
