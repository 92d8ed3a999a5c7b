//! All blocks of a launch.

use crate::thread;

pub use crate::thread::{grid_dim as dim, launch_size as threads};

/// Blocks of the launch.
#[inline(always)]
pub fn blocks() -> usize {
    thread::grid_dim_x() as usize * thread::grid_dim_y() as usize * thread::grid_dim_z() as usize
}
