//! Tests of the emulated driver through the `Driver` trait: the effects and errors of each call, graphs, order, and
//! races.

mod activity;
mod calls;
#[path = "../../../../runtime/tests/common/mod.rs"]
mod common;
mod copies;
mod fixture;
mod graph_kernels;
mod graphs;
#[path = "../../../../runtime/tests/common/machine.rs"]
mod machine;
mod races;
mod red_zones;
mod schedules;
mod virtual_memory;
