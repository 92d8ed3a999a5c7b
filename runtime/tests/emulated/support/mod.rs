//! What several tests of one part share.

pub mod allocator;
pub mod allocator_program;
pub mod pinned;
