//! [`SharedLen`]: the length of an array in dynamic shared memory.

/// The length, in elements, that a launch passes for a kernel parameter `Shared<[T]>` or `DoubleBuffer<[T]>`.
///
/// The arrays of a kernel follow one another in the dynamic shared memory of each block, in parameter order. Each array
/// starts at a multiple of [`Self::ALIGN`] bytes.
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
    /// Alignment of every array, in bytes. It is also the alignment of dynamic shared memory, and therefore the maximum
    /// alignment of an element.
    pub const ALIGN: usize = 16;

    /// Returns the size, in bytes, of an array with elements of type `T` in the dynamic shared memory of a block,
    /// including the padding before the next array. A `DoubleBuffer<[T]>` counts as one array of `[T; 2]`. Returns
    /// `None` if the result exceeds 32 bits.
    #[inline(always)]
    pub const fn bytes<T>(self) -> Option<u32> {
        let Some(bytes) = self.0.checked_mul(size_of::<T>()) else { return None };
        match bytes.checked_next_multiple_of(Self::ALIGN) {
            Some(bytes) if bytes <= u32::MAX as usize => Some(bytes as u32),
            _ => None,
        }
    }
}
