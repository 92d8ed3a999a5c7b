//! What there is to know of a kernel of the corpus, without which it cannot be launched.

use gpu_std::{Kernel, KernelSpec};
use warpsmith_emulator::check::FindingKind;

/// A kernel, what is wrong with it, and its launch.
#[derive(Clone, Copy)]
pub struct Case {
    /// The kernel.
    pub spec: fn() -> &'static KernelSpec,
    /// Its file, from the repository.
    pub file: &'static str,
    /// What `warpsmith check` finds.
    pub found: Found,
    /// The tool of compute-sanitizer that finds it; `None` when none does.
    pub tool: Option<Tool>,
    /// How it is launched.
    pub shape: Shape,
}

/// What `warpsmith check` finds in a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It has no fault.
    Nothing,
    /// One wrong access to memory.
    Access(FindingKind),
    /// A wrong use of a collective operation, whose fault says these words.
    Collective(&'static str),
}

/// A tool of compute-sanitizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Accesses out of bounds, misaligned, and to freed memory.
    Memcheck,
    /// Races in shared memory.
    Racecheck,
    /// Reads of global memory that nothing has written.
    Initcheck,
    /// Barriers and masks.
    Synccheck,
}

impl Tool {
    /// All of them.
    pub const ALL: [Tool; 4] = [Tool::Memcheck, Tool::Racecheck, Tool::Initcheck, Tool::Synccheck];

    /// As `compute-sanitizer --tool` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Tool::Memcheck => "memcheck",
            Tool::Racecheck => "racecheck",
            Tool::Initcheck => "initcheck",
            Tool::Synccheck => "synccheck",
        }
    }
}

/// A launch in one dimension. Each parameter of the kernel is a pointer to a buffer.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Blocks.
    pub grid: u32,
    /// Threads of a block.
    pub block: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
    /// Dynamic shared memory, in bytes.
    pub shared_bytes: u32,
    /// The buffers.
    pub buffers: &'static [Buffer],
}

/// A buffer of a launch.
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    /// Its size.
    pub bytes: usize,
    /// What is in it.
    pub contents: Contents,
}

/// What is in a buffer when the kernel starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Zeros.
    Zeros,
    /// What happens to be there.
    Uninit,
    /// It was freed.
    Freed,
}

/// A buffer of zeros.
pub const fn zeros(bytes: usize) -> Buffer {
    Buffer { bytes, contents: Contents::Zeros }
}

/// A buffer that nothing has written.
pub const fn uninit(bytes: usize) -> Buffer {
    Buffer { bytes, contents: Contents::Uninit }
}

/// A buffer that was freed.
pub const fn freed(bytes: usize) -> Buffer {
    Buffer { bytes, contents: Contents::Freed }
}

/// `grid` blocks of `block` threads.
pub const fn blocks(grid: u32, block: u32, buffers: &'static [Buffer]) -> Shape {
    Shape { grid, block, cluster: 1, shared_bytes: 0, buffers }
}

/// One block of 64 threads, with a buffer of zeros.
pub const ONE_BLOCK: Shape = blocks(1, 64, &[zeros(512)]);
/// Four blocks of 64 threads, with a buffer of zeros.
pub const FOUR_BLOCKS: Shape = blocks(4, 64, &[zeros(4096)]);

impl Shape {
    /// The same with dynamic shared memory.
    pub const fn dynamic_shared(self, shared_bytes: u32) -> Self {
        Self { shared_bytes, ..self }
    }

    /// The same in clusters of two blocks.
    pub const fn in_clusters(self) -> Self {
        Self { cluster: 2, ..self }
    }
}

impl Case {
    /// A case of a kernel.
    pub const fn new<K: Kernel>(file: &'static str, found: Found, tool: Option<Tool>, shape: Shape) -> Self {
        Self { spec: K::spec, file, found, tool, shape }
    }

    /// The name of the kernel.
    pub fn name(&self) -> &'static str {
        (self.spec)().name
    }
}
