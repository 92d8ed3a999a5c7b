//! The `warpsmith` command; this package's library implements it.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpsmith_cli::main()
}
