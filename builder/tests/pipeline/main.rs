//! Tests of the pipeline with a real toolchain, on fixture crates. Without a toolchain the tests fail and say what to
//! install.

#[path = "../../../runtime/tests/common/alone.rs"]
mod alone;
mod architectures;
mod build_script;
mod builds;
mod common;
mod device_runtime;
mod hostile_environment;
mod manifests;
mod no_toolchain;
mod panic_calls;
mod profiles;
mod ptx_facts;
mod two_projects;
mod values;
mod wgmma;
