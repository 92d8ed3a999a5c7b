//! Findings. There is one finding for each pair of source locations, unless a comment in the source suppresses it. A
//! finding describes the memory and the remedy.

use std::mem::MaybeUninit;
use std::path::Path;

use gpu_spec::{Extents2, Extents3, ParamKind, TensorMapData, TensorMapSpec};

use gpu_spec::finding::{Access, Finding, FindingKind};

use super::memory::{FILL, Of, Regions};
use super::shadow::Record;
use super::touched::STREAM_ADVICE;
use super::{Accessed, Checker, Subject, collect};
use crate::shared::POISON;

/// Marker that suppresses findings. It must be in a comment on the line of an access or on the line before it, and must
/// be followed by the reason.
pub const ALLOW: &str = "warpsmith-check: allow";

/// A pointer among a launch's arguments.
pub(super) struct Argument {
    name: &'static str,
    start: usize,
    /// Elements of a slice or view; `None` for a raw pointer.
    elements: Option<Elements>,
}

impl Argument {
    /// Returns true if the pointer is known to refer to memory.
    pub fn has_memory(&self) -> bool {
        self.elements.as_ref().is_none_or(|elements| elements.span != 0)
    }
}

struct Elements {
    /// Size of an element, in bytes.
    size: usize,
    /// Number of elements from the first to the last, including gaps between rows.
    span: usize,
    /// Row stride in elements, for views in two and three dimensions.
    row_stride: Option<usize>,
    /// Plane stride in elements, for views in three dimensions.
    plane_stride: Option<usize>,
}

impl Elements {
    /// Returns the name of an element, with the indices that the kernel's source uses.
    fn name(&self, argument: &str, index: usize) -> String {
        match (self.row_stride, self.plane_stride) {
            (Some(row_stride), Some(plane_stride)) if plane_stride != 0 => {
                let (z, within) = (index / plane_stride, index % plane_stride);
                let (x, y) = (within % row_stride, within / row_stride);
                format!("`{argument}[[{z}, {y}, {x}]]` (plane {z}, row {y}, column {x})")
            }
            (Some(row_stride), _) if row_stride != 0 => {
                let (x, y) = (index % row_stride, index / row_stride);
                format!("`{argument}[[{y}, {x}]]` (row {y}, column {x})")
            }
            _ => format!("`{argument}[{index}]`"),
        }
    }
}

/// Returns the slices, views and pointers of a launch, including pointers in structs, if they refer to one of the
/// launch's buffers.
pub(super) fn arguments(launch: &Subject<'_>, regions: &Regions) -> Vec<Argument> {
    let mut found = Vec::new();
    let mut at = 0;
    for param in launch.kernel.params {
        let count = param.kind.ptx_param_count();
        let (name, size) = (param.name, param.size);
        // SAFETY: the caller of `run` guarantees that the values match the parameters, and `offset` is within the
        // value. Values may have padding, so words are copied as possibly uninitialized.
        let word = |offset: usize| unsafe {
            launch.args[at].cast::<u8>().add(offset).cast::<MaybeUninit<usize>>().read_unaligned()
        };
        // SAFETY: all kinds except values start with an address.
        let start = || unsafe { word(0).assume_init() };
        let second = launch.args.get(at + 1).copied().unwrap_or_default();
        // SAFETY: the second field of a slice is its length, and the second field of a view contains its extents.
        let elements = unsafe {
            match param.kind {
                ParamKind::Value
                | ParamKind::Shared
                | ParamKind::Pointer
                | ParamKind::PointerMut
                | ParamKind::TensorMap => None,
                ParamKind::Slice | ParamKind::SliceMut => {
                    let span = second.cast::<usize>().read_unaligned();
                    Some(Elements { size, span, row_stride: None, plane_stride: None })
                }
                ParamKind::Slice2 | ParamKind::SliceMut2 => {
                    let extents = second.cast::<Extents2>().read_unaligned();
                    let row_stride = Some(extents.row_stride() as usize);
                    Some(Elements { size, span: extents.span(), row_stride, plane_stride: None })
                }
                ParamKind::Slice3 | ParamKind::SliceMut3 => {
                    let extents = second.cast::<Extents3>().read_unaligned();
                    let row_stride = Some(extents.row_stride() as usize);
                    let plane_stride = Some(extents.plane_stride() as usize);
                    Some(Elements { size, span: extents.span(), row_stride, plane_stride })
                }
            }
        };
        match param.kind {
            ParamKind::Shared => {}
            ParamKind::Value => {
                let words = (0..(size + 1).saturating_sub(size_of::<usize>())).step_by(size_of::<usize>());
                // A word that equals an address in a buffer is treated as a pointer to that buffer, because any other
                // number would match only by chance.
                let pointers =
                    words.map(|offset| freeze(word(offset))).filter(|&at| regions.is_in_buffer(at));
                found.extend(pointers.map(|start| Argument { name, start, elements: None }));
            }
            ParamKind::TensorMap => {
                // SAFETY: as above; a map occupies 128 bytes at a multiple of 64.
                let map = unsafe { launch.args[at].cast::<TensorMapData>().read_unaligned() };
                let start = TensorMapSpec::decode(&map).map(|map| map.address as usize);
                found.extend(start.map(|start| Argument { name, start, elements: None }));
            }
            _ => found.push(Argument { name, start: start(), elements }),
        }
        at += count;
    }
    found
}

/// Freezes a word of a value. If the word is padding, the result is arbitrary.
fn freeze(word: MaybeUninit<usize>) -> usize {
    let mut at = word;
    // SAFETY: the compiler must assume that the assembly writes the word, which makes the word initialized; the
    // assembly has no other effect.
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) &raw mut at, options(nostack, preserves_flags));
        at.assume_init()
    }
}

impl Checker {
    /// Reports that no access of the kernel was checked.
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
        let holds_fill = |at: usize| self.regions.find(at).is_some_and(|region| region.is_new);
        if kind == FindingKind::Uninitialized && holds_fill(address) && has_value(address, access.bytes) {
            return;
        }
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
        if self.reports {
            collect::report(&finding);
        }
        self.findings.push(finding);
        self.full = self.findings.len() >= if self.settings.first { 1 } else { self.settings.limit };
    }

    fn described(&self, record: &Record) -> Access {
        let frames = self.places.frames(record.place(), &self.settings.root);
        Access { frames, ..self.described_without_place(record) }
    }

    pub(super) fn described_without_place(&self, record: &Record) -> Access {
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
            frames: Vec::new(),
        }
    }

    /// Returns true if a comment at the source location suppresses the finding and states a reason.
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

    /// Returns a description of the memory at an address, in the terms of the kernel's source.
    fn memory_at(&self, address: usize, bytes: usize) -> String {
        let access = if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") };
        let named = self.arguments.iter().find_map(|argument| {
            let elements = argument.elements.as_ref()?;
            let (size, offset) = (elements.size, address.checked_sub(argument.start)?);
            (size != 0 && offset < size * elements.span).then(|| {
                let within = match offset % size {
                    0 => String::new(),
                    byte => format!(", byte {byte}"),
                };
                format!("{access} at {}{within}", elements.name(argument.name, offset / size))
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
        let region = self.regions.find(address);
        let region = match region.filter(|region| region.of == Of::Unused) {
            Some(unused) => self.regions.buffer_below(address).or(Some(unused)),
            None => region,
        };
        let Some(region) = region else {
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
            Of::Freed => format!("a freed buffer of {size} bytes"),
            Of::Buffer => format!("a buffer of {size} bytes"),
            Of::Unused => "memory that belongs to no buffer".to_owned(),
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

/// Returns true if memory that is considered uninitialized contains a value other than the fill value, which means that
/// code without instrumentation has written it. The memory must belong to a buffer or a shared array.
fn has_value(address: usize, bytes: usize) -> bool {
    // SAFETY: the memory exists, and the kernel is about to read it.
    let byte = |at: usize| unsafe { ((address + at) as *const u8).read_volatile() };
    let fill = byte(0);
    !matches!(fill, POISON | FILL) || (1..bytes).any(|at| byte(at) != fill)
}

/// Returns the advice that a finding of this kind includes.
fn advice(kind: FindingKind, now: &Record, old: Option<&Record>, same_line: bool) -> &'static str {
    let atomics = now.kind().atomic || old.is_some_and(|old| old.kind().atomic);
    match kind {
        FindingKind::Race => match old {
            Some(_) if atomics => {
                "one access is atomic and the other is not: make both atomic, or order them with a barrier or with \
                 release and acquire"
            }
            _ if same_line => {
                "several threads access the same element: use an atomic operation, or give each thread its own \
                 elements"
            }
            Some(old) if old.block() != now.block() => {
                "blocks run in any order: use an atomic operation on the memory, or order the accesses with a \
                 release and an acquire operation, with fences around a relaxed operation, with cluster::sync, or \
                 with grid::sync in a cooperative launch"
            }
            Some(old) if old.thread() / 32 == now.thread() / 32 => {
                "the threads of a warp do not run in lockstep: call warp::sync_warp or thread::sync_threads between \
                 the accesses"
            }
            _ => "call thread::sync_threads between the accesses",
        },
        FindingKind::StreamRace => STREAM_ADVICE,
        FindingKind::NarrowScope => {
            "the threads belong to different blocks: use an atomic with scope::Device"
        }
        FindingKind::OutOfBounds => {
            "compare the index with the length before the access, or use a slice or a view"
        }
        FindingKind::Freed => "keep the buffer until the launch has completed",
        FindingKind::Uninitialized => {
            "write the memory before reading it; if another thread writes it, add a barrier between the write and \
             the read"
        }
        FindingKind::Misaligned => {
            "a misaligned access is a fault on a GPU: use an address that is a multiple of the access size, or \
             `read_unaligned`"
        }
        FindingKind::NotInstrumented => {
            "run the program under `warpsmith check`; the crate must depend on gpu-std or warpsmith under this name"
        }
    }
}
