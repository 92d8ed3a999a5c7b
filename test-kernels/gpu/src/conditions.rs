//! Kernels that set the conditions of a graph, for tests of conditional nodes.

use gpu_std::graph::set_condition;
use gpu_std::prelude::*;

/// Decrements `counter[0]`, down to 0, and sets the condition to whether it is above 0.
///
/// # Safety
/// `condition` is a condition of the graph that runs the kernel.
#[kernel]
pub unsafe fn count_down(condition: u64, mut counter: DisjointMut<u32>) {
    let me = thread::unique_index();
    if me.get() == 0
        && let Some(counter) = counter.get_mut(me)
    {
        *counter = counter.saturating_sub(1);
        // SAFETY: guaranteed by the caller; only one thread sets it.
        unsafe { set_condition(condition, (*counter > 0).into()) };
    }
}

/// Sets the condition to `data[0]`.
///
/// # Safety
/// `condition` is a condition of the graph that runs the kernel.
#[kernel]
pub unsafe fn set_from(condition: u64, data: &[u32]) {
    if thread::index_1d() == 0 {
        // SAFETY: guaranteed by the caller; only one thread sets it.
        unsafe { set_condition(condition, data[0]) };
    }
}
