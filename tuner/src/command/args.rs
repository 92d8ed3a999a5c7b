//! What can be given to the commands that measure, and its help.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::measure::Mode;

/// What to measure, and how: the same for every command.
#[derive(Debug, Clone, Args)]
pub struct What {
    /// Where: cuda:N, cpu or cpu:N [default: the first CUDA device, else the emulated one]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Elements: whole numbers, 2^k, with K, M, G, or ranges 2^[FROM:TO:STEP] [default: the kernel's own]
    #[arg(long, value_name = "N,…", value_delimiter = ',', allow_hyphen_values = true)]
    pub sizes: Vec<String>,
    /// Element types, for example f32,bf16 [default: the kernel's usual one]
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',')]
    pub dtypes: Vec<String>,
    /// Values for an axis instead of the kernel's own: block=128,256, grid=auto,waves:4, block=[64:512:64]; --list shows the axes
    #[arg(short, long = "axis", value_name = "NAME=V,…")]
    pub axes: Vec<String>,
    /// What is timed: launches on memory that is not in the cache, on memory that is, launches in a graph, or the host's
    /// part of a launch
    #[arg(long, value_enum, default_value_t = ModeArg::Cold)]
    pub mode: ModeArg,
    /// Fewer samples: a first look in a fraction of the time
    #[arg(long)]
    pub quick: bool,
    /// Sample until the median is known to this, for example 0.5%
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    pub precision: Option<String>,
    /// Seconds of samples of a configuration at most
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub budget: Option<f64>,
    /// Measure no probes: results have no share of what a plain copy, read or multiplication reaches
    #[arg(long)]
    pub no_probes: bool,
}

/// [`Mode`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Launches that find none of their data in the cache
    Cold,
    /// Launches on the same data again and again
    Hot,
    /// Launches in one graph
    Graph,
    /// What the host pays for a launch
    Enqueue,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Cold => Mode::Cold,
            ModeArg::Hot => Mode::Hot,
            ModeArg::Graph => Mode::Graph,
            ModeArg::Enqueue => Mode::Enqueue,
        }
    }
}

/// Where results go.
#[derive(Debug, Clone, Default, Args)]
pub struct Output {
    /// Show every configuration, not only the best and the default
    #[arg(long)]
    pub all: bool,
    /// Print the document of results instead of the table
    #[arg(long)]
    pub json: bool,
    /// Results file [default: target/warpsmith/ in a cargo project, else warpsmith/ in the user's cache folder]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `bench`.
#[derive(Debug, Clone, Args)]
#[command(after_help = BENCH_HELP)]
pub struct BenchArgs {
    /// Kernels to measure; --list shows them
    #[arg(value_name = "KERNEL", required_unless_present = "list")]
    pub kernels: Vec<String>,
    /// What to measure.
    #[command(flatten)]
    pub what: What,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
    /// List the kernels with their types and axes, and measure nothing
    #[arg(long)]
    pub list: bool,
    /// Say what would be measured, and measure nothing
    #[arg(long)]
    pub dry_run: bool,
}

impl BenchArgs {
    /// A quick look at kernels, all else as usual.
    pub fn quick(kernels: Vec<String>) -> Self {
        let what = What {
            device: None,
            sizes: Vec::new(),
            dtypes: Vec::new(),
            axes: Vec::new(),
            mode: ModeArg::Cold,
            quick: true,
            precision: None,
            budget: None,
            no_probes: false,
        };
        Self { kernels, what, output: Output::default(), list: false, dry_run: false }
    }
}

const BENCH_HELP: &str = "\
Every configuration of a kernel's space is measured and checked, and the default configuration always is. On a \
GPU the launches go round over buffers of at least three times the L2 cache, so that they read from memory. Times \
are medians between GPU events, with their 95 % interval. \"sheet\" is the share of the data sheet's memory \
bandwidth, \"probe\" the share of what a plain copy (or read) reached in turn with the kernel. On the emulated \
device times are those of this CPU and say nothing about a GPU.

Examples:
  bench copy axpy reduce_sum
  bench axpy --sizes 2^[20:28:4] --dtypes f32,bf16 --axis block=256 --all
  bench reduce_sum --device cpu --quick --json --out results.json

Exit code 1 when a configuration's result is wrong.";
