//! What listeners and tools get of ranges and marks, and that mistakes are reported and do no harm.

#[path = "../common/alone.rs"]
mod alone;
mod listening;
mod tool;
