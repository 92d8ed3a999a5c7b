//! [`SharedLen`]: the length of an array in shared memory that comes with a launch.

/// The length, in elements, of a kernel's parameter `Shared<[T]>` or `DoubleBuffer<[T]>`: what a launch passes for it.
///
/// The arrays of a kernel lie in the dynamic shared memory of each block, one after the other in the order of the
/// parameters, each at a multiple of [`Self::ALIGN`] bytes.
///
/// ```
/// use gpu_spec::SharedLen;
///
/// assert_eq!(SharedLen(100).bytes::<f32>(), Some(400));
/// assert_eq!(SharedLen(101).bytes::<f32>(), Some(416));
/// assert_eq!(SharedLen(0).bytes::<f32>(), Some(0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharedLen(pub usize);

impl SharedLen {
    /// Alignment in bytes of every array: that of dynamic shared memory, and the most that an element can need.
    pub const ALIGN: usize = 16;

    /// Bytes that an array of elements `T` takes of a block's dynamic shared memory, with those up to the next array; that
    /// of a `DoubleBuffer<[T]>` as one of `[T; 2]`. `None` when they are more than 32 bits count.
    #[inline(always)]
    pub const fn bytes<T>(self) -> Option<u32> {
        let Some(bytes) = self.0.checked_mul(size_of::<T>()) else { return None };
        match bytes.checked_next_multiple_of(Self::ALIGN) {
            Some(bytes) if bytes <= u32::MAX as usize => Some(bytes as u32),
            _ => None,
        }
    }
}
