//! Asynchronous copies from global to shared memory (`cp.async`), which need no registers for the data.

/// Starts a copy from `from` in global memory to `to` in shared memory. A thread's copies are complete when
/// [`wait_copies`] returns. [`wait_copies_leaving`] waits only for the older groups. Other threads can read the copied
/// data after a subsequent barrier.
///
/// For types of 4, 8 and 16 bytes, the copy is asynchronous: the thread continues, and can have any number of copies in
/// flight. Other types are copied before the function returns. A copy also prefetches the 128 bytes around the source
/// into the L2 cache. Reads of whole lines are fastest, and other threads or later copies usually need the rest of the
/// line.
///
/// On the emulated device, asynchronous copies complete as late as possible: when the thread waits for them. Until
/// then, the destination contains poison.
///
/// # Safety
/// Both pointers must be aligned and valid for a `T`. A type of 4, 8 or 16 bytes must be aligned to its size. `to` must
/// be in shared memory, and nothing else may access it until the copy is complete.
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
            ($cache:literal, $bytes:literal) => {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    core::arch::asm!(
                        concat!(
                            "{{ .reg .u64 t, f; cvta.to.shared.u64 t, {to}; cvta.to.global.u64 f, {from}; ",
                            "cp.async.", $cache, ".shared.global.L2::128B [t], [f], ", $bytes, "; }}"
                        ),
                        to = in(reg64) to,
                        from = in(reg64) from,
                        options(nostack),
                    )
                }
            };
        }
        match size_of::<T>() {
            4 => return copy!("ca", "4"),
            8 => return copy!("ca", "8"),
            // `cp.async.cg` bypasses the L1 cache.
            16 => return copy!("cg", "16"),
            _ => {}
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe { to.write(from.read()) }
    #[cfg(not(target_arch = "nvptx64"))]
    if matches!(size_of::<T>(), 4 | 8 | 16) {
        // SAFETY: guaranteed by the caller.
        unsafe { crate::host::copies::delay(to.cast(), size_of::<T>() as u32) }
    }
}

/// Waits until all copies that the calling thread started with [`copy_async`] are complete.
#[inline(always)]
pub fn wait_copies() {
    // SAFETY: the instruction has no operands. By default, LLVM assumes that inline assembly may change memory.
    #[cfg(target_arch = "nvptx64")]
    unsafe {
        core::arch::asm!("cp.async.wait_all;", options(nostack))
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::host::copies::wait_copies(None);
}

/// Commits all copies that the calling thread started with [`copy_async`] since its last commit as one group.
#[inline(always)]
pub fn commit_copies() {
    // SAFETY: the instruction has no operands. The instruction is not moved past copies, because copies are volatile
    // too.
    #[cfg(target_arch = "nvptx64")]
    unsafe {
        core::arch::asm!("cp.async.commit_group;", options(nostack))
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::host::copies::commit_copies();
}

/// Waits until all but the latest `LATEST` groups that the calling thread committed with [`commit_copies`] are
/// complete.
///
/// ```
/// use gpu_std::prelude::*;
/// use gpu_std::shared::{commit_copies, copy_async, wait_copies_leaving};
///
/// /// `sums[t]` becomes the sum of every 32nd element of `x` from `t` on; each thread has copied the next when it adds one.
/// ///
/// /// # Safety
/// ///
/// /// `x` has a multiple of 32 elements, and some.
/// #[kernel(block(32))]
/// unsafe fn sums(x: &[f32], mut out: DisjointMut<f32>) {
///     let ring: *mut f32 = shared_array![f32; 64];
///     let own = thread::linear_in_block() as usize;
///     let mut sum = 0.0;
///     // SAFETY: elements of the thread's own, which are read when they are complete and written again after that.
///     unsafe {
///         copy_async(&x[own], ring.add(own));
///         commit_copies();
///         for (step, at) in (own..x.len()).step_by(32).enumerate() {
///             if at + 32 < x.len() {
///                 copy_async(&x[at + 32], ring.add((step + 1) % 2 * 32 + own));
///             }
///             commit_copies();
///             wait_copies_leaving::<1>();
///             sum += ring.add(step % 2 * 32 + own).read();
///         }
///     }
///     if let Some(out) = out.get_mut(thread::unique_index()) {
///         *out = sum;
///     }
/// }
/// ```
#[inline(always)]
pub fn wait_copies_leaving<const LATEST: usize>() {
    // SAFETY: as in `wait_copies`.
    #[cfg(target_arch = "nvptx64")]
    unsafe {
        core::arch::asm!("cp.async.wait_group {};", const LATEST, options(nostack))
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::host::copies::wait_copies(Some(LATEST));
}
