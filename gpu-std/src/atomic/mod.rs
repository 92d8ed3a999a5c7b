//! Atomic operations with an [`Ordering`] and a scope. The scope is the set of threads for which the operation is
//! atomic.
//!
//! The orderings have the same meaning as in [`core::sync::atomic`]. On the GPU they select the `.relaxed`, `.acquire`,
//! `.release` or `.acq_rel` form of the PTX instruction. `SeqCst` compiles to a `fence.sc` followed by the `.acq_rel`
//! form (`.acquire` for a load, `.relaxed` for a store), as PTX's memory model prescribes. Wider scopes cost more; the
//! default is [`scope::Device`]. On the emulated device every scope covers the whole process.
//!
//! A safe kernel can take a `&[Atomic<T>]`, for which the launch passes a mutably borrowed buffer of `T`. An atomic
//! with scope [`scope::Block`] cannot be a kernel parameter, because all blocks share the buffer. Use such an atomic in
//! shared memory. If the result of an operation is unused, the compiler emits a reduction (`red`), which does not wait
//! for the result.
//!
//! ```
//! use gpu_std::atomic::{Atomic, Ordering};
//! use gpu_std::prelude::*;
//!
//! #[kernel]
//! fn histogram(data: &[u8], counts: &[Atomic<u32>]) {
//!     for i in thread::grid_stride(data.len()) {
//!         counts[data[i.get()] as usize].fetch_add(1, Ordering::Relaxed);
//!     }
//! }
//! ```

#[cfg(target_arch = "nvptx64")]
#[path = "gpu.rs"]
mod backend;
#[cfg(not(target_arch = "nvptx64"))]
#[path = "host.rs"]
mod backend;
mod raw;
pub mod scope;

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;

use crate::element::SliceElement;
use crate::scalar::Scalar;
use raw::{Raw, RawInteger};
use scope::{Device, Scope};

pub use core::sync::atomic::Ordering;

/// A number that threads of scope `S` can access atomically.
///
/// An `Atomic` has the size and alignment of `T`.
///
/// ```
/// use gpu_std::atomic::{Atomic, Ordering};
///
/// let count: Atomic<u32> = Atomic::new(40);
/// assert_eq!(count.fetch_add(2, Ordering::Relaxed), 40);
/// assert_eq!(count.load(Ordering::Relaxed), 42);
/// ```
#[repr(transparent)]
pub struct Atomic<T, S = Device> {
    value: UnsafeCell<T>,
    _scope: PhantomData<fn() -> S>,
}

// SAFETY: every access through a shared reference is atomic.
unsafe impl<T: AtomicValue, S> Sync for Atomic<T, S> {}

// All blocks of a launch share the slice, so block scope would be insufficient.
macro_rules! slice_elements {
    ($($scope:ty),*) => { $(
        // SAFETY: the atomic has the layout of `T`, for which all bit patterns are valid. Every access is atomic for
        // all threads of the launch, and the launch borrows the buffer mutably.
        unsafe impl<T: AtomicValue> SliceElement for Atomic<T, $scope> {
            type Param = gpu_spec::param::AtomicSlice<T>;
            const SIGNATURE: u32 = gpu_spec::signature(concat!("Atomic ", stringify!($scope)), &[T::SIGNATURE]);
        }
    )* };
}
slice_elements!(scope::Device, scope::System);

/// A type that supports atomic operations: `i32`, `u32`, `i64`, `u64`, `f32` or `f64`.
///
/// See the example of [`Atomic`].
#[diagnostic::on_unimplemented(
    message = "there are no atomic operations on `{Self}`",
    note = "atomic operations exist on i32, u32, i64, u64, f32 and f64"
)]
pub trait AtomicValue: Raw + Scalar {}

/// An integer type that supports atomic bit operations.
///
/// ```
/// use gpu_std::atomic::{Atomic, AtomicInteger, Ordering};
///
/// /// Sets the bits of `flags`, and returns the bits that were set before.
/// fn raise<T: AtomicInteger>(word: &Atomic<T>, flags: T) -> T {
///     word.fetch_or(flags, Ordering::Relaxed)
/// }
///
/// let word: Atomic<u32> = Atomic::new(1);
/// assert_eq!((raise(&word, 6), word.load(Ordering::Relaxed)), (1, 7));
/// ```
#[diagnostic::on_unimplemented(
    message = "there are no atomic bit operations on `{Self}`",
    note = "atomic bit operations exist on i32, u32, i64 and u64"
)]
pub trait AtomicInteger: AtomicValue + RawInteger {}

macro_rules! implemented {
    ($name:ident: $($t:ty),*) => { $(impl $name for $t {})* };
}
implemented!(AtomicValue: i32, u32, i64, u64, f32, f64);
implemented!(AtomicInteger: i32, u32, i64, u64);

impl<T, S> Atomic<T, S> {
    /// Creates an atomic with this initial value.
    pub const fn new(value: T) -> Self {
        Self { value: UnsafeCell::new(value), _scope: PhantomData }
    }

    /// Returns a reference to an atomic at `ptr`. Use this function for memory that is not declared as `Atomic`, such
    /// as shared memory.
    ///
    /// ```
    /// use gpu_std::atomic::{Atomic, Ordering, scope};
    /// use gpu_std::prelude::*;
    ///
    /// /// Counts the positive numbers of each block.
    /// #[kernel]
    /// fn count_positive(x: &[f32], mut counts: DisjointMut<u32, PerBlock>) {
    ///     let word = shared_array![u32; 1];
    ///     if thread::linear_in_block() == 0 {
    ///         // SAFETY: one thread writes, before the barrier.
    ///         unsafe { word.write(0) };
    ///     }
    ///     block::sync_threads();
    ///     // SAFETY: until the next barrier, all accesses are atomic.
    ///     let count = unsafe { Atomic::<u32, scope::Block>::from_ptr(word) };
    ///     if x.get(thread::unique_index().get()).is_some_and(|x| *x > 0.0) {
    ///         count.fetch_add(1, Ordering::Relaxed);
    ///     }
    ///     block::sync_threads();
    ///     if let Some(out) = counts.get_mut(block::unique_index()) {
    ///         *out = count.load(Ordering::Relaxed);
    ///     }
    /// }
    /// ```
    ///
    /// # Safety
    /// `ptr` must be aligned and valid for reads and writes for `'a`. Any two accesses that may happen at the same time
    /// must both be atomic, in a scope that contains both threads.
    #[inline(always)]
    pub const unsafe fn from_ptr<'a>(ptr: *mut T) -> &'a Self {
        // SAFETY: the type has the layout of `T`; the rest is guaranteed by the caller.
        unsafe { &*ptr.cast::<Self>() }
    }

    /// Returns the address of the number.
    #[inline(always)]
    pub const fn as_ptr(&self) -> *mut T {
        self.value.get()
    }
}

/// Defines one method per read-modify-write operation.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident => $raw:ident;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(&self, value: T, order: Ordering) -> T {
            // SAFETY: a reference is aligned and valid, and all access is atomic.
            unsafe { T::$raw::<S>(self.as_ptr(), value, order) }
        }
    )* };
}

impl<T: AtomicValue, S: Scope> Atomic<T, S> {
    /// Loads the value. On the emulated device, a load lets other threads run, so that a polling loop terminates.
    ///
    /// # Panics
    /// Panics if `order` is `Release` or `AcqRel`.
    #[inline(always)]
    #[track_caller]
    pub fn load(&self, order: Ordering) -> T {
        assert!(
            !matches!(order, Ordering::Release | Ordering::AcqRel),
            "an atomic load must be Relaxed, Acquire or SeqCst"
        );
        // SAFETY: a reference is aligned and valid, and all access is atomic.
        unsafe { T::load::<S>(self.as_ptr(), order) }
    }

    /// Stores the value.
    ///
    /// # Panics
    /// Panics if `order` is `Acquire` or `AcqRel`.
    #[inline(always)]
    #[track_caller]
    pub fn store(&self, value: T, order: Ordering) {
        assert!(
            !matches!(order, Ordering::Acquire | Ordering::AcqRel),
            "an atomic store must be Relaxed, Release or SeqCst"
        );
        // SAFETY: a reference is aligned and valid, and all access is atomic.
        unsafe { T::store::<S>(self.as_ptr(), value, order) }
    }

    operations! {
        /// Stores the value and returns the previous one.
        swap => swap;
        /// Adds `value`, and returns the previous value. Integer addition wraps.
        fetch_add => add;
        /// Stores the minimum of the current value and `value`, and returns the previous value. NaN counts as less than
        /// every number, and −0 as less than +0.
        fetch_min => min;
        /// Stores the maximum of the current value and `value`, and returns the previous value. NaN counts as greater
        /// than every number, and +0 as greater than −0.
        fetch_max => max;
    }

    /// Stores `new` if the current value is bit-identical to `current`. Returns the previous value in `Ok` if `new` was
    /// stored, otherwise in `Err`.
    ///
    /// Unlike the read-modify-write methods, a failed compare-exchange lets other emulated threads run, so that retry
    /// loops terminate.
    ///
    /// # Panics
    /// Panics if `failure` is `Release` or `AcqRel`.
    #[inline(always)]
    #[track_caller]
    pub fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        assert!(
            !matches!(failure, Ordering::Release | Ordering::AcqRel),
            "the failure ordering of compare_exchange must be Relaxed, Acquire or SeqCst"
        );
        // SAFETY: a reference is aligned and valid, and all access is atomic.
        unsafe { T::compare_exchange::<S>(self.as_ptr(), current, new, success, failure) }
    }
}

impl<T: AtomicInteger, S: Scope> Atomic<T, S> {
    operations! {
        /// Clears the bits that are not set in `value`, and returns the previous value.
        fetch_and => and;
        /// Sets the bits that are set in `value`, and returns the previous value.
        fetch_or => or;
        /// Flips the bits that are set in `value`, and returns the previous value.
        fetch_xor => xor;
    }
}

impl<T: AtomicValue + fmt::Debug, S: Scope> fmt::Debug for Atomic<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load(Ordering::Relaxed).fmt(f)
    }
}

/// Orders the calling thread's memory accesses as observed by the threads of scope `S`.
///
/// # Panics
/// Panics if `order` is `Relaxed`.
///
/// ```no_run
/// use gpu_std::atomic::{Ordering, fence, scope};
/// fence::<scope::Device>(Ordering::Release);
/// ```
#[inline(always)]
#[track_caller]
pub fn fence<S: Scope>(order: Ordering) {
    assert!(
        !matches!(order, Ordering::Relaxed),
        "a fence cannot be Relaxed: use Acquire, Release, AcqRel or SeqCst"
    );
    backend::fence::<S>(order);
}
