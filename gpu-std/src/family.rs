//! What the host knows of the kernels that `#[elementwise]`, `#[reduction]` and `#[scan]` make.

use gpu_spec::KernelSpec;

/// One instance of a kernel, by the part of a launch configuration that is fixed when it is compiled.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Accesses that a thread has in flight at once.
    pub items: u32,
    /// Bytes of one access.
    pub vector: u32,
    /// The instance.
    pub spec: fn() -> &'static KernelSpec,
}

/// A function that [`#[elementwise]`](macro@crate::elementwise) made a kernel, with its element types: `scale`,
/// `scale<f32>`. `ops::map` of the crate `warpsmith` launches it.
///
/// # Safety
///
/// All variants are safe kernels of `Params`, of which the last is what they write, that apply the same function to each
/// element of all slices, up to the length of the shortest.
pub unsafe trait Elementwise: 'static {
    /// The markers of the kernel's parameters: of scalars, slices that are read, and the one that is written.
    type Params;
    /// The instances.
    const VARIANTS: &'static [Variant];
}

/// An operator that [`#[reduction]`](macro@crate::reduction) made a kernel, with its element types: `max_abs`,
/// `max_abs<f32>`. `ops::reduce` of the crate `warpsmith` launches it.
///
/// # Safety
///
/// All variants are kernels of `(Slice<Item>, PointerMut<u64>, PointerMut<Output>)`, of the operator's types, whose
/// conditions are those of [`reduction::reduce_into`](crate::reduction::reduce_into).
pub unsafe trait Reduce: 'static {
    /// Values and operation.
    type Operator: crate::reduction::Reduction;
    /// The instances.
    const VARIANTS: &'static [Variant];
}

/// An operator that [`#[scan]`](macro@crate::scan) made a kernel, with its element types: `or_earlier`, `or_earlier<f32>`.
/// `ops::inclusive_scan` of the crate `warpsmith` launches it.
///
/// # Safety
///
/// All variants are kernels of `(Value<bool>, Value<Value>, Slice<Item>, PointerMut<u64>, Value<usize>, SliceMut<Output>)`, of
/// the operator's types, whose conditions are those of [`scan::scan_slice`](crate::scan::scan_slice).
pub unsafe trait Scan: 'static {
    /// Values and operation.
    type Operator: crate::scan::Operation;
    /// The instances.
    const VARIANTS: &'static [Variant];
}
