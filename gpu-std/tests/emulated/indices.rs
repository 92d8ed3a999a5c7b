//! Indices in one to three dimensions, disjoint views, grid strides.

use crate::common::{Args, floats, launch, launch_shared};
use gpu_std::prelude::*;

#[kernel]
fn indices(mut out: DisjointMut<[u32; 12]>) {
    if let Some(out) = out.get_mut(thread::unique_index()) {
        let ([tx, ty, tz], [bx, by, bz]) = (thread::thread_idx(), thread::block_idx());
        let [x, y, z] = thread::index_3d();
        assert_eq!(thread::index_2d(), [x, y]);
        assert_eq!(thread::index_1d(), x);
        assert_eq!(block::dim(), thread::block_dim());
        *out = [
            tx,
            ty,
            tz,
            bx,
            by,
            bz,
            x,
            y,
            z,
            thread::linear_in_block(),
            warp::lane_id(),
            grid::threads() as u32,
        ];
    }
}

#[test]
fn every_thread_has_its_indices() {
    for (grid, block) in
        [([1, 1, 1], [1, 1, 1]), ([3, 1, 1], [33, 1, 1]), ([2, 3, 1], [5, 4, 1]), ([2, 3, 4], [3, 5, 7])]
    {
        let size = |n: [u32; 3]| n.iter().product::<u32>();
        let total = size(grid) * size(block);
        let mut out = vec![[u32::MAX; 12]; total as usize + 1];
        launch::<indices>(grid, block, &Args::new().view(&mut out));
        for (i, found) in out[..total as usize].iter().enumerate() {
            let (b, t) = (i as u32 / size(block), i as u32 % size(block));
            let at = |i: u32, n: [u32; 3]| [i % n[0], i / n[0] % n[1], i / n[0] / n[1]];
            let (b3, t3) = (at(b, grid), at(t, block));
            let global: Vec<u32> = (0..3).map(|axis| b3[axis] * block[axis] + t3[axis]).collect();
            let expected = [&t3[..], &b3[..], &global[..], &[t, t % 32, total]].concat();
            assert_eq!(found[..], expected[..], "thread {i}");
        }
        assert_eq!(out[total as usize], [u32::MAX; 12], "no thread has the element after the last thread's");
    }
}

#[kernel(types(T = f32, u64))]
fn add_one<T: Scalar>(mut data: DisjointMut<T>) {
    for i in thread::grid_stride(data.len()) {
        if let Some(x) = data.get_mut(i) {
            *x = x.wrapping_add(T::ONE);
        }
    }
}

#[test]
fn grid_stride_covers_everything_once() {
    for len in [0, 1, 31, 32, 33, 1023, 1024, 1025] {
        for (grid, block) in [([1, 1, 1], [1, 1, 1]), ([2, 1, 1], [33, 1, 1]), ([2, 2, 1], [4, 3, 2])] {
            let before = floats(len);
            let mut data = before.clone();
            launch::<add_one<f32>>(grid, block, &Args::new().view(&mut data));
            assert!(data.iter().zip(&before).all(|(after, before)| *after == before + 1.0));

            let mut data = vec![u64::MAX; len];
            launch::<add_one<u64>>(grid, block, &Args::new().view(&mut data));
            assert_eq!(data, vec![0; len]);
        }
    }
}

#[kernel(consts(N = 1, 4, 7))]
fn mark_chunks<const N: usize>(mut out: DisjointMut<[u32; 2], Chunks<N>>) {
    assert_eq!(out.chunks(), out.len().div_ceil(N));
    for i in thread::grid_stride(out.chunks()) {
        if let Some(chunk) = out.get_mut(i) {
            let len = chunk.len() as u32;
            for element in chunk {
                *element = [element[0] + 1, len];
            }
        }
    }
}

#[test]
fn chunks_are_disjoint_and_complete() {
    fn check<K: gpu_std::Kernel>(n: usize) {
        for len in [0, 1, n - 1, n, n + 1, 100 * n + 3] {
            let mut out = vec![[0; 2]; len];
            launch::<K>([2, 1, 1], [31, 1, 1], &Args::new().view(&mut out));
            for (i, [count, chunk_len]) in out.into_iter().enumerate() {
                assert_eq!(count, 1);
                assert_eq!(chunk_len as usize, n.min(len - i / n * n));
            }
        }
    }
    check::<mark_chunks<1>>(1);
    check::<mark_chunks<4>>(4);
    check::<mark_chunks<7>>(7);
}

#[kernel]
fn steal(mut out: DisjointMut<u32>) {
    use std::cell::Cell;
    thread_local!(static KEPT: Cell<Option<thread::UniqueIndex>> = const { Cell::new(None) });
    // warpsmith-check: allow the threads of this test share the host's storage on purpose
    let index = KEPT.get().unwrap_or_else(thread::unique_index);
    // warpsmith-check: allow the threads of this test share the host's storage on purpose
    KEPT.set(Some(index));
    out.get_mut(index);
}

#[test]
fn an_index_of_another_thread_is_refused() {
    let mut out = [0; 64];
    let fault = launch_shared::<steal>([1, 1, 1], [64, 1, 1], 0, &Args::new().view(&mut out)).unwrap_err();
    assert!(fault.message().contains("belongs to another thread"), "{fault}");
}
