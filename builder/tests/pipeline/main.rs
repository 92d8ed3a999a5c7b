//! The pipeline with a real toolchain, on fixture crates. Without one the tests fail and say what to install.

mod build_script;
mod builds;
mod common;
mod device_runtime;
mod ptx_facts;
