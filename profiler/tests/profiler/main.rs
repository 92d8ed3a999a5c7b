//! Tests of the profiler through its public API. Only one profiler can record per process, so each test that starts a
//! profiler runs in its own process.

#[path = "../../../runtime/tests/common/alone.rs"]
mod alone;
#[path = "../../../runtime/tests/common/mod.rs"]
mod common;
mod fixture;
mod golden;
mod graph_nodes;
mod graph_nodes_on_gpu;
#[path = "../../../runtime/tests/common/bench_kernels.rs"]
mod kernels;
mod misuse;
mod node_programs;
mod ranges;
mod records;
mod records_on_gpu;
#[path = "../../../runtime/tests/common/under_test.rs"]
mod under_test;
