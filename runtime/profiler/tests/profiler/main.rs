//! The profiler by its public interface. One profiler records in a process, so each test that starts one has a process of its own.

#[path = "../../../tests/common/alone.rs"]
mod alone;
#[path = "../../../tests/common/mod.rs"]
mod common;
mod golden;
mod misuse;
mod ranges;
mod records;
mod rig;
