//! Measuring command line: `bench`, `tune`, `compare` and `report`, for the `warpsmith` command and for programs with
//! their own kernels.
//!
//! Standard output contains only the result; with `--json`, this is exactly one document. Each error message is one
//! line on standard error. The exit codes are 0 for success; 1 if a result fails a check or a device fails; 2 for a
//! usage error or unusable input; and 130 after Ctrl-C, once the measurements so far have been printed and written. If
//! a reader closes the pipe early, the program does not panic.
//!
//! | module | contents |
//! | --- | --- |
//! | [`args`] | the arguments and their help |
//! | [`bench`](mod@bench), [`tune`](mod@tune), [`compare`], [`report`](mod@report) | the commands |
//! | [`opening`] | the steps before the first measurement |
//! | [`request`] | conversion of arguments to a request, including ranges of values |
//! | [`table`] | tables of results |
//! | [`columns`] | tables that fit the terminal |
//! | [`output`] | standard output, colors, progress |
//! | [`failure`] | exit codes and one-line messages |
//! | [`interrupt`] | Ctrl-C |

pub mod args;
pub mod bench;
pub mod columns;
pub mod compare;
pub mod failure;
pub mod interrupt;
pub mod opening;
pub mod output;
pub mod report;
pub mod request;
pub mod table;
pub mod tune;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use self::args::{BenchArgs, CompareArgs, ReportArgs, TuneArgs};
use self::failure::{Failure, usage_line};
use self::output::complain;
use crate::benchmark::Suite;

/// Program that measures its benchmarks.
#[derive(Clone, Copy)]
pub struct Program<'a> {
    /// Name of the program, which precedes every error message.
    pub name: &'a str,
    /// The program's benchmarks.
    pub suite: &'a Suite,
}

impl Program<'_> {
    /// Writes an error message to standard error.
    pub fn complain(&self, line: &str) {
        complain(&format!("{}: {line}", self.name));
    }

    /// Reports why a command failed, if it did, and returns the exit code of the program.
    pub fn end(&self, outcome: Result<(), Failure>) -> ExitCode {
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                if let Some(line) = failure.line() {
                    self.complain(&line);
                }
                ExitCode::from(failure.code())
            }
        }
    }
}

/// The commands that measure.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure kernels, checking every result against a float64 reference
    Bench(BenchArgs),
    /// Search for the fastest configurations, and keep them where launches find them
    Tune(TuneArgs),
    /// Report whether kernels became faster or slower between two results files
    Compare(CompareArgs),
    /// Make one HTML page from results files
    Report(ReportArgs),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// Fails on a usage error, a device failure, an incorrect result, or an interruption.
    pub fn run(&self, program: &Program<'_>) -> Result<(), Failure> {
        program.suite.check()?;
        match self {
            Command::Bench(args) => bench::run(program, args),
            Command::Tune(args) => tune::run(program, args),
            Command::Compare(args) => compare::run(args),
            Command::Report(args) => report::run(program, args),
        }
    }
}

/// Measure and tune the kernels of this program.
#[derive(Debug, Parser)]
#[command(
    after_help = "Exit codes: 0 success; 1 a result failed its check; 2 usage error or invalid input; 130 \
                        interrupted by Ctrl-C. Without a command, every kernel is measured in quick mode."
)]
struct Cli {
    /// The command.
    #[command(subcommand)]
    command: Option<Command>,
}

/// Main function of a program that measures the benchmarks of `suite`. `warpsmith::bench_main!` calls it.
///
/// Without a command, all benchmarks are measured in quick mode. The `--bench` argument that `cargo bench` adds is
/// ignored.
pub fn main(name: &'static str, suite: &Suite) -> ExitCode {
    let program = Program { name, suite };
    let given = std::env::args_os().filter(|argument| argument != "--bench");
    let every = || {
        let kernels = suite.benchmarks.iter().map(|benchmark| benchmark.name().into());
        [name, "bench", "--quick", "--"].into_iter().map(OsString::from).chain(kernels)
    };
    let command =
        parse(name, given).and_then(|given| given.map_or_else(|| parse(name, every()), |c| Ok(Some(c))));
    match command {
        Ok(command) => program.end(command.map_or(Ok(()), |command| command.run(&program))),
        Err(error) => said(name, &error),
    }
}

fn parse(
    name: &'static str,
    arguments: impl Iterator<Item = OsString>,
) -> Result<Option<Command>, clap::Error> {
    let command = Cli::command().name(name).bin_name(name);
    let matches = command.try_get_matches_from(arguments)?;
    Ok(Cli::from_arg_matches(&matches)?.command)
}

/// Prints a clap message: help and version text to standard output, and errors as one line to standard error.
pub fn said(name: &str, error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // This prints the help or version text. If printing fails, the failure cannot be reported.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    complain(&usage_line(name, error));
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use warpsmith_runtime::GpuImage;

    use super::*;
    use crate::benchmark::Benchmark;
    use crate::error::Error;
    use crate::kernel::ArrayKernel;

    fn words(text: &str) -> impl Iterator<Item = OsString> {
        text.split(' ').map(OsString::from).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn benchmarks_of_one_name_are_refused() {
        let own = || -> Box<dyn Benchmark> {
            static NONE: GpuImage = GpuImage::without_code("none", "0.0.0", "there is no code");
            Box::new(ArrayKernel::<f32, f32>::new("mine", &NONE, |[x, ..]| x))
        };
        let suite =
            Suite { benchmarks: vec![own(), own()], left_out: Vec::new(), probes: |_| Ok(Vec::new()) };
        let program = Program { name: "mine", suite: &suite };
        for line in ["mine bench --list --device cpu", "mine tune mine --device cpu"] {
            let command = parse("mine", words(line)).unwrap().unwrap();
            let Err(Failure::Use(message)) = command.run(&program) else { panic!("{line} runs") };
            assert!(message.contains("two benchmarks are called \"mine\""), "{message}");
        }
        // No name is found in such a suite.
        for name in ["mine", "other"] {
            assert!(matches!(suite.find(name), Err(Error::SameName { name }) if name == "mine"));
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn programs_have_the_commands_under_their_names() {
        assert!(matches!(parse("mine", words("mine bench saxpy")), Ok(Some(Command::Bench(_)))));
        assert!(matches!(parse("mine", words("mine")), Ok(None)));
        let error = parse("mine", words("mine bench saxpy --szies 1")).unwrap_err();
        let line = usage_line("mine", &error);
        assert!(line.starts_with("mine: ") && line.contains("--szies"), "{line}");
        assert!(line.ends_with("mine --help"), "{line}");
    }
}
