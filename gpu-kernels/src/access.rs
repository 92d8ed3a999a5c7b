//! Bytes of an access, of kernels that do much with each element.

/// Bytes of an access where it may have `vector`: no more than eight elements, of which each takes registers.
pub const fn access<T>(vector: usize) -> usize {
    if vector > 8 * size_of::<T>() { 8 * size_of::<T>() } else { vector }
}
