//! Communicators of emulated devices, with ranks as threads of this process and as separate processes. Tests on GPUs
//! are in modules `*_on_gpu`, and in `*_on_gpus` for two and more.

#[path = "../../../runtime/tests/common/alone.rs"]
mod alone;
mod buckets;
mod connecting;
mod failures;
mod graphs;
mod groups;
mod lives;
#[cfg(unix)]
mod nccl_on_gpu;
#[cfg(unix)]
mod nccl_on_gpus;
mod nccl_work;
mod operations;
mod peer;
mod peer_algorithms;
mod peer_exchange;
#[cfg(target_os = "linux")]
mod peer_on_gpu;
#[cfg(target_os = "linux")]
mod peer_on_gpus;
#[cfg(target_os = "linux")]
mod peer_processes;
#[cfg(unix)]
mod processes;
mod sequences;
mod support;
mod symmetric;
