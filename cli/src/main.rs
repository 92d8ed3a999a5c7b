//! The `warpsmith` command: thin, over `warpsmith`, `warpsmith-tuner` and `warpsmith-builder`.
//!
//! Guarantees: standard output holds the result and nothing else, one document with `--json`; complaints are
//! one line on standard error. Exit codes: 0 done, 1 a result that fails a check or a device that fails, 2
//! wrong use or unusable input. A reader that closes the pipe early ends nothing with a panic.

mod args;
mod bench;
mod bench_table;
mod devices;
mod doctor;
mod failure;
mod image;
mod kernels;
mod memory;
mod memory_bar;
mod memory_report;
mod memory_view;
mod occupancy;
mod output;
mod peers;
mod visibility;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::failure::usage_line;
use crate::output::complain;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            // Help or version was asked for; nobody is left to tell when it cannot be printed.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            complain(&usage_line(&error));
            return ExitCode::from(2);
        }
    };
    let outcome = match cli.command {
        Command::Devices(args) => devices::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Kernels(args) => kernels::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Memory(args) => memory::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(line) = failure.line() {
                complain(&format!("warpsmith: {line}"));
            }
            ExitCode::from(failure.code())
        }
    }
}
