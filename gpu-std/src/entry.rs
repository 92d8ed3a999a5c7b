//! Functions that the expansion of `#[kernel]` calls. Do not call them directly.

use crate::disjoint::{DisjointMut, DisjointMut2, DisjointMut3, MutableView};
use crate::element::{KernelType, KernelValue, SliceElement};
use crate::shared::{DoubleBuffer, Shared, SharedData, SharedStatic};
#[cfg(not(target_arch = "nvptx64"))]
use crate::tensor::TensorMap;
use crate::view::{Slice2, Slice3};

#[cfg(all(not(target_arch = "nvptx64"), not(feature = "emulated")))]
pub use crate::host::absent_entry;
#[cfg(not(target_arch = "nvptx64"))]
pub use crate::host::thread::running_indices;
#[cfg(not(target_arch = "nvptx64"))]
pub use linkme;

pub use crate::printf::*;
#[cfg(not(target_arch = "nvptx64"))]
pub use crate::shape::{launch_length, length, read_argument, read_optional_shape, read_shape};
pub use bytemuck;
use gpu_spec::SharedLen;
pub use gpu_spec::{
    AbiParam, Claims, DeviceCopy, Extents2, Extents3, LaunchLimits, Length, WrongLength, signature,
};

/// Alignment of every host buffer in bytes, which is also the maximum alignment of an element.
const BUFFER_ALIGN: usize = 256;

/// Compiles only for types that can be passed by value, and returns their signature.
pub const fn check_value<T: KernelValue>() -> u32 {
    assert!(
        size_of::<T>() > 0,
        "a GPU kernel cannot have a zero-sized parameter: remove it, or make it a generic argument"
    );
    assert!(
        align_of::<T>() <= 16,
        "a value passed to a kernel can be aligned to at most 16 bytes: pass it in a \
                                    slice"
    );
    T::SIGNATURE
}

/// Compiles only for types that can be elements of a slice, and returns their signature.
pub const fn check_element<T: SliceElement>() -> u32 {
    let () = T::CHECKED;
    check_alignment::<T>();
    T::SIGNATURE
}

/// Compiles only for types that can be elements of a view, and returns their signature.
pub const fn check_view<T: KernelType>() -> u32 {
    let _ = T::HAS_PADDING;
    check_alignment::<T>();
    T::SIGNATURE
}

/// Compiles only for types that can be elements of a tensor map, and returns their signature.
pub const fn check_tensor<T: KernelType>() -> u32 {
    assert!(
        matches!(size_of::<T>(), 1 | 2 | 4 | 8),
        "a tensor map supports elements of 1, 2, 4 or 8 bytes: use the type's scalar as the element type"
    );
    T::SIGNATURE
}

const fn check_alignment<T>() {
    assert!(
        align_of::<T>() <= BUFFER_ALIGN,
        "the element's alignment exceeds 256 bytes, the alignment of buffers: \
                                              reduce it"
    );
}

/// Compiles only if `bytes`, the number of padding bytes, is 0. Otherwise, the error names the padding's `place`.
pub const fn check_padding(place: &str, bytes: usize) {
    if bytes > 0 {
        let text = PaddingText::new(place, bytes);
        panic!("{}", text.as_str());
    }
}

/// Buffer for the message of a compile-time error, because constants cannot be formatted in any other way.
struct PaddingText {
    bytes: [u8; 512],
    len: usize,
}

impl PaddingText {
    const fn new(place: &str, bytes: usize) -> Self {
        Self { bytes: [0; 512], len: 0 }
            .text(place)
            .text(", whose contents are undefined: add a field `_padding: [u8; ")
            .number(bytes)
            .text("]` there, or order the fields from the largest alignment to the smallest")
    }

    const fn text(mut self, text: &str) -> Self {
        let mut i = 0;
        while i < text.len() && self.len < self.bytes.len() {
            self.bytes[self.len] = text.as_bytes()[i];
            self.len += 1;
            i += 1;
        }
        self
    }

    const fn number(self, number: usize) -> Self {
        let rest = if number >= 10 { self.number(number / 10) } else { self };
        let digits = "0123456789".split_at(number % 10).1;
        rest.text(digits.split_at(1).0)
    }

    const fn as_str(&self) -> &str {
        match core::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "a kernel's struct has padding",
        }
    }
}

/// Static shared memory limit of a block, in bytes.
const SHARED_BYTES: usize = 48 << 10;

/// Compiles only for types that can be the data of a shared array. Shared arrays are internal to the kernel, so they
/// have no signature.
pub const fn check_shared<T: SharedData>() -> u32 {
    assert!(
        size_of::<T>() > 0,
        "a shared array must have at least one element, which must not be zero-sized"
    );
    0
}

/// Like [`check_shared`], but for the elements of a shared array with a launch-time length.
pub const fn check_shared_elements<T>() -> u32
where
    [T]: SharedData,
{
    assert!(
        size_of::<T>() > 0,
        "a shared array must have at least one element, which must not be zero-sized"
    );
    assert!(
        align_of::<T>() <= SharedLen::ALIGN,
        "the element's alignment exceeds 16 bytes, the alignment of dynamic shared memory: use an array of fixed \
         length"
    );
    0
}

/// Returns the total size in bytes of a kernel's shared arrays, whose sizes are `bytes`. Compiles only if the arrays
/// fit in a block's static shared memory.
pub const fn shared_memory(bytes: &[usize]) -> u32 {
    let mut total = 0;
    let mut i = 0;
    while i < bytes.len() {
        total += bytes[i].next_multiple_of(SharedLen::ALIGN);
        i += 1;
    }
    assert!(
        total <= SHARED_BYTES,
        "the static shared arrays of a kernel can have at most 49152 bytes (a `DoubleBuffer` counts twice): use \
         dynamic shared memory, `Shared<[T]>`, for larger arrays"
    );
    total as u32
}

/// Maximum size of a kernel's parameters, in bytes.
const MAX_PARAMETER_BYTES: usize = 4096;

/// Compiles only if the parameters fit in a launch.
pub const fn check_parameters(params: &[AbiParam]) {
    assert!(
        AbiParam::ptx_param_bytes(params) <= MAX_PARAMETER_BYTES,
        "the parameters of a kernel can have at most 4096 bytes: pass large values in a slice"
    );
}

/// Returns the slice for a slice parameter.
///
/// # Safety
/// `data` must be aligned, not null, and valid for reads of `len` elements while the kernel runs. (The function does
/// not replace a null pointer, because a choice between two pointers would hide from LLVM that the kernel reads global
/// memory.)
#[inline(always)]
pub unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    // SAFETY: guaranteed by the caller.
    unsafe { core::slice::from_raw_parts(data, len) }
}

/// Returns the view for a view parameter.
///
/// # Safety
/// The caller must uphold the safety contract of [`DisjointMut::from_raw_parts`].
#[inline(always)]
pub unsafe fn view<'a, T, M>(data: *mut T, len: usize) -> DisjointMut<'a, T, M> {
    // SAFETY: guaranteed by the caller.
    unsafe { DisjointMut::from_raw_parts(data, len) }
}

/// Makes the block size a compile-time constant, and tells LLVM that the thread's indices are below the block size.
///
/// # Safety
/// Every launch of the running kernel must use the block size of `limits`.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub unsafe fn assume_block(limits: LaunchLimits) {
    use crate::thread::{block_dim_x, block_dim_y, block_dim_z, thread_idx_x, thread_idx_y, thread_idx_z};
    if let Some([x, y, z]) = limits.block() {
        // SAFETY: guaranteed by the caller; each index is below the block size.
        unsafe {
            core::hint::assert_unchecked(block_dim_x() == x && thread_idx_x() < x);
            core::hint::assert_unchecked(block_dim_y() == y && thread_idx_y() < y);
            core::hint::assert_unchecked(block_dim_z() == z && thread_idx_z() < z);
        }
    }
}

/// Returns the launch requirements of a view's claims, the signature of the view's mapping, and the number of elements
/// per claim. Compiles only if the constants of the mapping are valid.
pub const fn claims<V: MutableView>() -> (Claims, u32, usize) {
    if let Some(text) = V::WRONG {
        panic!("{}", text);
    }
    (V::CLAIMS, V::SIGNATURE, V::ITEMS)
}

/// Returns the maximum number of elements per claim over several views; 1 if there are none.
pub const fn items(views: &[usize]) -> usize {
    match views {
        [] => 1,
        [first, rest @ ..] => {
            let rest = items(rest);
            if *first > rest { *first } else { rest }
        }
    }
}

/// Defines functions that create a view from two kernel parameters, on the GPU and on the host.
macro_rules! views {
    ($($make:ident, $read:ident: $view:ident<$($mapping:ident)?>, $pointer:ty, $extents:ident;)*) => { $(
        /// Returns the view for a view parameter.
        ///
        /// # Safety
        /// The conditions of the view's `from_raw_parts` apply.
        #[inline(always)]
        pub unsafe fn $make<'a, T $(, $mapping)?>(data: $pointer, extents: $extents) -> $view<'a, T $(, $mapping)?> {
            // SAFETY: guaranteed by the caller.
            unsafe { $view::from_raw_parts(data, extents) }
        }

        /// Reads kernel parameters `index` (a pointer) and `index + 1` (extents) as a view.
        ///
        /// # Safety
        /// The conditions of [`read_value`] apply to both parameters, and the conditions of the view's `from_raw_parts`
        /// apply to the view.
        #[cfg(not(target_arch = "nvptx64"))]
        #[inline(always)]
        pub unsafe fn $read<'a, T $(, $mapping)?>(
            args: *const *const core::ffi::c_void,
            index: usize,
        ) -> $view<'a, T $(, $mapping)?> {
            // SAFETY: guaranteed by the caller.
            unsafe { $make(read_value(args, index), read_value(args, index + 1)) }
        }
    )* };
}
views! {
    slice2, read_slice2: Slice2<>, *const T, Extents2;
    slice3, read_slice3: Slice3<>, *const T, Extents3;
    view2, read_view2: DisjointMut2<M>, *mut T, Extents2;
    view3, read_view3: DisjointMut3<M>, *mut T, Extents3;
}

/// Returns a shared array of the kernel.
///
/// # Safety
/// Every thread of the launch must call this function exactly once for this static and this barrier. Nothing else may
/// use the static or the barrier.
#[inline(always)]
pub unsafe fn shared<'a, A>(memory: &'static SharedStatic<A>, barrier: u32) -> Shared<'a, A> {
    // SAFETY: guaranteed by the caller; the shared memory outlives the kernel.
    unsafe { Shared::from_raw_parts(memory.as_mut_ptr(), barrier) }
}

/// Returns a pair of shared arrays of the kernel.
///
/// # Safety
/// The caller must uphold the safety contract of [`shared`].
#[inline(always)]
pub unsafe fn double_buffer<'a, A>(
    memory: &'static SharedStatic<[A; 2]>,
    barrier: u32,
) -> DoubleBuffer<'a, A> {
    // SAFETY: as above.
    unsafe { DoubleBuffer::from_raw_parts(memory.as_mut_ptr().cast::<A>(), size_of::<A>(), barrier) }
}

/// Location of an array with a launch-time length in the block's dynamic shared memory.
#[derive(Clone, Copy)]
pub struct SharedPlace {
    /// Total size in bytes of the arrays before this one.
    pub offset: u32,
    /// Number of elements.
    pub len: usize,
    /// Identifies the array's memory on the emulated device, where each array has separate memory.
    #[cfg(not(target_arch = "nvptx64"))]
    pub site: &'static SharedStatic<u8>,
}

impl SharedPlace {
    /// Returns a pointer to the array's memory, with elements of type `T`.
    #[inline(always)]
    #[track_caller]
    fn memory<T>(self) -> *mut T {
        #[cfg(target_arch = "nvptx64")]
        {
            // SAFETY: the launch provides dynamic shared memory for the array.
            unsafe { crate::shared::dynamic::<u8>().add(self.offset as usize).cast() }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let bytes = size_of::<T>().saturating_mul(self.len);
            let site = core::ptr::from_ref(self.site).cast();
            crate::host::shared::dynamic_array(site, self.offset, bytes, align_of::<T>()).cast()
        }
    }
}

/// Returns the size in bytes of `len` elements of type `T` in dynamic shared memory, including padding before the next
/// array.
///
/// # Safety
/// The caller must uphold the safety contract of [`shared_slice`].
#[inline(always)]
pub unsafe fn shared_bytes<T>(len: usize) -> u32 {
    // SAFETY: the elements fit in the shared memory of a block.
    unsafe { SharedLen(len).bytes::<T>().unwrap_unchecked() }
}

/// Returns a shared array with a launch-time length.
///
/// # Safety
/// The caller must uphold the safety contract of [`shared`]. The block must also have dynamic shared memory for the
/// array at `place`, which no other array may use. (The emulated device checks this.)
#[inline(always)]
#[track_caller]
pub unsafe fn shared_slice<'a, T>(place: SharedPlace, barrier: u32) -> Shared<'a, [T]> {
    let array = core::ptr::slice_from_raw_parts_mut(place.memory::<T>(), place.len);
    // SAFETY: guaranteed by the caller.
    unsafe { Shared::from_raw_parts(array, barrier) }
}

/// Returns a pair of shared arrays with a launch-time length. In memory, they form one array of `[T; 2]`.
///
/// # Safety
/// The caller must uphold the safety contract of [`shared_slice`].
#[inline(always)]
#[track_caller]
pub unsafe fn double_buffer_slice<'a, T>(place: SharedPlace, barrier: u32) -> DoubleBuffer<'a, [T]> {
    let first = core::ptr::slice_from_raw_parts_mut(place.memory::<[T; 2]>().cast::<T>(), place.len);
    // SAFETY: guaranteed by the caller.
    unsafe { DoubleBuffer::from_raw_parts(first, place.len * size_of::<T>(), barrier) }
}

/// Reads kernel parameter `index`.
///
/// # Safety
/// `args` must contain more than `index` pointers, and the one at `index` must point to a `T`.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub unsafe fn read_value<T>(args: *const *const core::ffi::c_void, index: usize) -> T {
    // SAFETY: guaranteed by the caller.
    #[cfg(not(warpsmith_check))]
    unsafe {
        (*args.add(index)).cast::<T>().read_unaligned()
    }
    // GPU code never reads these pointers, so the checker does not check accesses to them.
    #[cfg(warpsmith_check)]
    // SAFETY: guaranteed by the caller; the call initializes the value.
    unsafe {
        let mut value = core::mem::MaybeUninit::<T>::uninit();
        crate::host::check::read_argument(args, index, value.as_mut_ptr().cast(), size_of::<T>());
        // This read is instrumented whether or not the kernel uses the value, and tells the checker that the crate is
        // instrumented.
        value.as_ptr().read_volatile()
    }
}

/// Reads kernel parameters `index` (a pointer) and `index + 1` (a length) as a slice.
///
/// # Safety
/// The conditions of [`read_value`] apply to both parameters, and the conditions of [`slice`] apply to the slice.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub unsafe fn read_slice<'a, T>(args: *const *const core::ffi::c_void, index: usize) -> &'a [T] {
    // SAFETY: guaranteed by the caller.
    unsafe { slice(read_value(args, index), read_value(args, index + 1)) }
}

/// Reads kernel parameters `index` (a pointer) and `index + 1` (a length) as a view.
///
/// # Safety
/// The conditions of [`read_value`] apply to both parameters, and the conditions of [`view`] apply to the view.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub unsafe fn read_view<'a, T, M>(
    args: *const *const core::ffi::c_void,
    index: usize,
) -> DisjointMut<'a, T, M> {
    // SAFETY: guaranteed by the caller.
    unsafe { view(read_value(args, index), read_value(args, index + 1)) }
}

/// Returns a reference to the tensor map that the launch passes as kernel parameter `index`.
///
/// # Safety
/// The conditions of [`read_value`] must hold for the duration of the launch.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub unsafe fn read_tensor_map<'a, T: KernelType, const RANK: usize>(
    args: *const *const core::ffi::c_void,
    index: usize,
) -> &'a TensorMap<T, RANK> {
    // SAFETY: guaranteed by the caller; the address is a multiple of 64, as for a kernel parameter on a GPU.
    unsafe { &*(*args.add(index)).cast() }
}

/// Returns whether the pointer that is kernel parameter `index` is null.
///
/// # Safety
/// The caller must uphold the safety contract of [`read_value`].
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub unsafe fn is_null(args: *const *const core::ffi::c_void, index: usize) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { read_value::<*const u8>(args, index).is_null() }
}
