//! Every mapping of a mutable view: no two threads access the same element, and loops over a launch visit all elements.

use gpu_std::prelude::*;

use crate::common::{Args, launch, launch_shared, randoms};

/// Kernels that add 1 to every element of a thread: the elements at its own index, and the elements of a loop.
macro_rules! mappings {
    ($($name:ident, $looped:ident: [$($view:tt)*], |$out:ident, $len:ident| $own:expr, $all:expr, |$index:ident| $add:expr;)*) => { $(
        #[kernel]
        fn $name(mut $out: $($view)*) {
            let $index = $own;
            $add
        }

        #[kernel]
        fn $looped(mut $out: $($view)*, $len: usize) {
            for $index in $all {
                $add
            }
        }
    )* };
}

mappings! {
    elements, all_elements: [DisjointMut<u32>], |out, len| thread::unique_index(), thread::grid_stride(len),
        |i| if let Some(x) = out.get_mut(i) { *x += 1 };
    chunks, all_chunks: [DisjointMut<u32, Chunks<3>>], |out, len| thread::unique_index(), thread::grid_stride(len),
        |i| if let Some(chunk) = out.get_mut(i) { chunk.iter_mut().for_each(|x| *x += 1) };
    per_block, all_per_block: [DisjointMut<u32, PerBlock>], |out, len| block::unique_index(), block::stride(len),
        |i| if let Some(x) = out.get_mut(i) { *x += 1 };
    per_tile_1, all_per_tile_1: [DisjointMut<u32, PerTile<1>>], |out, len| Tile::<1>::current().unique_index(),
        Tile::<1>::current().stride(len), |i| if let Some(x) = out.get_mut(i) { *x += 1 };
    per_tile_4, all_per_tile_4: [DisjointMut<u32, PerTile<4>>], |out, len| Tile::<4>::current().unique_index(),
        Tile::<4>::current().stride(len), |i| if let Some(x) = out.get_mut(i) { *x += 1 };
    per_warp, all_per_warp: [DisjointMut<u32, PerTile<32>>], |out, len| Tile::<32>::current().unique_index(),
        Tile::<32>::current().stride(len), |i| if let Some(x) = out.get_mut(i) { *x += 1 };
}

/// One-dimensional launches, and launches of more dimensions for claims of blocks and tiles. The last number divides
/// the number of threads.
const LINES: [([u32; 3], [u32; 3], u32); 6] = [
    ([1, 1, 1], [1, 1, 1], 1),
    ([3, 1, 1], [4, 1, 1], 4),
    ([2, 1, 1], [32, 1, 1], 32),
    ([3, 1, 1], [96, 1, 1], 32),
    ([5, 1, 1], [36, 1, 1], 4),
    ([4, 1, 1], [33, 1, 1], 1),
];
const BOXES: [([u32; 3], [u32; 3], u32); 3] =
    [([2, 3, 1], [8, 4, 1], 32), ([1, 2, 3], [2, 3, 4], 4), ([2, 2, 2], [16, 2, 3], 32)];

/// Checks that no element is visited twice, and that a loop visits all of them.
fn check<Own: gpu_std::Kernel, All: gpu_std::Kernel>(is_line: bool, smallest: u32) {
    let launches = LINES.iter().chain(if is_line { &[][..] } else { &BOXES });
    for (grid, block, multiple) in launches.filter(|(_, _, multiple)| multiple.is_multiple_of(smallest)) {
        for len in [0, 1, 2, 31, 32, 33, 63, 100, 1000].into_iter().chain([randoms(1)[0] as usize % 3000]) {
            let mut out = vec![0_u32; len + 1];
            launch::<Own>(*grid, *block, &Args::new().view(&mut out[..len]));
            assert!(out.iter().all(|count| *count <= 1), "{grid:?} {block:?} {multiple} {len}");
            assert!(len < 3 || out.contains(&1));
            assert_eq!(out[len], 0, "beyond the end");

            let mut out = vec![0_u32; len + 1];
            // The last indices own no elements.
            launch::<All>(*grid, *block, &Args::new().view(&mut out[..len]).value(len + 2));
            assert!(out[..len].iter().all(|count| *count == 1), "{grid:?} {block:?} {len}: {out:?}");
            assert_eq!(out[len], 0, "beyond the end");
        }
    }
}

#[test]
fn no_two_threads_have_the_same_element() {
    check::<elements, all_elements>(true, 1);
    check::<chunks, all_chunks>(true, 1);
}

#[test]
fn no_two_blocks_or_tiles_have_the_same_element() {
    check::<per_block, all_per_block>(false, 1);
    check::<per_tile_1, all_per_tile_1>(false, 1);
    check::<per_tile_4, all_per_tile_4>(false, 4);
    check::<per_warp, all_per_warp>(false, 32);
}

#[test]
fn a_block_that_has_no_whole_tiles_is_an_error() {
    let mut out = [0_u32; 8];
    let fault = launch_shared::<per_tile_4>([1; 3], [6, 1, 1], 0, &Args::new().view(&mut out)).unwrap_err();
    assert!(fault.to_string().contains("the block size must be a multiple of the tile size"), "{fault}");
    assert_eq!(out, [0; 8]);
}
