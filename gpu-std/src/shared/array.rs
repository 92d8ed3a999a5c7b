//! [`Shared`]: an array in shared memory that safe code writes and reads.

use core::marker::PhantomData;

use super::data::{SharedArray, SharedData};
use super::own::{clear_own, for_each_own, reference, sync};

/// An array that the threads of a block share, as a kernel parameter.
///
/// With a fixed length, `A` is `[T; N]`, `[[T; C]; R]` or `[[[T; C]; R]; P]`. The sizes can be generic parameters of
/// the kernel. Such an array is not an argument of a launch. In dynamic shared memory, `A` is `[T]`, `[[T; C]]` or
/// `[[[T; C]; R]]`, and the launch passes [`SharedLen(length)`](gpu_spec::SharedLen) for it. The block writes an array
/// collectively with [`fill`](Self::fill), [`update`](Self::update) or [`zeroed`](Self::zeroed). Each of these methods
/// returns a reference to the whole array to every thread. The reference must be dropped before the next write. The
/// module documentation explains why no thread ever reads an array while another one writes it.
///
/// # Requirements of every operation
/// Every thread of the block must perform the same operations in the same order, because the threads wait for each
/// other, as in [`block::reduce`](crate::block::reduce). The emulated device reports a thread that arrives from a
/// different source location, has returned, or waits for something else. On a GPU, a kernel with such a thread hangs.
/// If all threads that have not returned reach some operation on the same array, the kernel does not hang, but the
/// contents of the array are wrong. Each element then has the value of its own thread's operation, and the elements of
/// threads that have returned contain arbitrary bytes.
///
/// # Performance
/// Fix the block's shape with `#[kernel(block(16, 16))]`. The compiler can then unroll the loops over elements. It also
/// removes the bounds check of an index such as `tile[row + 1][column]` if `row` and `column` are the thread's own
/// indices and the array is large enough. In `fill`, compute coordinates in `u32`, which takes half as many GPU
/// instructions as `usize`. Merge arrays that are written together into one array with an additional index to save
/// barriers.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// The sum of each element and its neighbors.
/// #[kernel(types(T = f32, u64), block(256))]
/// fn blur<T: Scalar>(data: &[T], mut tile: Shared<[T; 258]>, mut out: DisjointMut<T>) {
///     let own = thread::thread_idx_x() as usize;
///     let first = block::linear_index() * 256;
///     let tile = tile.fill(|[i]| (first + i).checked_sub(1).and_then(|i| data.get(i)).copied().unwrap_or(T::ZERO));
///     if let Some(out) = out.get_mut(thread::unique_index()) {
///         *out = tile[own].wrapping_add(tile[own + 1]).wrapping_add(tile[own + 2]);
///     }
/// }
/// ```
pub struct Shared<'a, A: ?Sized> {
    array: *mut A,
    /// ID of the hardware barrier that only this array uses.
    barrier: u32,
    /// True if the block has written the array. Until then, no thread may read it.
    is_written: bool,
    /// True if a panic interrupted an operation and the thread caught the panic.
    #[cfg(not(target_arch = "nvptx64"))]
    is_broken: bool,
    /// Makes the handle neither `Send` nor `Sync` (because of the pointer), and limits its lifetime to the kernel's.
    _kernel: PhantomData<&'a mut A>,
}

impl<A: ?Sized> Shared<'_, A> {
    /// Creates the calling thread's handle to an array.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    /// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
    ///
    /// /// Reverses each 64 numbers.
    /// #[kernel(block(64))]
    /// fn reverse(x: &[u32], mut out: DisjointMut<u32>) {
    ///     let memory = shared_array![u32; 64].cast::<[u32; 64]>();
    ///     // SAFETY: each thread has one handle, and the kernel has no other shared array that uses barrier 1.
    ///     let mut tile = unsafe { Shared::from_raw_parts(memory, 1) };
    ///     let tile = tile.fill(|[i]| x[block::linear_index() * 64 + i]);
    ///     if let Some(out) = out.get_mut(thread::unique_index()) {
    ///         *out = tile[63 - thread::linear_in_block() as usize];
    ///     }
    /// }
    ///
    /// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
    /// # let stream = Device::emulated(0)?.default_stream();
    /// # let module = stream.device().load(&IMAGE)?;
    /// let x = DeviceBuffer::from_host(&stream, &std::array::from_fn::<u32, 64, _>(|i| i as u32))?;
    /// let mut out = DeviceBuffer::<u32>::zeros(&stream, 64)?;
    /// module.kernel::<reverse>()?.launch(&stream, Launch::linear(64, 64), (&x, &mut out))?;
    /// assert_eq!(out.to_host()?[..3], [63, 62, 61]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Safety
    /// While the kernel runs, `array` must be valid for reads and writes by all threads of the block. Only the handles
    /// created here may use the array: one per thread, all with the same barrier. The barrier must have no other use.
    #[inline(always)]
    pub unsafe fn from_raw_parts(array: *mut A, barrier: u32) -> Self {
        Self {
            array,
            barrier,
            is_written: false,
            #[cfg(not(target_arch = "nvptx64"))]
            is_broken: false,
            _kernel: PhantomData,
        }
    }
}

impl<T> Shared<'_, [T]> {
    /// Returns the length that the launch passed, in elements.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    ///
    /// /// The mean of each element and its existing neighbors up to `reach` away. A launch with blocks of `n` threads
    /// /// passes `(reach, &data, SharedLen(n + 2 * reach), &mut out)`.
    /// #[kernel]
    /// fn blur(reach: usize, data: &[f32], mut tile: Shared<[f32]>, mut out: DisjointMut<f32>) {
    ///     let first = block::linear_index() * block::threads() as usize;
    ///     assert!(tile.len() >= block::threads() as usize + 2 * reach, "the tile is too short");
    ///     let tile = tile.fill(|[i]| (first + i).checked_sub(reach).and_then(|i| data.get(i)).copied().unwrap_or(0.0));
    ///     let index = thread::unique_index();
    ///     if let Some(out) = out.get_mut(index) {
    ///         let around = &tile[index.get() - first..][..2 * reach + 1];
    ///         let count = (index.get() + reach + 1).min(data.len()) - index.get().saturating_sub(reach);
    ///         *out = around.iter().sum::<f32>() / count as f32;
    ///     }
    /// }
    /// ```
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.array.len()
    }

    /// Returns true if the array has no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<A: SharedData + ?Sized> Shared<'_, A> {
    /// Sets each element to the value that `value` returns for its indices: `|[i]|`, `|[row, column]|` or
    /// `|[plane, row, column]|`.
    ///
    /// Except on the first call, the method first waits until all threads of the block have arrived, so that no thread
    /// still reads the array. After writing, the method waits until all threads have written their elements. For any
    /// number of threads and elements, the elements are divided among the threads in memory order, so that adjacent
    /// threads own adjacent elements. If the block has as many threads as the array has elements, thread `t` owns
    /// element `t`.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    ///
    /// /// Adds up, for each block, what it has of `a` and `b`: two tiles written in one phase.
    /// #[kernel(consts(N = 64, 128))]
    /// fn dot<const N: usize>(a: &[f32], b: &[f32], mut tiles: Shared<[[f32; N]; 2]>, mut out: DisjointMut<f32>) {
    ///     let first = block::linear_index() * N;
    ///     let [a, b] = tiles.fill(|[which, i]| if which == 0 { a[first + i] } else { b[first + i] });
    ///     if thread::linear_in_block() == 0
    ///         && let Some(out) = out.get_mut(thread::unique_index())
    ///     {
    ///         *out = a.iter().zip(b).map(|(a, b)| a * b).sum();
    ///     }
    /// }
    /// ```
    ///
    /// # Panics
    /// Panics on the emulated device if a function passed to an earlier operation on the array panicked and the kernel
    /// caught that panic. Does not compile for zero-sized elements.
    #[inline(always)]
    #[track_caller]
    pub fn fill<const D: usize>(&mut self, mut value: impl FnMut([usize; D]) -> A::Element) -> &A
    where
        A: SharedArray<D>,
    {
        const OPERATION: &str = "Shared::fill";
        // The check is evaluated here so that the error names the line of the call.
        const { A::CHECK };
        self.begin(OPERATION);
        // SAFETY: after `begin`, the array may be written.
        unsafe { for_each_own(self.array, |element, indices| element.write(value(indices))) };
        self.end(OPERATION)
    }

    /// Calls `change` for each element and its indices to modify the element. Elements that were never written are
    /// zero.
    ///
    /// Synchronizes the block as [`fill`](Self::fill) does. Every operation divides the elements in the same way, so an
    /// element is always changed by the thread that wrote it.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    ///
    /// /// The running maximum of the rows, after each of them. A block has 32 threads.
    /// #[kernel]
    /// fn running_max(rows: &[[u32; 32]], mut largest: Shared<[u32; 32]>, mut out: DisjointMut<u32, Chunks<32>>) {
    ///     for (row, i) in rows.iter().zip(0..) {
    ///         let largest = largest.update(|element, [column]| *element = row[column].max(*element));
    ///         if i + 1 == rows.len()
    ///             && thread::linear_in_block() == 0
    ///             && let Some(out) = out.get_mut(thread::unique_index())
    ///         {
    ///             out.copy_from_slice(&largest[..out.len()]);
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Panics
    /// Panics in the same cases as [`fill`](Self::fill).
    #[inline(always)]
    #[track_caller]
    pub fn update<const D: usize>(&mut self, mut change: impl FnMut(&mut A::Element, [usize; D])) -> &A
    where
        A: SharedArray<D>,
    {
        const OPERATION: &str = "Shared::update";
        // The check is evaluated here so that the error names the line of the call.
        const { A::CHECK };
        let is_written = self.is_written;
        self.begin(OPERATION);
        let visit = |element: *mut A::Element, indices| {
            // SAFETY: the element is valid and belongs to the calling thread; zeros are a valid value because all bit
            // patterns are.
            unsafe {
                if !is_written {
                    element.write_bytes(0, 1);
                }
                change(&mut *element, indices);
            }
        };
        // SAFETY: after `begin`, the array may be written.
        unsafe { for_each_own(self.array, visit) };
        self.end(OPERATION)
    }

    /// Sets all elements to zero. Use it, for example, for an array of [`Atomic`](crate::atomic::Atomic)s in which the
    /// threads accumulate counts or sums.
    ///
    /// Synchronizes the block as [`fill`](Self::fill) does. To read the totals, use [`update`](Self::update), which
    /// waits for all threads.
    ///
    /// ```
    /// use gpu_std::atomic::{Atomic, Ordering, scope};
    /// use gpu_std::prelude::*;
    ///
    /// #[kernel]
    /// fn histogram(
    ///     data: &[u8],
    ///     mut counts: Shared<[Atomic<u32, scope::Block>; 256]>,
    ///     totals: &[Atomic<u32>],
    /// ) {
    ///     let counted = counts.zeroed();
    ///     for i in thread::grid_stride(data.len()) {
    ///         counted[data[i.get()] as usize].fetch_add(1, Ordering::Relaxed);
    ///     }
    ///     counts.update(|count, [value]| {
    ///         if let Some(total) = totals.get(value) {
    ///             total.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
    ///         }
    ///     });
    /// }
    /// ```
    ///
    /// # Panics
    /// Panics in the same cases as [`fill`](Self::fill).
    #[inline(always)]
    #[track_caller]
    pub fn zeroed(&mut self) -> &A {
        const OPERATION: &str = "Shared::zeroed";
        self.begin(OPERATION);
        // SAFETY: after `begin`, the array may be written.
        unsafe { clear_own(self.array) };
        self.end(OPERATION)
    }

    /// Starts a write phase of the array. Until [`end`](Self::end), no thread holds a reference to the array, and each
    /// thread accesses only its own elements.
    #[inline(always)]
    #[track_caller]
    fn begin(&mut self, operation: &'static str) {
        #[cfg(not(target_arch = "nvptx64"))]
        {
            super::own::check_usable(self.is_broken, operation);
            self.is_broken = true;
        }
        if self.is_written {
            sync(self.barrier, operation);
        }
    }

    #[inline(always)]
    #[track_caller]
    fn end(&mut self, operation: &'static str) -> &A {
        sync(self.barrier, operation);
        self.is_written = true;
        #[cfg(not(target_arch = "nvptx64"))]
        {
            self.is_broken = false;
        }
        // SAFETY: no thread writes before this thread reaches its next barrier, and this borrow must end before that.
        unsafe { reference(self.array) }
    }
}

impl<A: ?Sized> core::fmt::Debug for Shared<'_, A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared").field("is_written", &self.is_written).finish_non_exhaustive()
    }
}
