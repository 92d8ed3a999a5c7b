//! Tests of the ranges and marks that listeners and tools receive, and that mistakes are reported and do no harm.

#[path = "../common/alone.rs"]
mod alone;
mod listening;
mod tool;
