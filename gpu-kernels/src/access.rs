//! Access size in bytes of compute-heavy kernels.

/// Returns the bytes per access: at most `vector`, and at most eight elements, because each element occupies registers.
pub const fn access<T>(vector: usize) -> usize {
    if vector > 8 * size_of::<T>() { 8 * size_of::<T>() } else { vector }
}
