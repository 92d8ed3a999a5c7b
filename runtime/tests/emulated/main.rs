//! Tests of devices, memory, streams, events, graphs, launches and transfers on emulated devices. Each test has its own
//! driver. A test that requires its own process runs itself again, see [`alone!`](alone).

mod allocator_backends;
mod allocator_bad_input;
mod allocator_blocks;
mod allocator_captures;
mod allocator_expandable;
mod allocator_history;
mod allocator_lifetimes;
mod allocator_model;
mod allocator_no_heap;
mod allocator_placement;
mod allocator_pools;
mod allocator_pressure;
mod allocator_statistics;
mod allocator_streams;
mod allocator_threads;
#[path = "../common/alone.rs"]
mod alone;
mod awaiting;
mod blocking;
mod captured_uses;
mod collectives;
#[path = "../common/mod.rs"]
mod common;
mod corpora;
mod device_fork;
mod device_functions;
mod devices;
mod events;
mod faults;
mod first_reports;
mod foreign;
mod graph_launch_hooks;
mod graph_lifetimes;
mod graph_memory;
mod graph_misuse;
mod graph_nodes;
mod graphs;
mod heap;
mod host_functions;
mod launch;
mod launch_claims;
mod launch_clusters;
mod launch_lengths;
mod launch_no_heap;
mod launch_planes;
mod launch_shapes;
mod loaded_code;
mod loom_streams;
#[path = "../common/machine.rs"]
mod machine;
mod mapped;
mod memory;
mod observer;
mod option_values;
mod ordering;
mod ordering_precise;
mod ordering_programs;
mod peer_access;
mod pinned;
mod pinned_faults;
mod reentry;
mod reopen;
mod simulated_time;
mod snapshot_files;
mod stack_limit;
mod streams;
mod support;
#[path = "../common/traces.rs"]
mod traces;
mod transfer_blocking;
mod transfer_device;
mod transfer_host;
mod transfer_peer;
#[path = "../common/transfers.rs"]
mod transfers;
mod visible_devices;
mod warnings;
