//! Host-side traits of the kernels that `#[elementwise]`, `#[reduction]` and `#[scan]` make.

use gpu_spec::KernelSpec;

/// One instance of a kernel, identified by the compile-time part of a launch configuration.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Accesses in flight per thread.
    pub items: u32,
    /// Bytes per access.
    pub vector: u32,
    /// Specification of the instance.
    pub spec: fn() -> &'static KernelSpec,
}

/// A function that [`#[elementwise]`](macro@crate::elementwise) made a kernel, with its element types: `scale`,
/// `scale<f32>`. `ops::map` of the crate `warpsmith` launches it.
///
/// # Safety
///
/// All variants are safe kernels of `Params`, which write only the last parameter. They apply the same function to each
/// element of all slices, up to the length of the shortest.
pub unsafe trait Elementwise: 'static {
    /// Markers of the kernel's parameters: scalars, input slices, and the output slice.
    type Params;
    /// All instances.
    const VARIANTS: &'static [Variant];
}

/// An operator that [`#[reduction]`](macro@crate::reduction) made a kernel, with its element types: `max_abs`,
/// `max_abs<f32>`. `ops::reduce` of the crate `warpsmith` launches it.
///
/// # Safety
///
/// All variants are kernels of `(Slice<Item>, PointerMut<u64>, PointerMut<Output>)`, with the operator's types. Their
/// conditions are those of [`reduction::reduce_into`](crate::reduction::reduce_into).
pub unsafe trait Reduce: 'static {
    /// Types and operation of the reduction.
    type Operator: crate::reduction::Reduction;
    /// All instances.
    const VARIANTS: &'static [Variant];
}

/// An operator that [`#[scan]`](macro@crate::scan) made a kernel, with its element types: `or_earlier`,
/// `or_earlier<f32>`. `ops::inclusive_scan` of the crate `warpsmith` launches it.
///
/// # Safety
///
/// All variants are kernels of
/// `(Value<bool>, Value<Value>, Slice<Item>, PointerMut<u64>, Value<usize>, SliceMut<Output>)`, with the operator's
/// types. Their conditions are those of [`scan::scan_slice`](crate::scan::scan_slice).
pub unsafe trait Scan: 'static {
    /// Types and operation of the scan.
    type Operator: crate::scan::Operation;
    /// All instances.
    const VARIANTS: &'static [Variant];
}
