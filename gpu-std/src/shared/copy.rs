//! Copies to shared memory that take no registers: `cp.async`.

/// Begins to copy `from`, in global memory, to `to`, in shared memory. The copies of a thread are complete when it returns from
/// [`wait_copies`]; other threads see them after a barrier behind that.
///
/// Of types of 4, 8 and 16 bytes the copy is asynchronous: a thread can have any number on the way, and goes on meanwhile. Others,
/// and all on the emulated device, are complete at once.
///
/// # Safety
///
/// Both are valid for a `T` and aligned, `to` is in shared memory, and nothing else uses it until the copy is complete.
///
/// ```
/// use gpu_std::prelude::*;
/// use gpu_std::shared::{copy_async, wait_copies};
///
/// /// Each 64 elements in reverse.
/// ///
/// /// # Safety
/// ///
/// /// `x` has a multiple of 64 elements.
/// #[kernel(block(64))]
/// unsafe fn reverse(x: &[f32], mut out: DisjointMut<f32>) {
///     let tile: *mut f32 = shared_array![f32; 64];
///     let (i, own) = (thread::index_1d() as usize, thread::linear_in_block() as usize);
///     // SAFETY: an element of the thread's own, which others read after the barrier.
///     unsafe {
///         copy_async(&x[i], tile.add(own));
///         wait_copies();
///         thread::sync_threads();
///         if let Some(out) = out.get_mut(thread::unique_index()) {
///             *out = tile.add(63 - own).read();
///         }
///     }
/// }
/// ```
#[inline(always)]
pub unsafe fn copy_async<T: Copy>(from: *const T, to: *mut T) {
    #[cfg(target_arch = "nvptx64")]
    {
        macro_rules! copy {
            ($bytes:literal) => {
                // SAFETY: the caller's promise.
                unsafe {
                    core::arch::asm!(
                        concat!(
                            "{{ .reg .u64 t, f; cvta.to.shared.u64 t, {to}; cvta.to.global.u64 f, {from}; ",
                            "cp.async.ca.shared.global [t], [f], ", $bytes, "; }}"
                        ),
                        to = in(reg64) to,
                        from = in(reg64) from,
                        options(nostack),
                    )
                }
            };
        }
        match size_of::<T>() {
            4 => return copy!("4"),
            8 => return copy!("8"),
            16 => return copy!("16"),
            _ => {}
        }
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(from.read()) }
}

/// Waits until all copies that the calling thread has begun by [`copy_async`] are complete.
#[inline(always)]
pub fn wait_copies() {
    // SAFETY: it has no operands. Under the default options LLVM assumes that memory may change.
    #[cfg(target_arch = "nvptx64")]
    unsafe {
        core::arch::asm!("cp.async.wait_all;", options(nostack))
    }
}
