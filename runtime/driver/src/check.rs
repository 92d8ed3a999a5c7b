//! What a check of kernels finds (`warpsmith check`), which the emulated device makes.

pub use warpsmith_emulator::check::{Access, Finding, FindingKind, FindingScope, Findings, Frame};
