//! The `warpsmith` command; the library of this package implements it.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpsmith_cli::main()
}
