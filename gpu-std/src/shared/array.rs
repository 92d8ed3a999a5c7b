//! [`Shared`]: an array in shared memory that safe code writes and reads.

use core::marker::PhantomData;

use super::data::{SharedArray, SharedData};
use super::own::{clear_own, for_each_own, meet, reference};

/// An array that the threads of a block share: a parameter of a kernel.
///
/// `A` is `[T; N]`, `[[T; C]; R]` or `[[[T; C]; R]; P]`, also of the kernel's own generic parameters. No launch passes such
/// an array. Or its length comes with the launch: `A` is `[T]`, `[[T; C]]` or `[[[T; C]; R]]`, and the launch passes
/// [`SharedLen(length)`](gpu_spec::SharedLen) for it. The block writes an array together, by [`fill`](Self::fill), [`update`](Self::update) or [`zeroed`](Self::zeroed), which give every thread a
/// reference to the whole array. To write it again the reference has to be gone. The module documentation says why no
/// thread ever sees an array that another one writes.
///
/// # What every operation asks
///
/// Every thread of the block takes part, in the same operations in the same order, as for
/// [`block::reduce`](crate::block::reduce): they wait for each other. The emulated device reports a thread that comes to
/// another place in the source, that has returned, or that waits for something else. On a GPU such a kernel hangs, or,
/// if all threads that have not returned come to some operation on the same array, finds other values in it: those of
/// each thread's own operation, and any bytes in the elements of threads that have returned.
///
/// # Speed
///
/// Require the block's shape, by `#[kernel(block(16, 16))]`. The compiler then unrolls the loops over elements, and drops
/// the check of an index such as `tile[row + 1][column]`, where `row` and `column` are the thread's own and the array is
/// large enough. In `fill` compute coordinates in `u32`, which a GPU does in half the instructions of `usize`. Several
/// arrays that are written together are better one, with an index more: that saves barriers.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// The sum of each element and its neighbours.
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
    /// The number of the block's barrier for this array alone.
    barrier: u32,
    /// Whether the block has written it. If not, no thread reads it.
    is_written: bool,
    /// Whether a panic ended an operation half way, in a thread that caught it.
    #[cfg(not(target_arch = "nvptx64"))]
    is_broken: bool,
    /// Neither `Send` nor `Sync`, by the pointer; not for longer than the kernel.
    _kernel: PhantomData<&'a mut A>,
}

impl<A: ?Sized> Shared<'_, A> {
    /// The calling thread's share in an array.
    ///
    /// # Safety
    ///
    /// While the kernel runs `array` is valid for reads and writes by all threads of the block, and used by nothing else
    /// than what they make of this, once each, all with the same barrier, which has no other use.
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
    /// The length that the launch passed, in elements.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    ///
    /// /// The mean of each element and its neighbours up to `reach` away, of those that there are. A launch of blocks of
    /// /// `n` threads passes `(reach, &data, SharedLen(n + 2 * reach), &mut out)`.
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

    /// Whether it has no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<A: SharedData + ?Sized> Shared<'_, A> {
    /// Gives each element the value that `value` returns for its indices: `|[i]|`, `|[row, column]|` or
    /// `|[plane, row, column]|`.
    ///
    /// Waits until all threads of the block are here, so that none reads the array any more (not the first time), and,
    /// when the elements are written, until all have written theirs. The threads divide the elements, however many there
    /// are of both, in the order of the array's memory: neighbouring threads have neighbouring elements, and thread `t`
    /// of a block with as many threads as the array has elements has element `t`.
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
    ///
    /// On the emulated device, if a function given to an earlier operation on the array panicked and the kernel caught
    /// that. Does not compile for elements of no bytes.
    #[inline(always)]
    #[track_caller]
    pub fn fill<const D: usize>(&mut self, mut value: impl FnMut([usize; D]) -> A::Element) -> &A
    where
        A: SharedArray<D>,
    {
        const OPERATION: &str = "Shared::fill";
        // Here, so that the error names the line of the call.
        const { A::CHECK };
        self.begin(OPERATION);
        // SAFETY: `begin` says that the array is for writing.
        unsafe { for_each_own(self.array, |element, indices| element.write(value(indices))) };
        self.end(OPERATION)
    }

    /// Lets `change` change each element, given with its indices. Elements that were never written are zero.
    ///
    /// Waits as [`fill`](Self::fill) does, with the same division of the elements, which is that of every operation: the
    /// thread that wrote an element is the one that changes it.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    ///
    /// /// The running maximum of the rows, after each of them. A block has 32 threads.
    /// #[kernel]
    /// fn running_max(rows: &[[u32; 32]], mut greatest: Shared<[u32; 32]>, mut out: DisjointMut<u32, Chunks<32>>) {
    ///     for (row, i) in rows.iter().zip(0..) {
    ///         let greatest = greatest.update(|element, [column]| *element = row[column].max(*element));
    ///         if i + 1 == rows.len()
    ///             && thread::linear_in_block() == 0
    ///             && let Some(out) = out.get_mut(thread::unique_index())
    ///         {
    ///             out.copy_from_slice(&greatest[..out.len()]);
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// As [`fill`](Self::fill).
    #[inline(always)]
    #[track_caller]
    pub fn update<const D: usize>(&mut self, mut change: impl FnMut(&mut A::Element, [usize; D])) -> &A
    where
        A: SharedArray<D>,
    {
        const OPERATION: &str = "Shared::update";
        // Here, so that the error names the line of the call.
        const { A::CHECK };
        let is_written = self.is_written;
        self.begin(OPERATION);
        let visit = |element: *mut A::Element, indices| {
            // SAFETY: the element is valid and the calling thread's own; zeros are a value, as any bytes are.
            unsafe {
                if !is_written {
                    element.write_bytes(0, 1);
                }
                change(&mut *element, indices);
            }
        };
        // SAFETY: `begin` says that the array is for writing.
        unsafe { for_each_own(self.array, visit) };
        self.end(OPERATION)
    }

    /// Sets all elements to zero, such as those of an array of [`Atomic`](crate::atomic::Atomic)s, with which the
    /// threads count or add up together.
    ///
    /// Waits as [`fill`](Self::fill) does. [`update`](Self::update) reads what all have counted: it waits for them.
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
    ///
    /// As [`fill`](Self::fill).
    #[inline(always)]
    #[track_caller]
    pub fn zeroed(&mut self) -> &A {
        const OPERATION: &str = "Shared::zeroed";
        self.begin(OPERATION);
        // SAFETY: `begin` says that the array is for writing.
        unsafe { clear_own(self.array) };
        self.end(OPERATION)
    }

    /// Lets `write` write elements of the calling thread, with a pointer to the array.
    ///
    /// # Safety
    ///
    /// `write` writes, of the array's elements, only such as `for_each_own` gives to the calling thread.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn write_own(&mut self, operation: &'static str, write: impl FnOnce(*mut A)) -> &A {
        self.begin(operation);
        write(self.array);
        self.end(operation)
    }

    /// Until [`end`](Self::end) no thread has a reference to the array, and each uses its own elements.
    #[inline(always)]
    #[track_caller]
    fn begin(&mut self, operation: &'static str) {
        #[cfg(not(target_arch = "nvptx64"))]
        {
            super::own::check_usable(self.is_broken, operation);
            self.is_broken = true;
        }
        if self.is_written {
            meet(self.barrier, operation);
        }
    }

    #[inline(always)]
    #[track_caller]
    fn end(&mut self, operation: &'static str) -> &A {
        meet(self.barrier, operation);
        self.is_written = true;
        #[cfg(not(target_arch = "nvptx64"))]
        {
            self.is_broken = false;
        }
        // SAFETY: until this thread comes to the next meeting, which needs this borrow to have ended, none writes.
        unsafe { reference(self.array) }
    }
}

impl<A: ?Sized> core::fmt::Debug for Shared<'_, A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared").field("is_written", &self.is_written).finish_non_exhaustive()
    }
}
