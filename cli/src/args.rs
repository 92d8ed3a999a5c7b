//! The command line: the arguments and their help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Tools for GPU kernels written in Rust: list devices, check the machine, list and measure kernels.
#[derive(Debug, Parser)]
#[command(
    name = "warpsmith",
    bin_name = "warpsmith",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(
    after_help = "Exit codes: 0 success; 1 a result failed its check; 2 usage error or invalid input; 130 \
                        interrupted by Ctrl-C."
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a cargo command, and find data races and invalid memory accesses in the kernels, without a GPU
    Check(CheckArgs),
    /// List every device: CUDA devices and the emulated one
    Devices(JsonArg),
    /// Check driver, devices, GPU image and toolchain, and show how to install missing parts
    #[command(after_help = "Exit code: 1 if a component that should work does not work.")]
    Doctor(DoctorArgs),
    /// List kernels (with `-p .`, those of your package): registers, shared memory, spills, panics, occupancy
    Kernels(KernelsArgs),
    /// Measuring commands.
    #[command(flatten)]
    Measure(warpsmith::bench::command::Command),
    /// Install missing tools for compiling GPU kernels: a Rust toolchain, ptxas, libdevice
    #[command(after_help = SETUP_HELP)]
    Setup,
    /// Create a project with its own kernels that builds, tests and runs immediately
    New(NewArgs),
    /// Run a program several times on this host, each with its own rank
    Launch(LaunchArgs),
    /// Run a program with its profiler enabled, and show where the time went
    Profile(ProfileArgs),
    /// Show where the time went in a trace and why devices were idle, as tables or as an HTML page
    Trace(TraceArgs),
}

/// `warpsmith check`.
#[derive(Debug, Args)]
#[command(
    after_help = "Kernels run on the emulated device. They are built into target/check with an instrumentation call \
                  before every memory access. A finding makes its launch fail. A comment `// warpsmith-check: allow \
                  REASON` on the line of an access or on the line above suppresses the finding.\n\nExamples: \
                  warpsmith check test; warpsmith check --seeds 8 run --example smooth -- cpu\n\nExit code: 1 if \
                  there are findings."
)]
pub struct CheckArgs {
    /// Stop each launch at its first finding
    #[arg(long)]
    pub first: bool,
    /// Maximum number of findings to report per launch [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Run N more times, each time with a different order of blocks and threads
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub seeds: u32,
    /// Print one JSON document instead of text; the program's output goes to standard error
    #[arg(long)]
    pub json: bool,
    /// Write the findings to FILE as SARIF, which code hosting services read
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
    /// The cargo command and its arguments [default: test]
    #[arg(value_name = "CARGO ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub cargo: Vec<String>,
}

const SETUP_HELP: &str = "The Rust toolchain is installed next to yours, from Debian's packages (as root on Debian) \
                          or with rustup. NVIDIA's tools are installed into WARPSMITH_DATA_DIR, by default \
                          `warpsmith` in XDG_DATA_HOME or ~/.local/share, where the builds of all projects find \
                          them. Installed tools are not installed again; `warpsmith doctor` shows the origin of each \
                          tool.";

/// `warpsmith new`.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// Folder to create; its last component is the package's name
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Package name [default: the name of the folder]
    #[arg(long)]
    pub name: Option<String>,
    /// Create a library of kernels for other packages instead of a program
    #[arg(long)]
    pub lib: bool,
    /// Create a Python package: kernels as functions on tensors and as PyTorch operators
    #[arg(long, conflicts_with = "lib")]
    pub python: bool,
    /// Take Warpsmith from a git repository
    #[arg(
        long,
        value_name = "URL",
        default_value = env!("CARGO_PKG_REPOSITORY"),
        conflicts_with_all = ["path_to_warpsmith", "registry"]
    )]
    pub git: String,
    /// Take Warpsmith from a copy of its repository
    #[arg(long = "path", value_name = "FOLDER")]
    pub path_to_warpsmith: Option<PathBuf>,
    /// Take this version from the registry (available after the first release)
    #[arg(long, conflicts_with = "path_to_warpsmith")]
    pub registry: bool,
}

/// Output as JSON.
#[derive(Debug, Args)]
pub struct JsonArg {
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}

/// `warpsmith doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Also show the GPU images of the package in FOLDER
    #[arg(short, long, value_name = "FOLDER")]
    pub package: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}

/// `warpsmith kernels`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --package, the table lists the kernels of `warpsmith::ops` in this command. With \
                  --package, it lists the kernels of the last `cargo build` in that folder.\n\nOccupancy is the \
                  ratio of resident threads to the SM's maximum, given the registers, the shared memory and the \
                  block size. The block size is the nearest one that the kernel allows.\n\nExamples: warpsmith \
                  kernels -p .; warpsmith kernels -p . saxpy --arch sm_80 --block 128"
)]
pub struct KernelsArgs {
    /// Show the kernels from the last build of the package in FOLDER
    #[arg(short, long, value_name = "FOLDER")]
    pub package: Option<PathBuf>,
    /// Show only these kernels
    #[arg(value_name = "KERNEL")]
    pub names: Vec<String>,
    /// One line per instance instead of one per kernel and type
    #[arg(long)]
    pub all: bool,
    /// Architecture to show, for example 80 or sm_90 [default: the newest in the image]
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<String>,
    /// Threads per block for which occupancy is computed
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub block: u32,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}

/// `warpsmith profile`.
#[derive(Debug, Args)]
#[command(
    after_help = "The command sets WARPSMITH_PROFILE for the program and its child processes; each process that \
                  opens a device writes a trace when it ends. If several processes do, each file name contains the \
                  process ID. The program receives signals as if it were started directly.\n\nExamples: \
                  warpsmith profile ./train; warpsmith profile --html train.html cargo run --release --example \
                  mlp\n\nExit code: that of the program; 1 if the program succeeded but wrote no trace or a \
                  damaged trace."
)]
pub struct ProfileArgs {
    /// Output file of the trace, compressed if it ends in .gz [default: profile.json.gz]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write one HTML page with a timeline and the tables
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Rows per table
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Print one JSON document instead of text; the program's output goes to standard error
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<std::ffi::OsString>,
}

/// `warpsmith launch`.
#[derive(Debug, Args)]
#[command(
    after_help = "For each process, the command sets WARPSMITH_RANK, WARPSMITH_WORLD_SIZE, WARPSMITH_LOCAL_RANK, the \
                  address of the rendezvous store, and its token; `Launch::from_env()` reads them. Rank 0 receives \
                  stdin. If a process fails, the command terminates the others.\n\nExamples: warpsmith launch -n 4 \
                  ./train --epochs 3; warpsmith launch -n 2 cargo run --release\n\nExit code: that of the first \
                  process that failed, or 128 plus the signal number if a signal terminated it."
)]
pub struct LaunchArgs {
    /// Number of processes
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub processes: u32,
    /// Prefix each output line with its rank: on a terminal, always or never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub prefix: When,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<std::ffi::OsString>,
}

/// Selects when output lines are prefixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// `warpsmith trace`.
#[derive(Debug, Args)]
#[command(
    after_help = "The command reads traces from Warpsmith and from PyTorch's profiler, compressed or uncompressed; \
                  it detects the format from the file's content. With --html, it writes that file and prints \
                  nothing.\n\nExamples: warpsmith trace train.json.gz; warpsmith trace train.json.gz --html \
                  train.html; warpsmith trace new.json.gz --diff old.json.gz\n\nExit code: 1 if the file is \
                  damaged, or if some events are not shown, for example because they have no timestamp; stderr and \
                  the JSON document list them. Records before the damage are shown."
)]
pub struct TraceArgs {
    /// Trace file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Show the changes since the trace OLD
    #[arg(long, value_name = "OLD")]
    pub diff: Option<PathBuf>,
    /// Rows per table
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Write one HTML page with a timeline and the tables, usable offline
    #[arg(long, value_name = "OUT", conflicts_with_all = ["diff", "json"])]
    pub html: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use warpsmith::bench::command::failure::usage_line;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn complaints_are_one_line_with_advice() {
        for (args, words) in [
            (&["warpsmith"][..], "no command given"),
            (&["warpsmith", "bnch"], "bnch"),
            (&["warpsmith", "bench"], "<KERNEL>"),
            (&["warpsmith", "bench", "copy", "--szies", "1"], "--szies"),
            (&["warpsmith", "kernels", "--block", "x"], "--block"),
        ] {
            let line = usage_line("warpsmith", &Cli::try_parse_from(args).unwrap_err());
            assert!(line.contains(words) && line.ends_with("--help") && !line.contains('\n'), "{line}");
        }
    }
}
