//! The `warpsmith` command: a thin layer over `warpsmith` and `warpsmith-builder`. The measuring commands are in
//! `warpsmith::bench::command`, so programs with their own kernels also provide these commands.
//!
//! Standard output contains only the result, one document with `--json`; error messages are one line on standard error.
//! Exit codes: 0 for success, 1 if a result fails a check or a device fails, 2 for incorrect use or unusable input, 130
//! after Ctrl-C; `profile` and `launch` return the exit code of the program that they ran. A reader that closes the
//! pipe early does not cause a panic.

mod args;
mod check;
#[cfg(any(feature = "collective", feature = "profiler"))]
mod child;
#[cfg(feature = "collective")]
mod descendants;
mod devices;
mod doctor;
mod image;
mod kernels;
#[cfg(feature = "collective")]
mod launch;
mod new;
mod occupancy;
#[cfg(feature = "profiler")]
mod outputs;
#[cfg(feature = "profiler")]
mod profile;
mod setup;
#[cfg(feature = "profiler")]
mod trace;

use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};
#[cfg(not(all(feature = "collective", feature = "profiler")))]
use warpsmith::bench::command::failure::Failure;
use warpsmith::bench::command::output::complain;
use warpsmith::bench::command::{Program, said};

use crate::args::{Cli, Command};

/// Runs the command given by the process's arguments.
pub fn main() -> ExitCode {
    // During `warpsmith check`, cargo starts this program instead of rustc.
    if let Some(code) = warpsmith_check::wrapper() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let program = Program { name: "warpsmith", suite: &warpsmith::bench::suite(Vec::new()) };
    program.end(match cli.command {
        Command::Check(args) => check::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Kernels(args) => kernels::run(&args),
        #[cfg(feature = "collective")]
        Command::Launch(args) => launch::run(&args),
        #[cfg(not(feature = "collective"))]
        Command::Launch(_) => left_out("launch"),
        Command::Measure(command) => command.run(&program),
        Command::New(args) => new::run(&args),
        #[cfg(feature = "profiler")]
        Command::Profile(args) => profile::run(&args),
        #[cfg(not(feature = "profiler"))]
        Command::Profile(_) => left_out("profile"),
        Command::Setup => setup::run(),
        #[cfg(feature = "profiler")]
        Command::Trace(args) => trace::run(&args),
        #[cfg(not(feature = "profiler"))]
        Command::Trace(_) => left_out("trace"),
    })
}

/// Prints a message from clap. This program's `bench` and `tune` commands cannot measure kernels from other packages.
fn refused(error: &clap::Error) -> ExitCode {
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.as_str(),
        _ => "",
    };
    match std::env::args().nth(1).as_deref() {
        Some(command @ ("bench" | "tune")) if ["-p", "--package"].contains(&argument) => {
            complain(&format!(
                "warpsmith: `{command}` can measure only this program's kernels; to measure your package's kernels, \
                 run `cargo bench --bench tune --features tune -- {command} KERNEL` in its folder; see warpsmith \
                 {command} --help"
            ));
            ExitCode::from(2)
        }
        _ => said("warpsmith", error),
    }
}

/// Returns the error for a command that this program was compiled without.
#[cfg(not(all(feature = "collective", feature = "profiler")))]
fn left_out<T>(command: &str) -> Result<T, Failure> {
    Err(Failure::Use(format!(
        "this program was built without `{command}`: install it with `--features full`"
    )))
}
