//! The grid as a cooperative group.

use gpu_std::grid;

/// Cooperative group of all threads of a launch.
///
/// ```no_run
/// let mut grid = cuda_std::cg::GridGroup::this_grid();
/// if grid.is_valid() {
///     grid.sync();
/// }
/// ```
#[derive(Debug)]
pub struct GridGroup(());

impl GridGroup {
    /// Returns the grid group of the calling thread.
    pub fn this_grid() -> GridGroup {
        GridGroup(())
    }

    /// Returns whether the launch is cooperative, so that [`sync`](Self::sync) may be called.
    pub fn is_valid(&mut self) -> bool {
        grid::is_cooperative()
    }

    /// Waits until all threads of the grid have arrived.
    ///
    /// # Panics
    /// Panics if the launch has several blocks and is not cooperative.
    #[track_caller]
    pub fn sync(&mut self) {
        grid::sync();
    }

    /// Returns the number of threads in the grid.
    pub fn size(&mut self) -> u64 {
        grid::threads() as u64
    }

    /// Returns the number of threads in the grid.
    pub fn num_threads(&mut self) -> u64 {
        grid::threads() as u64
    }

    /// Returns the linear index of the calling thread in the grid.
    pub fn thread_rank(&mut self) -> u64 {
        grid::rank() as u64
    }

    /// Returns the number of blocks in the grid.
    pub fn num_blocks(&mut self) -> u64 {
        grid::blocks() as u64
    }

    /// Returns the linear index of the block in the grid.
    pub fn block_rank(&mut self) -> u64 {
        gpu_std::block::linear_index() as u64
    }
}
