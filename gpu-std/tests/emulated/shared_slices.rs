//! Arrays in dynamic shared memory: `Shared<[T]>` and `DoubleBuffer<[T]>`.

use crate::common::{Args, launch_shared};
use gpu_std::prelude::*;
use gpu_std::{Kernel, ParamKind};

/// Returns the bytes of dynamic shared memory for arrays of these sizes in bytes.
fn bytes(arrays: &[usize]) -> u32 {
    arrays.iter().map(|bytes| bytes.next_multiple_of(SharedLen::ALIGN) as u32).sum()
}

/// A 12-byte struct.
#[derive(Clone, Copy, KernelType)]
#[repr(C)]
struct Point([f32; 3]);

#[kernel(types(T = u8, f64))]
fn several<T: Scalar>(
    mut bytes: Shared<[T]>,
    first: u32,
    mut fixed: Shared<[u16; 40]>,
    mut points: Shared<[Point]>,
    mut rows: Shared<[[u64; 3]]>,
    mut planes: Shared<[[[u8; 2]; 3]]>,
    mut sums: DisjointMut<u64, PerBlock>,
) {
    let _ = bytes.fill(|[_]| T::ONE);
    fixed.fill(|[i]| i as u16);
    points.fill(|[i]| Point([i as f32, 0.0, 1.0]));
    rows.fill(|[row, column]| 1000 * row as u64 + column as u64);
    planes.fill(|[plane, row, column]| (100 * plane + 10 * row + column) as u8);
    // All arrays still contain their values after others were written.
    let mut sum = u64::from(first);
    let bytes = bytes.update(|_, [_]| {});
    sum += bytes.iter().filter(|byte| **byte == T::ONE).count() as u64;
    let (points, rows) = (points.update(|_, [_]| {}), rows.update(|_, [_, _]| {}));
    sum += points.iter().map(|Point([x, y, z])| (*x + *y + *z) as u64).sum::<u64>();
    sum += rows.iter().flatten().sum::<u64>();
    sum += planes.update(|_, [_, _, _]| {}).iter().flatten().flatten().map(|x| u64::from(*x)).sum::<u64>();
    sum += fixed.update(|_, [_]| {}).iter().map(|x| u64::from(*x)).sum::<u64>();
    if let Some(out) = sums.get_mut(block::unique_index()) {
        *out = sum;
    }
}

#[test]
fn arrays_of_several_types_lie_apart() {
    fn check<K: Kernel>(element: usize) {
        for [a, b, c, d] in [[7usize, 5, 3, 2], [0, 1, 0, 1], [1, 0, 1, 0], [0; 4], [33, 20, 9, 2]] {
            let shared = bytes(&[element * a, 12 * b, 24 * c, 6 * d]);
            for threads in [1, 3, 32, 64] {
                let mut sums = vec![0; 2];
                let args = Args::new().value(a).value(5u32).value(b).value(c).value(d).view(&mut sums);
                launch_shared::<K>([2, 1, 1], [threads, 1, 1], shared, &args).unwrap();
                let points: usize = (0..b).map(|i| i + 1).sum();
                let rows: usize = (0..c).map(|row| 3000 * row + 3).sum();
                let planes: usize = (0..d).map(|plane| 600 * plane + 63).sum();
                let expected = 5 + a + points + rows + planes + 39 * 20;
                assert_eq!(sums, [expected as u64; 2], "{a} {b} {c} {d} in blocks of {threads}");
            }
        }
    }
    check::<several<u8>>(1);
    check::<several<f64>>(8);
}

#[test]
fn their_lengths_are_parameters_of_the_launch() {
    let info = &several::<f64>::spec().info;
    let params: Vec<_> = info.params.iter().map(|param| (param.name, param.kind, param.size)).collect();
    assert_eq!(
        params[..3],
        [("bytes", ParamKind::Shared, 8), ("first", ParamKind::Value, 4), ("points", ParamKind::Shared, 12)]
    );
    assert_eq!((info.static_shared, info.has_dynamic_shared()), (80, true));
    let info = &pair::spec().info;
    assert_eq!((info.params[1].kind, info.params[1].size), (ParamKind::Shared, 8));
    assert_eq!(info.static_shared, 0);
}

#[kernel]
fn pair(data: &[u32], mut sums: DoubleBuffer<[u32]>) {
    let _ = (data, &mut sums);
}

#[test]
fn too_little_shared_memory_is_a_fault() {
    let args = Args::new().value(64usize);
    let fault = launch_shared::<out_of_range>([1, 1, 1], [64, 1, 1], 255, &args).unwrap_err();
    assert!(fault.message().contains("need at least 256 bytes"), "{fault}");
    assert!(fault.message().contains("requested 255"), "{fault}");
}

#[kernel]
fn returns_early(mut tile: Shared<[u32]>) {
    if thread::linear_in_block() > 0 {
        tile.fill(|[_]| 0);
    }
}

#[test]
fn a_thread_that_misses_an_operation_is_reported() {
    let args = Args::new().value(16usize);
    let fault = launch_shared::<returns_early>([1, 1, 1], [8, 1, 1], 64, &args).unwrap_err();
    assert!(fault.message().contains("Shared::fill"), "{fault}");
}

#[kernel]
fn out_of_range(mut tile: Shared<[u32]>) {
    let tile = tile.zeroed();
    let _ = core::hint::black_box(tile[tile.len()]);
}

#[test]
fn an_index_beyond_the_length_is_a_panic() {
    let args = Args::new().value(16usize);
    let fault = launch_shared::<out_of_range>([1, 1, 1], [8, 1, 1], 64, &args).unwrap_err();
    assert!(fault.message().contains("the len is 16 but the index is 16"), "{fault}");
}
