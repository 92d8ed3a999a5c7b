//! The command line: what can be given, and its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// GPU kernels written in Rust: see the devices, check the machine, list kernels, measure them, see memory.
#[derive(Debug, Parser)]
#[command(
    name = "warpsmith",
    bin_name = "warpsmith",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(after_help = "Exit codes: 0 done; 1 a result failed its check; 2 wrong use or unusable input.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List every device: CUDA devices and the emulated one
    Devices(JsonArg),
    /// Check driver, devices, GPU image and toolchain, and say how to mend what is missing
    #[command(after_help = "Exit code 1 when something that should work does not.")]
    Doctor(JsonArg),
    /// List the embedded kernels: registers, shared memory, spills, occupancy
    Kernels(KernelsArgs),
    /// Measure kernels, checking every result against a float64 reference
    Bench(BenchArgs),
    /// Show what a memory snapshot holds: totals, segments, call sites, history
    Memory(MemoryArgs),
}

/// Output as JSON.
#[derive(Debug, Args)]
pub struct JsonArg {
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}

/// `warpsmith kernels`.
#[derive(Debug, Args)]
#[command(
    after_help = "Occupancy is the share of a multiprocessor's threads that registers, shared memory and \
                        block size let run at once."
)]
pub struct KernelsArgs {
    /// Only these kernels
    #[arg(value_name = "KERNEL")]
    pub names: Vec<String>,
    /// One line per instance instead of one per kernel and type
    #[arg(long)]
    pub all: bool,
    /// The architecture to show, for example 80 or sm_90 [default: the newest in the image]
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<String>,
    /// Threads of a block that occupancy is computed for
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub block: u32,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}

/// `warpsmith bench`.
#[derive(Debug, Args)]
#[command(after_help = BENCH_HELP)]
pub struct BenchArgs {
    /// Kernels to measure; `warpsmith kernels` lists them
    #[arg(value_name = "KERNEL", required = true)]
    pub kernels: Vec<String>,
    /// Where: cuda:N, cpu or cpu:N [default: the first CUDA device, else the emulated one]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Elements: whole numbers, 2^k, or with K, M, G [default: 2^16,2^20,2^24,2^28; emulated 2^12,2^16,2^20]
    #[arg(long, value_name = "N,…", value_delimiter = ',', allow_hyphen_values = true)]
    pub sizes: Vec<String>,
    /// Element types, for example f32,bf16
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',', default_value = "f32")]
    pub dtypes: Vec<String>,
    /// Threads of a block [default: 128,256,512; emulated 64,256]
    #[arg(long, value_name = "N,…", value_delimiter = ',', allow_hyphen_values = true)]
    pub blocks: Vec<String>,
    /// Grids: auto, waves:N (N times what is resident at once), blocks:N [default: auto,waves:1,waves:4; emulated auto]
    #[arg(long, value_name = "RULE,…", value_delimiter = ',')]
    pub grids: Vec<String>,
    /// Vectors that a thread has in flight at once [default: all there are]
    #[arg(long, value_name = "N,…", value_delimiter = ',', allow_hyphen_values = true)]
    pub items: Vec<String>,
    /// Bytes of a vector load [default: all there are; emulated 16]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', allow_hyphen_values = true)]
    pub vectors: Vec<String>,
    /// Fewer samples: a first look in a fraction of the time
    #[arg(long)]
    pub quick: bool,
    /// Show every configuration, not only the best and the default
    #[arg(long)]
    pub all: bool,
    /// Print the result document instead of the table
    #[arg(long)]
    pub json: bool,
    /// Results file [default: target/warpsmith/ in a cargo project, else warpsmith/ in the user's cache folder]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

const BENCH_HELP: &str = "\
Every combination of block, grid, items and vector that exists is measured, and the default configuration \
always is. On a GPU the launches go round over buffers of at least three times the L2 cache, so that they \
read from memory. Times are medians between GPU events; roofline is the share of the data sheet's memory \
bandwidth. On the emulated device times are those of this CPU and say nothing about a GPU.

Examples:
  warpsmith bench copy axpy reduce_sum
  warpsmith bench axpy --sizes 2^20,2^28 --dtypes f32,bf16 --blocks 256 --all
  warpsmith bench reduce_sum --device cpu --quick --json --out results.json

Exit code 1 when a configuration's result is wrong.";
/// `warpsmith memory`.
#[derive(Debug, Args)]
#[command(
    after_help = "A segment is memory that was taken from the device in one piece; of its bar every column \
                        stands for the same number of bytes. PyTorch's snapshots are read too, pickled or as JSON."
)]
pub struct MemoryArgs {
    /// A file that a snapshot was written to
    #[arg(value_name = "SNAPSHOT")]
    pub snapshot: PathBuf,
    /// Every segment on a line of its own
    #[arg(long)]
    pub all: bool,
    /// Call sites to show, those with the most live bytes
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Show the last N events of the history
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub trace: usize,
    /// Columns to fill [default: those of the terminal, else 100]
    #[arg(long, value_name = "COLUMNS")]
    pub width: Option<u16>,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}
