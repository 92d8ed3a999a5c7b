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
    planes, all_planes: [DisjointMut<u32, Planes<3>>], |out, len| thread::unique_index(), thread::grid_stride(len),
        |i| if let Some(mut x) = out.get_mut(i) { for plane in 0..3 { x[plane] += 1 } };
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

/// Checks that no element is visited twice, and that a loop visits `whole` of them.
fn check<Own: gpu_std::Kernel, All: gpu_std::Kernel>(
    is_line: bool,
    smallest: u32,
    whole: impl Fn(usize) -> usize,
) {
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
            assert!(out[..whole(len)].iter().all(|count| *count == 1), "{grid:?} {block:?} {len}: {out:?}");
            assert!(out[whole(len)..].iter().all(|count| *count == 0));
        }
    }
}

#[test]
fn no_two_threads_have_the_same_element() {
    check::<elements, all_elements>(true, 1, |len| len);
    check::<chunks, all_chunks>(true, 1, |len| len);
    check::<planes, all_planes>(true, 1, |len| len / 3 * 3);
}

#[test]
fn no_two_blocks_or_tiles_have_the_same_element() {
    check::<per_block, all_per_block>(false, 1, |len| len);
    check::<per_tile_1, all_per_tile_1>(false, 1, |len| len);
    check::<per_tile_4, all_per_tile_4>(false, 4, |len| len);
    check::<per_warp, all_per_warp>(false, 32, |len| len);
}

#[test]
fn a_block_that_has_no_whole_tiles_is_an_error() {
    let mut out = [0_u32; 8];
    let fault = launch_shared::<per_tile_4>([1; 3], [6, 1, 1], 0, &Args::new().view(&mut out)).unwrap_err();
    assert!(fault.to_string().contains("the block size must be a multiple of the tile size"), "{fault}");
    assert_eq!(out, [0; 8]);
}

/// Copies whole columns, with the number of planes as a constant.
#[kernel(consts(K = 1, 4))]
fn turn<const K: usize>(from: Option<SlicePlanes<u16, K>>, mut to: DisjointMut<u16, Planes<K>>) {
    let index = thread::unique_index();
    let plane_len = to.plane_len();
    let Some(mut column) = to.get_mut(index) else { return };
    let old = column.read();
    match from {
        Some(from) => {
            assert!(
                from.column(plane_len).is_none() && from.plane(K).is_none() && from.get([K, 0]).is_none()
            );
            let new = from.column(index.get()).unwrap();
            assert!((0..K).all(|k| new[k] == &from.plane(k).unwrap()[index.get()]));
            column.write(core::array::from_fn(|k| old[k] + new[K - 1 - k]));
        }
        None => column.write([9; K]),
    }
}

#[test]
fn columns_are_read_and_written_as_a_whole() {
    let from: Vec<u16> = (0..12).collect();
    let mut to: Vec<u16> = (0..12).map(|i| 100 * i).collect();
    launch::<turn<4>>([1; 3], [5, 1, 1], &Args::new().slice(&from).view(&mut to));
    assert_eq!(to, [9, 110, 211, 306, 407, 508, 603, 704, 805, 900, 1001, 1102]);
    let mut to = vec![0_u16; 3];
    launch::<turn<1>>(
        [1; 3],
        [2, 1, 1],
        &Args::new().value(std::ptr::null::<u16>()).value(0_usize).view(&mut to),
    );
    assert_eq!(to, [9, 9, 0]);
}

#[kernel]
fn no_such_plane(mut to: DisjointMut<u16, Planes<3>>, plane: usize) {
    if let Some(mut column) = to.get_mut(thread::unique_index()) {
        column[plane] = 1;
    }
}

#[test]
fn a_plane_that_is_not_there_is_an_error() {
    let mut to = [0_u16; 7];
    let run = |to: &mut [u16], plane: usize| {
        launch_shared::<no_such_plane>([1; 3], [1; 3], 0, &Args::new().view(to).value(plane))
    };
    assert!(run(&mut to, 2).is_ok());
    assert_eq!(to, [0, 0, 0, 0, 1, 0, 0], "two elements a plane, and one that is in none");
    for plane in [3, usize::MAX, usize::MAX / 2 + 1] {
        let fault = run(&mut to, plane).unwrap_err().to_string();
        assert!(fault.contains("the view has 3 planes") && fault.contains("mappings.rs"), "{fault}");
    }
}
