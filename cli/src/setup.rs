//! `warpsmith setup`: installs missing tools for compiling GPU kernels.

use warpsmith::bench::command::failure::Failure;
use warpsmith_builder::setup;

/// Installs the missing tools. If a tool cannot be installed, the commands that install it are listed, one per line.
pub fn run() -> Result<(), Failure> {
    match setup::install(&mut |line| println!("{line}")) {
        Ok(()) => {
            println!("Kernels can be compiled for the GPU. `warpsmith new NAME` writes a project.");
            Ok(())
        }
        Err(error) => {
            eprintln!("warpsmith: {error}");
            Err(Failure::Shown)
        }
    }
}
