//! Tests of the built `warpsmith` command, run as a user runs it: one test program.

mod agreement_on_device;
mod checked_project;
mod commands;
#[cfg(unix)]
mod launch;
mod new;
mod package;
#[cfg(unix)]
mod profile;
#[cfg(unix)]
mod shared;
mod traces;
mod tuning;
