//! Views, claims and launches in two and three dimensions.

use crate::common::{Args, floats, launch, launch_shared};
use gpu_std::prelude::*;
use gpu_std::{Claims, Extents2, Extents3, Kernel, LaunchBounds};

fn extents2(rows: usize, columns: usize, row_stride: usize) -> Extents2 {
    Extents2::new(rows, columns, row_stride).expect("sides of a view")
}

fn extents3(shape: [usize; 3], strides: [usize; 2]) -> Extents3 {
    Extents3::new(shape, strides).expect("sides of a view")
}

/// Appends the arguments of a mutable view.
fn view<E: 'static>(args: Args, data: &mut [u32], extents: E) -> Args {
    args.value(data.as_mut_ptr()).value(extents)
}

#[kernel]
fn places(mut out: DisjointMut2<u32>) {
    let cell = thread::unique_2d();
    if let Some(out) = out.get_mut(cell) {
        let [x, y] = thread::index_2d();
        assert_eq!(cell.get(), [y as usize, x as usize]);
        *out += 1 + x + 1000 * y;
    }
}

#[test]
fn every_place_has_one_thread() {
    for (rows, columns, row_stride) in
        [(1, 1, 1), (5, 7, 7), (5, 7, 9), (16, 16, 16), (2, 33, 40), (3, 0, 4), (0, 3, 4)]
    {
        let (mut out, extents) = (vec![0; row_stride * rows + 3], extents2(rows, columns, row_stride));
        let grid = [(columns as u32).div_ceil(4).max(1), (rows as u32).div_ceil(3).max(1), 1];
        launch::<places>(grid, [4, 3, 1], &view(Args::new(), &mut out, extents));
        for (i, found) in out.into_iter().enumerate() {
            let (x, y) = (i % row_stride, i / row_stride);
            let expected = if x < columns && y < rows { 1 + x + 1000 * y } else { 0 };
            assert_eq!(found as usize, expected, "[{y}, {x}] of {rows} x {columns}, row stride {row_stride}");
        }
    }
}

#[kernel]
fn read_all(data: Slice2<f32>, volume: Slice3<f32>, mut sums: DisjointMut<f64>) {
    let i = thread::unique_index();
    let Some(sum) = sums.get_mut(i) else { return };
    let mut total = 0.0;
    for y in 0..data.rows() {
        let row = data.row(y).expect("a row");
        for (x, value) in row.iter().enumerate() {
            assert_eq!(data[[y, x]].to_bits(), value.to_bits());
            assert_eq!(data.get([y as i32, x as i32]).map(|value| value.to_bits()), Some(value.to_bits()));
            total += f64::from(*value);
        }
    }
    assert_eq!((data.row(data.rows()), data.get([-1, 0]), data.get([0, -1])), (None, None, None));
    assert_eq!((data.get([0, data.columns()]), data.get([data.rows(), 0])), (None, None));
    for z in 0..volume.planes() {
        let plane = volume.plane(z).expect("a plane");
        for y in 0..volume.rows() {
            assert_eq!(volume.row([z, y]), plane.row(y));
            total += (0..volume.columns()).map(|x| f64::from(volume[[z, y, x]])).sum::<f64>();
        }
    }
    assert_eq!((volume.get([volume.planes(), 0, 0]), volume.get([-1, 0, 0])), (None, None));
    *sum = total;
}

#[test]
fn all_threads_read_rows_columns_and_planes() {
    let (data, volume) = (floats(5 * 12 + 7), floats(2 * 4 * 9 + 3 * 9 + 6));
    let (plane, space) = (extents2(6, 7, 12), extents3([3, 3, 6], [36, 9]));
    let mut sums = vec![0.0f64; 3];
    let args =
        Args::new().value(data.as_ptr()).value(plane).value(volume.as_ptr()).value(space).view(&mut sums);
    launch::<read_all>([1, 1, 1], [3, 1, 1], &args);
    let mut expected: f64 =
        (0..6).flat_map(|y| (0..7).map(move |x| y * 12 + x)).map(|i| f64::from(data[i])).sum();
    for z in 0..3 {
        for y in 0..3 {
            expected += (0..6).map(|x| f64::from(volume[(z * 4 + y) * 9 + x])).sum::<f64>();
        }
    }
    assert!(sums.iter().all(|sum| (sum - expected).abs() < 1e-9), "{sums:?} is not {expected}");
}

#[kernel]
fn outside(data: Slice2<f32>) {
    let _ = data[[5, 7]];
}

#[test]
fn an_index_outside_names_place_and_sides() {
    let data = floats(42);
    let args = Args::new().value(data.as_ptr()).value(extents2(5, 7, 7));
    let fault = launch_shared::<outside>([1, 1, 1], [1, 1, 1], 0, &args).unwrap_err();
    assert!(fault.message().contains("element [5, 7] is out of range: the view has 5 rows of 7"), "{fault}");
}

#[kernel]
fn volume_places(mut out: DisjointMut3<u32>) {
    let cell = thread::unique_3d();
    if let Some(out) = out.get_mut(cell) {
        *out += 1 + cell.column() as u32 + 100 * cell.row() as u32 + 10_000 * cell.plane() as u32;
    }
}

#[test]
fn every_place_of_a_volume_has_one_thread() {
    let (shape, strides) = ([3, 4, 5], [42, 7]);
    let mut out = vec![0; 3 * strides[0]];
    let args = view(Args::new(), &mut out, extents3(shape, strides));
    launch::<volume_places>([2, 2, 2], [4, 3, 2], &args);
    for (i, found) in out.into_iter().enumerate() {
        let place = [i / strides[0], i % strides[0] / strides[1], i % strides[1]];
        let is_inside = place.iter().zip(shape).all(|(at, side)| *at < side);
        let expected = if is_inside { 1 + place[2] + 100 * place[1] + 10_000 * place[0] } else { 0 };
        assert_eq!(found as usize, expected, "{place:?}");
    }
}

#[kernel]
fn tile_places(mut out: DisjointMut2<u32, Tiles<4, 6>>) {
    let [top, left] = out.tile_origin();
    out.write_tile(|[row, column]| (1 + left + column + 1000 * (top + row)) as u32);
}

#[kernel]
fn mirrored_places(mut out: DisjointMut2<u32, TransposedTiles<4, 6>>) {
    let [top, left] = out.tile_origin();
    assert_eq!([top, left], [thread::block_idx_x() as usize * 4, thread::block_idx_y() as usize * 6]);
    out.update_tile(|element, [row, column]| *element += (1 + left + column + 1000 * (top + row)) as u32);
}

#[test]
fn tiles_of_blocks_are_disjoint_and_complete() {
    for (rows, columns, row_stride) in [(4usize, 6usize, 6), (5, 7, 7), (16, 24, 30), (1, 1, 1), (3, 13, 13)]
    {
        for block in [[6, 4, 1], [5, 1, 1], [2, 2, 1], [32, 8, 1]] {
            let check = |out: Vec<u32>| {
                for (i, found) in out.into_iter().enumerate() {
                    let (x, y) = (i % row_stride, i / row_stride);
                    let expected = if x < columns { 1 + x + 1000 * y } else { 0 };
                    assert_eq!(
                        found as usize, expected,
                        "[{y}, {x}] of {rows} x {columns}, blocks {block:?}"
                    );
                }
            };
            let tiles = [columns.div_ceil(6) as u32, rows.div_ceil(4) as u32];
            let mut out = vec![0; row_stride * rows];
            let args = view(Args::new(), &mut out, extents2(rows, columns, row_stride));
            launch::<tile_places>([tiles[0], tiles[1], 1], block, &args);
            check(out);
            let mut out = vec![0; row_stride * rows];
            let args = view(Args::new(), &mut out, extents2(rows, columns, row_stride));
            launch::<mirrored_places>([tiles[1], tiles[0], 1], block, &args);
            check(out);
        }
    }
}

#[kernel]
fn steal(mut out: DisjointMut2<u32>) {
    use std::cell::Cell;
    thread_local!(static KEPT: Cell<Option<thread::Unique2d>> = const { Cell::new(None) });
    // warpsmith-check: allow the threads of this test share the host's storage on purpose
    let cell = KEPT.get().unwrap_or_else(thread::unique_2d);
    // warpsmith-check: allow the threads of this test share the host's storage on purpose
    KEPT.set(Some(cell));
    out.get_mut(cell);
}

#[test]
fn a_place_of_another_thread_is_refused() {
    let mut out = [0; 64];
    let args = view(Args::new(), &mut out, extents2(8, 8, 8));
    let fault = launch_shared::<steal>([1, 1, 1], [8, 8, 1], 0, &args).unwrap_err();
    assert!(fault.message().contains("belongs to another thread"), "{fault}");
}

#[test]
fn a_place_is_not_unique_in_more_dimensions() {
    let mut out = [0; 64];
    let args = view(Args::new(), &mut out, extents2(8, 8, 8));
    let fault = launch_shared::<places>([1, 1, 2], [8, 8, 1], 0, &args).unwrap_err();
    assert!(fault.message().contains("belongs to another thread"), "{fault}");
}

const SIDE: usize = 8;
const BLOCKS: u32 = 2;

#[kernel(block(SIDE, SIDE / 2), launch_bounds(32, BLOCKS))]
fn shaped(mut out: DisjointMut2<u32>) {
    if let Some(out) = out.get_mut(thread::unique_2d()) {
        *out = block::threads();
    }
}

#[kernel(consts(N = 4, 16), types(T = f32, u8), block(N, 2, N / 4), cluster(2))]
fn shaped_by_parameters<T: Scalar, const N: usize>(_value: T) {}

#[kernel(launch_bounds(SIDE * SIDE))]
fn bounded() {}

#[kernel]
fn rows(_rows: DisjointMut2<u32, Rows>) {}

#[kernel]
fn optional(_plane: Option<DisjointMut2<u32>>, _volume: Option<DisjointMut3<u32>>) {}

#[test]
fn shapes_are_in_the_record() {
    let info = &shaped::spec().info;
    assert_eq!((info.block, info.cluster, info.claims), (Some([8, 4, 1]), None, Claims::Plane));
    assert_eq!(info.launch_bounds, Some(LaunchBounds { max_threads: 32, min_blocks: 2 }));
    let info = &shaped_by_parameters::<f32, 16>::spec().info;
    assert_eq!((info.block, info.cluster), (Some([16, 2, 4]), Some([2, 1, 1])));
    assert_eq!((info.min_arch, info.claims), (90, Claims::Any));
    assert_eq!(shaped_by_parameters::<u8, 4>::spec().block, Some([4, 2, 1]));
    assert_eq!(bounded::spec().launch_bounds, Some(LaunchBounds { max_threads: 64, min_blocks: 0 }));
    assert_eq!((rows::spec().claims, volume_places::spec().claims), (Claims::Linear, Claims::Volume));
    assert_eq!((tile_places::spec().claims, outside::spec().claims), (Claims::Plane, Claims::Any));
    let spec = <optional as Kernel>::spec();
    assert_eq!(spec.claims, Claims::Plane, "views that may be there limit the launch");
    assert_eq!(
        (spec.params[0].type_name, spec.params[0].kind),
        ("Option<DisjointMut2<u32>>", gpu_std::ParamKind::SliceMut2)
    );
}

#[test]
fn the_emulator_enforces_block_and_cluster() {
    let mut out = [0; 64];
    let args = view(Args::new(), &mut out, extents2(8, 8, 8));
    launch::<shaped>([1, 2, 1], [8, 4, 1], &args);
    for block in [[4, 8, 1], [8, 2, 1], [32, 1, 1]] {
        let fault = launch_shared::<shaped>([1, 2, 1], block, 0, &args).unwrap_err();
        assert!(fault.message().contains("requires [8, 4, 1]"), "{fault}");
    }
    let args = Args::new().value(1u8);
    let fault = launch_shared::<shaped_by_parameters<u8, 4>>([2, 1, 1], [4, 2, 1], 0, &args).unwrap_err();
    assert!(
        fault.message().contains("clusters of [1, 1, 1] blocks, but the kernel requires [2, 1, 1]"),
        "{fault}"
    );
    crate::common::launch_clusters::<shaped_by_parameters<u8, 4>>([2, 1, 1], [4, 2, 1], [2, 1, 1], &args)
        .unwrap();
    assert!(out[..].iter().all(|threads| *threads == 32));
}

/// A view without elements counts as present.
#[test]
fn an_empty_view_is_there() {
    #[kernel]
    fn columns(x: Option<Slice2<u32>>, mut out: DisjointMut<i32>) {
        if let Some(out) = out.get_mut(thread::unique_index()) {
            *out = x.map_or(-1, |x| x.columns() as i32);
        }
    }
    let mut out = [7];
    let empty = view(Args::new(), &mut [], extents2(5, 0, 4));
    launch::<columns>([1, 1, 1], [1, 1, 1], &empty.view(&mut out));
    assert_eq!(out, [0]);
    let nothing = Args::new().value(std::ptr::null::<u32>()).value(Extents2::EMPTY);
    launch::<columns>([1, 1, 1], [1, 1, 1], &nothing.view(&mut out));
    assert_eq!(out, [-1]);
}
