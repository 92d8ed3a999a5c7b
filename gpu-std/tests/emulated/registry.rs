//! Records that `#[kernel]` writes about a kernel.

use gpu_std::prelude::*;
use gpu_std::{Kernel, ParamKind, SafeKernel};

/// Every kind of parameter and option.
///
/// # Safety
///
/// There are no conditions, because the kernel does nothing.
#[kernel(types(T = f32, f16; U = i64), consts(N = 2, 8; NEGATIVE = -3; FLAG = true, false), launch_bounds(256, 2), arch = 90, stack = 4096)]
pub unsafe fn everything<T: Scalar, U, const N: usize, const NEGATIVE: i32, const FLAG: bool>(
    value: T::Accumulator,
    array: [U; 3],
    slice: &[T],
    view: DisjointMut<[T; N], Chunks<N>>,
    pointer: *const U,
    pointer_mut: *mut T,
) where
    U: KernelType,
{
    let _ = (value, array, slice, view.len(), pointer, pointer_mut, NEGATIVE, FLAG);
}

#[kernel]
fn plain() {}

#[test]
fn the_spec_says_everything() {
    let spec = <everything<f16, i64, 8, -3, true> as Kernel>::spec();
    assert_eq!(spec.name, "everything");
    assert_eq!(spec.symbol, "everything__f16_i64_8_m3_1");
    assert_eq!(spec.package, "warpsmith-gpu-std");
    assert_eq!((spec.type_argument("T"), spec.type_argument("U")), (Some("f16"), Some("i64")));
    assert_eq!((spec.const_argument("N"), spec.const_argument("NEGATIVE")), (Some(8), Some(-3)));
    assert_eq!(spec.const_argument("FLAG"), Some(1));
    let bounds = spec.launch_bounds.expect("they are given");
    assert_eq!((bounds.max_threads, bounds.min_blocks, spec.min_arch, spec.is_safe), (256, 2, 90, false));
    assert_eq!((spec.stack, <plain as Kernel>::spec().stack), (Some(4096), None));
    let params: Vec<_> = spec.params.iter().map(|p| (p.name, p.kind, p.type_name, p.size, p.align)).collect();
    assert_eq!(
        params,
        [
            ("value", ParamKind::Value, "T::Accumulator", 4, 4),
            ("array", ParamKind::Value, "[U; 3]", 24, 8),
            ("slice", ParamKind::Slice, "&[T]", 2, 2),
            ("view", ParamKind::SliceMut, "DisjointMut<[T; N], Chunks<N>>", 16, 2),
            ("pointer", ParamKind::Pointer, "*const U", 8, 8),
            ("pointer_mut", ParamKind::PointerMut, "*mut T", 2, 2),
        ]
    );
}

#[test]
fn every_instance_is_registered_once() {
    let mut found: Vec<_> = gpu_std::registry::kernels()
        .filter(|spec| spec.name == "everything")
        .map(|spec| spec.symbol)
        .collect();
    found.sort_unstable();
    let mut expected: Vec<_> = ["f32", "f16"]
        .iter()
        .flat_map(|t| [2, 8].map(|n| [0, 1].map(|flag| format!("everything__{t}_i64_{n}_m3_{flag}"))))
        .flatten()
        .collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let mut listed: Vec<_> = everything::<(), (), 0, 0, false>::instances().map(|spec| spec.symbol).collect();
    listed.sort_unstable();
    assert_eq!(listed, expected);
    assert_eq!(gpu_std::registry::kernels().filter(|spec| spec.symbol == "plain").count(), 1);
}

#[test]
fn safe_kernels_are_marked() {
    fn is_safe<K: SafeKernel>() -> bool {
        K::spec().is_safe
    }
    assert!(is_safe::<plain>());
}
