//! [`DoubleBuffer`]: two arrays in shared memory, one read while the other is written.

use core::marker::PhantomData;

use super::data::{SharedArray, SharedData};
use super::own::{clear_own, for_each_own, meet, reference};

/// Two arrays that the threads of a block share: one is read while the other is written. A parameter of a kernel, of the
/// same types and with the same rules as [`Shared`](super::Shared): no launch passes it, unless its length comes with the
/// launch, as that of a `DoubleBuffer<[T]>`.
///
/// It takes twice the memory of a [`Shared`](super::Shared), and a write waits for the block once instead of twice; and
/// the new values can depend on all the old ones, by [`step`](Self::step).
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// The inclusive prefix sum of each block's part of `data`, as Hillis and Steele compute it.
/// #[kernel(launch_bounds(256))]
/// fn block_scan(data: &[u32], mut sums: DoubleBuffer<[u32; 256]>, mut out: DisjointMut<u32>) {
///     let first = block::linear_index() * block::threads() as usize;
///     sums.fill(|[i]| data.get(first + i).copied().unwrap_or(0));
///     let mut distance = 1;
///     while distance < 256 {
///         sums.step(|old, [i]| if i < distance { old[i] } else { old[i].wrapping_add(old[i - distance]) });
///         distance *= 2;
///     }
///     let own = thread::linear_in_block() as usize;
///     if let (Some(out), Some(sum)) = (out.get_mut(thread::unique_index()), sums.current().get(own)) {
///         *out = *sum;
///     }
/// }
/// ```
pub struct DoubleBuffer<'a, A: ?Sized> {
    first: *mut A,
    /// Bytes from the first array to the second.
    distance: usize,
    /// The number of the block's barrier for these arrays alone.
    barrier: u32,
    /// Which of them is written next.
    next: u32,
    /// Whether the block has written one.
    is_written: bool,
    /// Whether a panic ended an operation half way, in a thread that caught it.
    #[cfg(not(target_arch = "nvptx64"))]
    is_broken: bool,
    /// Neither `Send` nor `Sync`, by the pointer; not for longer than the kernel.
    _kernel: PhantomData<&'a mut A>,
}

impl<A: ?Sized> DoubleBuffer<'_, A> {
    /// The calling thread's share in two arrays.
    ///
    /// # Safety
    ///
    /// As [`Shared::from_raw_parts`](super::Shared::from_raw_parts), for the array at `first` and for one that begins
    /// `distance` bytes after, and does not overlap with it.
    #[inline(always)]
    pub unsafe fn from_raw_parts(first: *mut A, distance: usize, barrier: u32) -> Self {
        Self {
            first,
            distance,
            barrier,
            next: 0,
            is_written: false,
            #[cfg(not(target_arch = "nvptx64"))]
            is_broken: false,
            _kernel: PhantomData,
        }
    }
}

impl<T> DoubleBuffer<'_, [T]> {
    /// The length of each array that the launch passed, in elements.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.first.len()
    }

    /// Whether they have no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<A: SharedData + ?Sized> DoubleBuffer<'_, A> {
    /// Gives each element the value that `value` returns for its indices, as [`Shared::fill`](super::Shared::fill) does.
    /// Waits once, when the elements are written.
    ///
    /// # Panics
    ///
    /// As [`Shared::fill`](super::Shared::fill).
    #[inline(always)]
    #[track_caller]
    pub fn fill<const D: usize>(&mut self, mut value: impl FnMut([usize; D]) -> A::Element) -> &A
    where
        A: SharedArray<D>,
    {
        const OPERATION: &str = "DoubleBuffer::fill";
        // Here, so that the error names the line of the call.
        const { A::CHECK };
        let array = self.begin(OPERATION);
        // SAFETY: `begin` gives the array that is for writing.
        unsafe { for_each_own(array, |element, indices| element.write(value(indices))) };
        self.end(OPERATION)
    }

    /// Gives each element the value that `value` returns for the array as it was and the element's indices. Elements
    /// that were never written are zero. Waits once, when the elements are written; the first time also before.
    ///
    /// # Panics
    ///
    /// As [`Shared::fill`](super::Shared::fill).
    #[inline(always)]
    #[track_caller]
    pub fn step<const D: usize>(&mut self, mut value: impl FnMut(&A, [usize; D]) -> A::Element) -> &A
    where
        A: SharedArray<D>,
    {
        const OPERATION: &str = "DoubleBuffer::step";
        // Here, so that the error names the line of the call.
        const { A::CHECK };
        let old = self.written(OPERATION);
        let array = self.begin(OPERATION);
        // SAFETY: nothing writes the old array before this thread comes to the next meeting, in `end`.
        let old = unsafe { reference(old) };
        // SAFETY: `begin` gives the array that is for writing, which is the other one.
        unsafe { for_each_own(array, |element, indices| element.write(value(old, indices))) };
        self.end(OPERATION)
    }

    /// The array as it is; all zero if it was never written, for which the block waits then.
    ///
    /// # Panics
    ///
    /// As [`Shared::fill`](super::Shared::fill).
    #[inline(always)]
    #[track_caller]
    pub fn current(&mut self) -> &A {
        // SAFETY: nothing writes it before this thread comes to the meeting after the next, for which this borrow has
        // ended.
        unsafe { reference(self.written("DoubleBuffer::current")) }
    }

    /// The array that was written last, by clearing it if need be.
    #[inline(always)]
    #[track_caller]
    fn written(&mut self, operation: &'static str) -> *const A {
        if !self.is_written {
            let array = self.begin(operation);
            // SAFETY: `begin` gives the array that is for writing.
            unsafe { clear_own(array) };
            self.end(operation);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        super::own::check_usable(self.is_broken, operation);
        self.array(1 - self.next)
    }

    #[inline(always)]
    fn array(&self, index: u32) -> *mut A {
        // SAFETY: `next` is 0 or 1, and there are two arrays.
        unsafe { self.first.byte_add(index as usize * self.distance) }
    }

    /// The array that no thread has a reference to until [`end`](Self::end), and of which each uses its own elements.
    #[inline(always)]
    #[track_caller]
    fn begin(&mut self, operation: &'static str) -> *mut A {
        #[cfg(not(target_arch = "nvptx64"))]
        {
            super::own::check_usable(self.is_broken, operation);
            self.is_broken = true;
        }
        #[cfg(target_arch = "nvptx64")]
        let _ = operation;
        self.array(self.next)
    }

    #[inline(always)]
    #[track_caller]
    fn end(&mut self, operation: &'static str) -> &A {
        meet(self.barrier, operation);
        let array = self.array(self.next);
        self.next = 1 - self.next;
        self.is_written = true;
        #[cfg(not(target_arch = "nvptx64"))]
        {
            self.is_broken = false;
        }
        // SAFETY: until this thread comes to the meeting after the next, before which this borrow has ended, none writes
        // this array.
        unsafe { reference(array) }
    }
}

impl<A: ?Sized> core::fmt::Debug for DoubleBuffer<'_, A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DoubleBuffer").field("is_written", &self.is_written).finish_non_exhaustive()
    }
}
