//! [`Vector`]: several elements that one memory access loads or stores.

use core::ops::{Index, IndexMut};

/// `N` elements that are loaded and stored together. For example, loading a `Vector<f32, 4>` is one 16-byte access on
/// the GPU.
///
/// Vectors of 1, 2, 4, 8 and 16 bytes take one access. Vectors of larger multiples of 16 bytes take several 16-byte
/// accesses. Vectors of any other size are accessed element by element. The type itself only has the alignment of `T`.
/// [`Vector::load`] and [`Vector::store`] require more.
///
/// ```
/// use gpu_std::Vector;
/// #[repr(align(16))]
/// struct Aligned([f32; 4]);
/// let mut data = Aligned([1.0, 2.0, 3.0, 4.0]);
/// // SAFETY: valid for four elements, and aligned to 16 bytes.
/// let mut v: Vector<f32, 4> = unsafe { Vector::load(data.0.as_ptr()) };
/// v[0] = -1.0;
/// // SAFETY: as above.
/// unsafe { v.store(data.0.as_mut_ptr()) };
/// assert_eq!(data.0, [-1.0, 2.0, 3.0, 4.0]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Vector<T, const N: usize>([T; N]);

impl<T: Copy, const N: usize> Vector<T, N> {
    /// Size of the vector in bytes.
    pub const BYTES: usize = N * size_of::<T>();

    /// Alignment that [`load`](Self::load) and [`store`](Self::store) require: the size of one access.
    pub const ALIGN: usize = match Self::BYTES {
        1 | 2 | 4 | 8 => Self::BYTES,
        bytes if bytes > 0 && bytes % 16 == 0 => 16,
        _ => align_of::<T>(),
    };

    /// Creates a vector of these elements.
    #[inline(always)]
    pub const fn from_array(array: [T; N]) -> Self {
        Self(array)
    }

    /// Creates a vector with `value` in every element.
    #[inline(always)]
    pub const fn splat(value: T) -> Self {
        Self([value; N])
    }

    /// Returns the elements.
    #[inline(always)]
    pub const fn to_array(self) -> [T; N] {
        self.0
    }

    /// Applies `f` to every element.
    #[inline(always)]
    pub fn map<U: Copy>(self, f: impl FnMut(T) -> U) -> Vector<U, N> {
        Vector(self.0.map(f))
    }

    /// Loads `N` elements in one vector access.
    ///
    /// See the example of [`Vector`].
    ///
    /// # Safety
    /// `ptr` must be valid for reads of `N` initialized elements, and aligned to [`ALIGN`](Self::ALIGN) bytes.
    ///
    /// # Panics
    /// Panics on the emulated device if `ptr` does not have this alignment.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load(ptr: *const T) -> Self {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: guaranteed by the caller; the accesses cover exactly the vector's bytes.
        unsafe {
            use core::simd::Simd;
            match Self::BYTES {
                2 => Self::load_as::<u16>(ptr),
                4 => Self::load_as::<u32>(ptr),
                8 => Self::load_as::<Simd<u32, 2>>(ptr),
                bytes if bytes > 0 && bytes % 16 == 0 => Self::load_as::<Simd<u32, 4>>(ptr),
                _ => ptr.cast::<Self>().read(),
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            check(ptr, Self::ALIGN);
            // SAFETY: guaranteed by the caller.
            unsafe { ptr.cast::<Self>().read() }
        }
    }

    /// Stores `N` elements in one vector access.
    ///
    /// See the example of [`Vector`].
    ///
    /// # Safety
    /// `ptr` must be valid for writes of `N` elements and aligned to [`ALIGN`](Self::ALIGN) bytes.
    ///
    /// # Panics
    /// Panics on the emulated device if `ptr` does not have this alignment.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn store(self, ptr: *mut T) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: guaranteed by the caller; the accesses cover exactly the vector's bytes.
        unsafe {
            use core::simd::Simd;
            match Self::BYTES {
                2 => self.store_as::<u16>(ptr),
                4 => self.store_as::<u32>(ptr),
                8 => self.store_as::<Simd<u32, 2>>(ptr),
                bytes if bytes > 0 && bytes % 16 == 0 => self.store_as::<Simd<u32, 4>>(ptr),
                _ => ptr.cast::<Self>().write(self),
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            check(ptr, Self::ALIGN);
            // SAFETY: guaranteed by the caller.
            unsafe { ptr.cast::<Self>().write(self) }
        }
    }
}

impl<T: Copy, const N: usize> Vector<T, N> {
    /// Stores `N` elements to global memory with a streaming hint, so that the L2 cache evicts them first (PTX's
    /// `st.cs`). Use it for outputs that are larger than the cache and that all blocks write at several positions at
    /// once.
    ///
    /// See the example of [`Vector`]. Only the cache hint differs.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`store`](Self::store), and `ptr` must point to global memory, as
    /// pointers in kernel arguments do.
    ///
    /// # Panics
    /// Panics in the same cases as [`store`](Self::store).
    #[inline(always)]
    #[track_caller]
    pub unsafe fn store_streaming(self, ptr: *mut T) {
        #[cfg(target_arch = "nvptx64")]
        if Self::BYTES > 0 && Self::BYTES % 16 == 0 {
            let mut access = 0;
            while access < Self::BYTES / 16 {
                // SAFETY: guaranteed by the caller. The local variable may have a smaller alignment than an access; the
                // bytes of each access are within the vector.
                unsafe {
                    let [a, b, c, d] = (&raw const self).cast::<[u32; 4]>().add(access).read_unaligned();
                    core::arch::asm!(
                        "{{ .reg .b64 global; cvta.to.global.u64 global, {ptr}; \
                         st.global.cs.v4.b32 [global], {{{a}, {b}, {c}, {d}}}; }}",
                        ptr = in(reg64) ptr.cast::<[u32; 4]>().add(access),
                        a = in(reg32) a,
                        b = in(reg32) b,
                        c = in(reg32) c,
                        d = in(reg32) d,
                        options(nostack),
                    );
                }
                access += 1;
            }
            return;
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.store(ptr) }
    }
}

#[cfg(target_arch = "nvptx64")]
impl<T: Copy, const N: usize> Vector<T, N> {
    /// Loads the vector in accesses of type `A`.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Vector::load`]. Every bit pattern must be a valid `A`, and the
    /// size of `A` must divide the vector's size.
    #[inline(always)]
    unsafe fn load_as<A>(ptr: *const T) -> Self {
        let mut vector = core::mem::MaybeUninit::<Self>::uninit();
        let mut access = 0;
        while access < Self::BYTES / size_of::<A>() {
            // SAFETY: guaranteed by the caller; the local variable may have a smaller alignment than `A`, so the access
            // to it is unaligned.
            unsafe {
                let part = ptr.cast::<A>().add(access).read();
                vector.as_mut_ptr().cast::<A>().add(access).write_unaligned(part);
            }
            access += 1;
        }
        // SAFETY: all bytes have been written, from `N` valid elements.
        unsafe { vector.assume_init() }
    }

    /// Stores the vector in accesses of type `A`.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Vector::store`]. Every bit pattern must be a valid `A`, and the
    /// size of `A` must divide the vector's size.
    #[inline(always)]
    unsafe fn store_as<A>(self, ptr: *mut T) {
        let mut access = 0;
        while access < Self::BYTES / size_of::<A>() {
            // SAFETY: guaranteed by the caller; the local variable may have a smaller alignment than `A`, so the access
            // to it is unaligned.
            unsafe {
                let part = (&raw const self).cast::<A>().add(access).read_unaligned();
                ptr.cast::<A>().add(access).write(part);
            }
            access += 1;
        }
    }
}

/// Panics for a misaligned address, for which a GPU would stop with a misaligned-address error.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
#[track_caller]
fn check<T>(ptr: *const T, align: usize) {
    assert!(ptr.addr().is_multiple_of(align), "a vector access of {align} bytes at a misaligned address");
}

impl<T, const N: usize> Index<usize> for Vector<T, N> {
    type Output = T;

    #[inline(always)]
    #[track_caller]
    fn index(&self, index: usize) -> &T {
        &self.0[index]
    }
}

impl<T, const N: usize> IndexMut<usize> for Vector<T, N> {
    #[inline(always)]
    #[track_caller]
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.0[index]
    }
}

impl<T, const N: usize> IntoIterator for Vector<T, N> {
    type Item = T;
    type IntoIter = core::array::IntoIter<T, N>;

    #[inline(always)]
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
