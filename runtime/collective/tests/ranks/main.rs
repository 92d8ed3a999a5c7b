//! Communicators of emulated devices, with ranks as threads of this process and as processes of their own;
//! those of GPUs in modules `*_on_gpu`.

#[path = "../../../tests/common/alone.rs"]
mod alone;
mod failures;
mod graphs;
mod groups;
mod lives;
mod meeting;
#[cfg(unix)]
mod nccl_on_gpu;
mod operations;
#[cfg(unix)]
mod processes;
mod sequences;
mod support;
