//! The `warpsmith` command; see the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpsmith_cli::main()
}
