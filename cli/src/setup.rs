//! `warpsmith setup`: installs what is missing to compile kernels for the GPU.

use warpsmith::bench::command::failure::Failure;
use warpsmith_builder::setup;

/// Installs it. What cannot be installed is named with the commands that do it, one a line.
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
