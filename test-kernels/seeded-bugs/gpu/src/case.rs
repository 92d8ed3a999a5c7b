//! Expected findings and launch parameters of the kernels of the corpus.

use gpu_std::{Kernel, KernelSpec};
use warpsmith_emulator::check::FindingKind;

/// A kernel, its seeded bug, and its launch.
#[derive(Clone, Copy)]
pub struct Case {
    /// Kernel.
    pub spec: fn() -> &'static KernelSpec,
    /// Source file, relative to the repository.
    pub file: &'static str,
    /// Expected finding of `warpsmith check`.
    pub found: Found,
    /// Tool of compute-sanitizer that finds the bug; `None` if none does.
    pub tool: Option<Tool>,
    /// Launch shape and buffers.
    pub shape: Shape,
}

/// Expected finding of `warpsmith check` in a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// No bug.
    Nothing,
    /// One kind of invalid memory access.
    Access(FindingKind),
    /// Invalid use of a collective operation; the fault message contains this text.
    Collective(&'static str),
}

/// A tool of compute-sanitizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Out-of-bounds accesses, misaligned accesses, and accesses to freed memory.
    Memcheck,
    /// Races in shared memory.
    Racecheck,
    /// Reads of uninitialized global memory.
    Initcheck,
    /// Invalid barriers and masks.
    Synccheck,
}

impl Tool {
    /// All tools.
    pub const ALL: [Tool; 4] = [Tool::Memcheck, Tool::Racecheck, Tool::Initcheck, Tool::Synccheck];

    /// Name of the tool for `compute-sanitizer --tool`.
    pub const fn name(self) -> &'static str {
        match self {
            Tool::Memcheck => "memcheck",
            Tool::Racecheck => "racecheck",
            Tool::Initcheck => "initcheck",
            Tool::Synccheck => "synccheck",
        }
    }
}

/// A one-dimensional launch. The kernel parameters are one pointer per buffer, then the lengths of the shared arrays.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Number of blocks.
    pub grid: u32,
    /// Threads per block.
    pub block: u32,
    /// Blocks per cluster.
    pub cluster: u32,
    /// Dynamic shared memory, in bytes.
    pub shared_bytes: u32,
    /// Buffers of the launch.
    pub buffers: &'static [Buffer],
    /// Lengths of the shared arrays.
    pub lengths: &'static [usize],
}

/// A buffer of a launch.
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    /// Size in bytes.
    pub bytes: usize,
    /// Initial contents.
    pub contents: Contents,
}

/// Contents of a buffer when the kernel starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Zeros.
    Zeros,
    /// Uninitialized memory.
    Uninit,
    /// Freed memory.
    Freed,
}

/// Makes a buffer of zeros.
pub const fn zeros(bytes: usize) -> Buffer {
    Buffer { bytes, contents: Contents::Zeros }
}

/// Makes an uninitialized buffer.
pub const fn uninit(bytes: usize) -> Buffer {
    Buffer { bytes, contents: Contents::Uninit }
}

/// Makes a freed buffer.
pub const fn freed(bytes: usize) -> Buffer {
    Buffer { bytes, contents: Contents::Freed }
}

/// Makes a launch of `grid` blocks of `block` threads.
pub const fn blocks(grid: u32, block: u32, buffers: &'static [Buffer]) -> Shape {
    Shape { grid, block, cluster: 1, shared_bytes: 0, buffers, lengths: &[] }
}

/// One block of 64 threads, with a buffer of zeros.
pub const ONE_BLOCK: Shape = blocks(1, 64, &[zeros(512)]);
/// Four blocks of 64 threads, with a buffer of zeros.
pub const FOUR_BLOCKS: Shape = blocks(4, 64, &[zeros(4096)]);

impl Shape {
    /// Sets the dynamic shared memory.
    pub const fn dynamic_shared(self, shared_bytes: u32) -> Self {
        Self { shared_bytes, ..self }
    }

    /// Sets the lengths of shared arrays.
    pub const fn lengths(self, lengths: &'static [usize]) -> Self {
        Self { lengths, ..self }
    }

    /// Sets clusters of two blocks.
    pub const fn in_clusters(self) -> Self {
        Self { cluster: 2, ..self }
    }
}

impl Case {
    /// Makes a case for a kernel.
    pub const fn new<K: Kernel>(file: &'static str, found: Found, tool: Option<Tool>, shape: Shape) -> Self {
        Self { spec: K::spec, file, found, tool, shape }
    }

    /// Name of the kernel.
    pub fn name(&self) -> &'static str {
        (self.spec)().name
    }
}
