//! Shared code of several tests of one part.

pub mod allocator;
pub mod allocator_program;
pub mod pinned;
