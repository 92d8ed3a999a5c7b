//! Shared code for several tests of one part.

pub mod allocator;
pub mod allocator_program;
pub mod pinned;
