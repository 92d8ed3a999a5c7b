//! Arguments of the commands that measure, with their help texts.

use std::path::PathBuf;

use clap::Args;

use super::request::share;
use crate::measure::Mode;

/// The measurement and its sampling effort.
#[derive(Debug, Clone, Args)]
pub struct MeasureArgs {
    /// Device: cuda:N, cpu or cpu:N [default: the first CUDA device, or the emulated device if there is none]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Elements: single counts and ranges.
    #[arg(long, value_name = "N,…", value_delimiter = ',', allow_hyphen_values = true, help = SIZES_HELP)]
    pub sizes: Vec<String>,
    /// Element types, for example f32,bf16 [default: the kernel's first type]
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',')]
    pub dtypes: Vec<String>,
    /// Kind of launches to time: with cold caches, with warm caches, or in a graph
    #[arg(long, value_enum, default_value_t = Mode::Cold)]
    pub mode: Mode,
    /// Values for an axis, instead of the kernel's default values.
    #[arg(short, long = "axis", value_name = "NAME=V,…", help = AXIS_HELP)]
    pub axes: Vec<String>,
    /// Take fewer samples, for a first result in a fraction of the time
    #[arg(long)]
    pub quick: bool,
    /// Take exactly this number of samples per configuration
    #[arg(long, value_name = "N", conflicts_with = "quick", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub samples: Option<u32>,
    /// Seed for the input data, to repeat the failure of a check [default: a new seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..1 << 32))]
    pub seed: Option<u64>,
    /// Skip the probes: the plain copy, read and multiplication to which results are compared
    #[arg(long)]
    pub no_probes: bool,
}

const SIZES_HELP: &str = "Elements: whole numbers, 2^k, numbers with K, M or G, or ranges 2^[FROM:TO:STEP] [default: the kernel's sizes]";
const AXIS_HELP: &str = "Values for an axis, instead of the kernel's default values: block=128,256, grid=auto,waves:4, \
                         block=[64:512:64]; bench --list shows the axes";

/// Output options.
#[derive(Debug, Clone, Default, Args)]
pub struct Output {
    /// Show every configuration instead of only the best and the default one
    #[arg(long)]
    pub all: bool,
    /// Print the results as a JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    /// Results file [default: warpsmith/ in a cargo project's target folder, otherwise warpsmith/ in the user's
    /// cache folder]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `bench`.
#[derive(Debug, Clone, Args)]
#[command(after_help = BENCH_HELP)]
pub struct BenchArgs {
    /// Kernels to measure; --list shows them
    #[arg(value_name = "KERNEL", required_unless_present = "list")]
    pub kernels: Vec<String>,
    /// The measurement.
    #[command(flatten)]
    pub what: MeasureArgs,
    /// Output options.
    #[command(flatten)]
    pub output: Output,
    /// List the kernels with their types and axes, and measure nothing
    #[arg(long, conflicts_with_all = ["out", "all", "json", "sizes", "dtypes", "axes", "mode", "quick", "samples", "seed", "no_probes"])]
    pub list: bool,
}

/// Arguments of `tune`.
#[derive(Debug, Clone, Args)]
#[command(after_help = TUNE_HELP)]
pub struct TuneArgs {
    /// Kernels to tune; `bench --list` shows them
    #[arg(value_name = "KERNEL", required = true)]
    pub kernels: Vec<String>,
    /// The measurement.
    #[command(flatten)]
    pub what: MeasureArgs,
    /// Maximum trials per kernel, type and size [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub trials: Option<u32>,
    /// Do not read or write the launch store
    #[arg(long)]
    pub no_store: bool,
    /// Output options.
    #[command(flatten)]
    pub output: Output,
}

/// Arguments of `compare`.
#[derive(Debug, Clone, Args)]
#[command(after_help = COMPARE_HELP)]
pub struct CompareArgs {
    /// Results file before the change
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// Results file after the change
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// Smallest change that counts as faster or slower
    #[arg(long, value_name = "PERCENT", default_value = "1%", allow_hyphen_values = true, value_parser = share)]
    pub threshold: f64,
    /// Also compare files from different devices
    #[arg(long)]
    pub force: bool,
    /// Compare only the best configuration in each file: the winner of a tuning run, otherwise the fastest one
    #[arg(long)]
    pub best: bool,
    /// Pass even if the second file lacks results of the first, or if its run ended early
    #[arg(long)]
    pub allow_missing: bool,
    /// Print a JSON document instead of the table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `report`.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// Results files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// HTML file to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
}

const TUNE_HELP: &str = "\
The default configuration is always measured first, and wins unless another one is at least 0.5 % faster. Every \
configuration is checked against a float64 reference before it is timed; a configuration that is incorrect, fails or crashes \
never wins. Winners are saved in the launch store, in the folder WARPSMITH_CACHE_DIR. Later GPU launches in all programs of \
this user read the store; the emulated device neither reads nor writes it.

Examples:
  tune axpy reduce_sum --sizes '2^[16:28:4]' --dtypes f32,bf16
  tune copy --out copy.json
  tune saxpy --trials 64

To tune the kernels of your own package, run its benchmark in its folder: `cargo bench --bench tune --features tune -- tune \
KERNEL`. `warpsmith new` writes this benchmark; in another package, write it with `warpsmith::bench_main!`.

Exit code: 1 if no configuration of a kernel is correct.";

const COMPARE_HELP: &str = "\
A kernel counts as slower only if the whole 95 % confidence interval of the ratio of the medians is beyond the \
threshold. The two files come from different runs, whose clocks and temperatures differ.

Example:
  compare before.json after.json --threshold 2%

Exit code: 1 on a regression, that is, if a kernel is slower or no longer correct. Without --allow-missing, also 1 if the \
second file lacks results of the first, or if its run ended early.";

const BENCH_HELP: &str = "\
Every configuration in a kernel's space is measured and checked, always including the default configuration. On a GPU, \
launches cycle through buffers with a total of at least three times the L2 cache, so that they read from memory. Times are \
medians between GPU events, with their 95 % confidence interval. \"peak\" is the ratio to the data sheet's memory \
bandwidth, and \"probe\" the ratio to a plain copy (or read), interleaved with the kernel. On the emulated device, times \
are CPU times and say nothing about a GPU.

Examples:
  bench copy axpy reduce_sum
  bench axpy --sizes '2^[20:28:4]' --dtypes f32,bf16 --axis block=256 --all
  bench reduce_sum --device cpu --quick --json --out results.json

To measure the kernels of your own package, run its benchmark in its folder: `cargo bench --bench tune --features tune -- \
bench KERNEL`. `warpsmith new` writes this benchmark; in another package, write it with `warpsmith::bench_main!`.

Exit code: 1 if a configuration's result is incorrect.";
