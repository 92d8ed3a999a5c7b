//! Findings: once for each pair of places, with the memory and the remedy in words, unless the source allows them.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use gpu_spec::ParamKind;

use super::finding::{Access, Finding, FindingKind};
use super::memory::Of;
use super::shadow::Record;
use super::{Accessed, Checker, Subject};

/// In a comment on the line of an access or the line before, followed by the reason: its findings are not reported.
pub const ALLOW: &str = "warpsmith-check: allow";

/// A pointer among the arguments of a launch.
pub(super) struct Argument {
    name: &'static str,
    start: usize,
    /// Bytes of an element, and their number; `None` for a raw pointer.
    elements: Option<(usize, usize)>,
}

/// The slices, views and pointers of a launch.
pub(super) fn arguments(launch: &Subject<'_>) -> Vec<Argument> {
    let mut found = Vec::new();
    let mut at = 0;
    for param in launch.kernel.params {
        let count = param.kind.machine_params();
        // SAFETY: `run`'s caller promises values that fit the parameters; of these the first is an address, and in those of
        // a slice the second a length.
        let word = |i: usize| unsafe { launch.args[at + i].cast::<usize>().read_unaligned() };
        match param.kind {
            ParamKind::Slice | ParamKind::SliceMut => {
                found.push(Argument {
                    name: param.name,
                    start: word(0),
                    elements: Some((param.size, word(1))),
                });
            }
            ParamKind::Value | ParamKind::Shared => {}
            _ if count == 1 => found.push(Argument { name: param.name, start: word(0), elements: None }),
            _ => {}
        }
        at += count;
    }
    found
}

impl Checker {
    /// Nothing of the kernel was checked.
    #[cold]
    pub(super) fn report_missing(&mut self) {
        let package = self.kernel.package;
        self.add(Finding {
            kind: FindingKind::NotInstrumented,
            kernel: self.kernel.name,
            memory: format!("crate `{package}` was compiled without instrumentation"),
            access: None,
            other: None,
            advice: advice(FindingKind::NotInstrumented, &Record::default(), None, false).to_owned(),
        });
    }

    #[cold]
    #[inline(never)]
    pub(super) fn report(
        &mut self,
        kind: FindingKind,
        number: u32,
        now: Record,
        old: Option<Record>,
        address: usize,
        access: &Accessed,
    ) {
        if !self.seen.insert((kind, now.place(), old.map_or(u16::MAX, |old| old.place()))) {
            return;
        }
        if self.full {
            self.more += 1;
            return;
        }
        let mut this = self.described(&now);
        if access.reads && access.writes {
            this.operation = if access.atomic { "atomic update" } else { "read and write" }.to_owned();
        }
        let other = old.map(|old| self.described(&old));
        if self.is_allowed(&this) || other.as_ref().is_some_and(|other| self.is_allowed(other)) {
            return;
        }
        let lines = |a: &Access, b: Option<&Access>| {
            [Some(a), b].map(|access| access.and_then(Access::place).cloned())
        };
        let own = lines(&this, other.as_ref());
        let is_same = |finding: &&Finding| {
            let [a, b] = match &finding.access {
                Some(access) => lines(access, finding.other.as_ref()),
                None => [None, None],
            };
            finding.kind == kind && (own == [a.clone(), b.clone()] || own == [b, a])
        };
        if self.findings.iter().any(|finding| is_same(&finding)) {
            return;
        }
        this.block = self.clocks.blocks[number as usize].index;
        let same_line = own[0].is_some() && own[0] == own[1];
        self.add(Finding {
            kind,
            kernel: self.kernel.name,
            memory: self.memory_at(address, access.bytes),
            advice: advice(kind, &now, old.as_ref(), same_line).to_owned(),
            access: Some(this),
            other,
        });
    }

    fn add(&mut self, finding: Finding) {
        if let Some(path) = &self.settings.report {
            // The launch fails with the finding, whether the file can be written or not.
            let file = OpenOptions::new().create(true).append(true).open(path);
            let _ = file.and_then(|mut file| file.write_all(format!("{}\n", finding.json()).as_bytes()));
        }
        self.findings.push(finding);
        self.full = self.findings.len() >= if self.settings.first { 1 } else { self.settings.limit };
    }

    fn described(&self, record: &Record) -> Access {
        let [width, height, _] = self.block;
        let [columns, rows, _] = self.grid;
        let (thread, block) = (record.thread(), record.block());
        let kind = record.kind();
        let operation = match (kind.atomic, kind.write) {
            (false, false) => "read",
            (false, true) => "write",
            (true, false) => "atomic read",
            (true, true) => "atomic write or update",
        };
        Access {
            operation: operation.to_owned(),
            block: [block % columns, block / columns % rows, block / columns / rows],
            thread: [thread % width, thread / width % height, thread / width / height],
            frames: self.places.frames(record.place(), &self.settings.root),
        }
    }

    /// Whether a comment at the place allows what happens there, with a reason.
    fn is_allowed(&self, access: &Access) -> bool {
        let Some(place) = access.place().filter(|place| place.line != 0) else { return false };
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let Some(text) = read(&self.settings.root.join(&place.file)).or_else(|| read(Path::new(&place.file)))
        else {
            return false;
        };
        let own = place.line as usize - 1;
        let lines = text.lines().skip(own.saturating_sub(1)).take(if own == 0 { 1 } else { 2 });
        lines
            .filter_map(|line| line.split_once("//")?.1.split_once(ALLOW))
            .any(|(_, reason)| reason.chars().any(char::is_alphanumeric))
    }

    /// The memory at an address, as the kernel's author knows it.
    fn memory_at(&self, address: usize, bytes: usize) -> String {
        let access = if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") };
        let named = self.arguments.iter().find_map(|argument| {
            let (size, len) = argument.elements?;
            let offset = address.checked_sub(argument.start)?;
            (size != 0 && offset < size * len).then(|| {
                let within = match offset % size {
                    0 => String::new(),
                    byte => format!(", byte {byte}"),
                };
                format!("{access} at `{}[{}]`{within}", argument.name, offset / size)
            })
        });
        if let Some(named) = named {
            return named;
        }
        let index = |offset: usize| match bytes {
            2 | 4 | 8 | 16 if offset.is_multiple_of(bytes) => {
                format!(", index {} in elements of {bytes}", offset / bytes)
            }
            _ => String::new(),
        };
        let Some(region) = self.regions.find(address) else {
            let below = self
                .arguments
                .iter()
                .filter(|argument| argument.elements.is_none() && argument.start <= address);
            if let Some(argument) = below.max_by_key(|argument| argument.start) {
                let offset = address - argument.start;
                return format!(
                    "{access} at byte {offset}{} from pointer `{}`",
                    index(offset),
                    argument.name
                );
            }
            return format!("{access} at address {address:#x}");
        };
        let size = region.end - region.start;
        let what = match region.of {
            Of::Shared => format!("a shared array of {size} bytes"),
            Of::Buffer if region.is_freed() => format!("a freed buffer of {size} bytes"),
            Of::Buffer => format!("a buffer of {size} bytes"),
        };
        let pointer =
            self.arguments.iter().find(|argument| (region.start..region.end).contains(&argument.start));
        let pointer = pointer.map_or_else(String::new, |argument| format!(", argument `{}`", argument.name));
        if address < region.start {
            return format!(
                "{access} at {} bytes before the start of {what}{pointer}",
                region.start - address
            );
        }
        let offset = address - region.start;
        if address + bytes > region.end {
            let beyond = (address + bytes - region.end).min(bytes);
            return format!(
                "{access} at byte {offset}{}, {beyond} of them beyond the end of {what}{pointer}",
                index(offset)
            );
        }
        format!("{access} at byte {offset}{} of {what}{pointer}", index(offset))
    }
}

/// What would be right.
fn advice(kind: FindingKind, now: &Record, old: Option<&Record>, same_line: bool) -> &'static str {
    let atomics = now.kind().atomic || old.is_some_and(|old| old.kind().atomic);
    match kind {
        FindingKind::Race => match old {
            Some(_) if atomics => {
                "one access is atomic, the other is not: make both atomic, or order them by a barrier, or by release and acquire"
            }
            _ if same_line => {
                "several threads use the same element at this place: use an atomic operation, or give each thread elements of its own"
            }
            Some(old) if old.block() != now.block() => {
                "blocks run in any order: use an atomic operation on the memory; or order the accesses by an atomic with release \
                 and acquire, by a fence on both sides of a relaxed one, by cluster::sync, or by grid::sync in a cooperative launch"
            }
            Some(old) if old.thread() / 32 == now.thread() / 32 => {
                "threads of a warp do not run in step: call warp::sync_warp or thread::sync_threads between the accesses"
            }
            _ => "call thread::sync_threads between the accesses",
        },
        FindingKind::NarrowScope => "the threads are of different blocks, so the atomic needs scope::Device",
        FindingKind::OutOfBounds => {
            "compare the index with the length before the access, or use a slice or a view"
        }
        FindingKind::Freed => "keep the buffer until the launch is done",
        FindingKind::Uninitialized => {
            "write the memory before it is read; if another thread writes it, a barrier between the two is missing"
        }
        FindingKind::Misaligned => {
            "a GPU stops at such an access: use an address that is a multiple of the size, or `read_unaligned`"
        }
        FindingKind::NotInstrumented => {
            "run the program by `warpsmith check`; the crate has to depend on gpu-std or warpsmith by that name"
        }
    }
}
