//! [`DoubleBuffer`]: two arrays in shared memory, one of which is read while the other is written.

use core::marker::PhantomData;

use super::data::{SharedArray, SharedData};
use super::own::{clear_own, for_each_own, reference, sync};

/// Two arrays that the threads of a block share, as a kernel parameter. The threads read one array while they write the
/// other. A `DoubleBuffer` supports the same types and follows the same rules as [`Shared`](super::Shared). It is a
/// launch argument only if it is in dynamic shared memory, such as `DoubleBuffer<[T]>`.
///
/// A `DoubleBuffer` takes twice the memory of a [`Shared`](super::Shared), but a write synchronizes the block only
/// once. With [`step`](Self::step), each new value can depend on all old values.
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
    /// Distance from the first array to the second, in bytes.
    distance: usize,
    /// ID of the hardware barrier that only these arrays use.
    barrier: u32,
    /// Index of the array to write next.
    next: u32,
    /// True if the block has written one of the arrays.
    is_written: bool,
    /// True if a panic interrupted an operation and the thread caught the panic.
    #[cfg(not(target_arch = "nvptx64"))]
    is_broken: bool,
    /// Makes the handle neither `Send` nor `Sync` (because of the pointer), and limits its lifetime to the kernel's.
    _kernel: PhantomData<&'a mut A>,
}

impl<A: ?Sized> DoubleBuffer<'_, A> {
    /// Creates the calling thread's handle to the two arrays.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    ///
    /// #[kernel(block(64))]
    /// fn halves(mut out: DisjointMut<u32>) {
    ///     let memory = shared_array![u32; 128].cast::<[u32; 64]>();
    ///     // SAFETY: the second array starts 256 bytes later. Each thread has one handle, and nothing
    ///     // else uses barrier 1.
    ///     let mut buffer = unsafe { DoubleBuffer::from_raw_parts(memory, 256, 1) };
    ///     buffer.fill(|[i]| i as u32);
    ///     if let Some(out) = out.get_mut(thread::unique_index()) {
    ///         *out = buffer.current()[63 - thread::linear_in_block() as usize];
    ///     }
    /// }
    /// ```
    ///
    /// # Safety
    /// The conditions of [`Shared::from_raw_parts`](super::Shared::from_raw_parts) apply to the array at `first` and to
    /// a second one that starts `distance` bytes later. The two arrays must not overlap.
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
    /// Returns the length of each array in elements, as passed to the launch.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.first.len()
    }

    /// Returns true if the arrays have no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<A: SharedData + ?Sized> DoubleBuffer<'_, A> {
    /// Sets each element to the value that `value` returns for its indices, like [`Shared::fill`](super::Shared::fill).
    /// Synchronizes the block once, after the threads have written the elements.
    ///
    /// # Panics
    /// Panics in the same cases as [`Shared::fill`](super::Shared::fill).
    #[inline(always)]
    #[track_caller]
    pub fn fill<const D: usize>(&mut self, mut value: impl FnMut([usize; D]) -> A::Element) -> &A
    where
        A: SharedArray<D>,
    {
        const OPERATION: &str = "DoubleBuffer::fill";
        // The check is evaluated here so that the error names the line of the call.
        const { A::CHECK };
        let array = self.begin(OPERATION);
        // SAFETY: `begin` returns the array that this thread may write.
        unsafe { for_each_own(array, |element, indices| element.write(value(indices))) };
        self.end(OPERATION)
    }

    /// Sets each element to the value that `value` returns for the old array and the element's indices. Elements that
    /// were never written are zero. Synchronizes the block after the threads have written the elements. The first call
    /// also synchronizes the block before the elements are written.
    ///
    /// # Panics
    /// Panics in the same cases as [`Shared::fill`](super::Shared::fill).
    #[inline(always)]
    #[track_caller]
    pub fn step<const D: usize>(&mut self, mut value: impl FnMut(&A, [usize; D]) -> A::Element) -> &A
    where
        A: SharedArray<D>,
    {
        const OPERATION: &str = "DoubleBuffer::step";
        // The check is evaluated here so that the error names the line of the call.
        const { A::CHECK };
        let old = self.written(OPERATION);
        let array = self.begin(OPERATION);
        // SAFETY: nothing writes the old array before this thread reaches its next barrier in `end`.
        let old = unsafe { reference(old) };
        // SAFETY: `begin` returns the array that this thread may write, which is not the old one.
        unsafe { for_each_own(array, |element, indices| element.write(value(old, indices))) };
        self.end(OPERATION)
    }

    /// Returns the array that was written most recently. If no array has been written, the method synchronizes the
    /// block and returns an array that contains only zeros.
    ///
    /// # Panics
    /// Panics in the same cases as [`Shared::fill`](super::Shared::fill).
    #[inline(always)]
    #[track_caller]
    pub fn current(&mut self) -> &A {
        // SAFETY: nothing writes the array before this thread reaches the second barrier from here, and this borrow has
        // ended by then.
        unsafe { reference(self.written("DoubleBuffer::current")) }
    }

    /// Returns the array that was written most recently. If no array has been written, the method clears one first.
    #[inline(always)]
    #[track_caller]
    fn written(&mut self, operation: &'static str) -> *const A {
        if !self.is_written {
            let array = self.begin(operation);
            // SAFETY: `begin` returns the array that this thread may write.
            unsafe { clear_own(array) };
            self.end(operation);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        super::own::check_usable(self.is_broken, operation);
        self.array(1 - self.next)
    }

    #[inline(always)]
    fn array(&self, index: u32) -> *mut A {
        // SAFETY: `next` is 0 or 1, and two arrays exist.
        unsafe { self.first.byte_add(index as usize * self.distance) }
    }

    /// Returns the array to write. Until [`end`](Self::end), no thread holds a reference to this array, and each thread
    /// accesses only its own elements.
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
        sync(self.barrier, operation);
        let array = self.array(self.next);
        self.next = 1 - self.next;
        self.is_written = true;
        #[cfg(not(target_arch = "nvptx64"))]
        {
            self.is_broken = false;
        }
        // SAFETY: no thread writes this array before this thread reaches the second barrier from here, and this borrow
        // has ended by then.
        unsafe { reference(array) }
    }
}

impl<A: ?Sized> core::fmt::Debug for DoubleBuffer<'_, A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DoubleBuffer").field("is_written", &self.is_written).finish_non_exhaustive()
    }
}
