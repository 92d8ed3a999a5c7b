//! Communicators of emulated devices, with ranks as threads of this process and as processes of their own.

#[path = "../../../tests/common/alone.rs"]
mod alone;
mod failures;
mod graphs;
mod groups;
mod lives;
mod meeting;
mod operations;
#[cfg(unix)]
mod processes;
mod sequences;
mod support;
