//! The grid as a cooperative group.

use gpu_std::grid;

/// All threads of a launch.
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
    /// That of the calling thread.
    pub fn this_grid() -> GridGroup {
        GridGroup(())
    }

    /// Whether the launch is cooperative, so that [`sync`](Self::sync) can be called.
    pub fn is_valid(&mut self) -> bool {
        grid::is_cooperative()
    }

    /// Waits until every thread of the grid has arrived.
    ///
    /// # Panics
    ///
    /// In a launch of several blocks that is not cooperative.
    #[track_caller]
    pub fn sync(&mut self) {
        grid::sync();
    }

    /// Threads of the grid.
    pub fn size(&mut self) -> u64 {
        grid::threads() as u64
    }

    /// Threads of the grid.
    pub fn num_threads(&mut self) -> u64 {
        grid::threads() as u64
    }

    /// The thread's linear index in the grid.
    pub fn thread_rank(&mut self) -> u64 {
        grid::rank() as u64
    }

    /// Blocks of the grid.
    pub fn num_blocks(&mut self) -> u64 {
        grid::blocks() as u64
    }

    /// The block's linear index in the grid.
    pub fn block_rank(&mut self) -> u64 {
        gpu_std::block::linear_index() as u64
    }
}
