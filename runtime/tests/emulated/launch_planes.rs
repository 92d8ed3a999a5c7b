//! Tests of launches in two and three dimensions: views of buffers as arguments, covered extents, required shapes.
//!
//! The kernels are hand-written, under the same conditions as those of `common`.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see above")]

use std::ffi::c_void;

use crate::common::*;
use gpu_spec::param::{Slice2, SliceMut2, SliceMut3, Value};
use gpu_spec::{
    Claims, Extents2, Extents3, Kernel, KernelInfo, KernelSpec, ParamKind, ParamSpec, SafeKernel,
};
use warpsmith_emulator::thread;
use warpsmith_runtime::error::BlockLimit;
use warpsmith_runtime::{Device, DeviceBuffer, Error, Graph, Launch, LaunchConfig, LaunchError};

const fn param(name: &'static str, kind: ParamKind, type_name: &'static str) -> ParamSpec {
    ParamSpec { name, kind, type_name, size: 4, align: 4, signature: 0 }
}

unsafe fn value<T: Copy>(args: *const *const c_void, index: usize) -> T {
    unsafe { (*args.add(index)).cast::<T>().read() }
}

/// Returns the index of the thread in the launch.
fn place() -> [u32; 3] {
    let (block, dim, own) = (thread::block_index(), thread::block_dim(), thread::thread_index());
    [0, 1, 2].map(|axis| block[axis] * dim[axis] + own[axis])
}

macro_rules! kernel {
    ($name:ident, $params:ty, [$($param:expr),*], $entry:ident, $claims:ident $(, $field:ident: $value:expr)*) => {
        struct $name;
        unsafe impl Kernel for $name {
            type Params = $params;
            fn spec() -> &'static KernelSpec {
                const PARAMS: &[ParamSpec] = &[$($param),*];
                static SPEC: KernelSpec = KernelSpec {
                    info: KernelInfo {
                        claims: Claims::$claims,
                        $($field: Some($value),)*
                        ..KernelInfo::new("test-kernels", "0.0.0", stringify!($name), PARAMS)
                    },
                    entry: $entry,
                    bytes: None,
                    lengths: None,
                };
                &SPEC
            }
        }
        unsafe impl SafeKernel for $name {}
    };
}

const FROM: ParamSpec = param("from", ParamKind::Slice2, "Slice2<u32>");
const TO: ParamSpec = param("to", ParamKind::SliceMut2, "DisjointMut2<u32>");
const VALUE: ParamSpec = param("value", ParamKind::Value, "u32");
type Params = (Value<u32>, Slice2<u32>, SliceMut2<u32>);

kernel!(AddPlane, Params, [VALUE, FROM, TO], add_plane, Plane);
kernel!(AddBlocks, Params, [VALUE, FROM, TO], add_plane, Plane, block: [4, 2, 1]);
kernel!(AddClusters, Params, [VALUE, FROM, TO], add_plane, Plane, cluster: [2, 1, 1]);
kernel!(Volume, (SliceMut3<u32>,), [param("to", ParamKind::SliceMut3, "DisjointMut3<u32>")], volume, Volume);
kernel!(
    Line,
    (gpu_spec::param::SliceMut<u32>,),
    [param("out", ParamKind::SliceMut, "DisjointMut<u32>")],
    nothing,
    Linear
);
kernel!(
    LineBlocks,
    (gpu_spec::param::SliceMut<u32>,),
    [param("out", ParamKind::SliceMut, "DisjointMut<u32>")],
    nothing,
    Linear,
    block: [96, 1, 1]
);

unsafe fn nothing(_: *const *const c_void) {}

/// Computes `to = value + from + x + 1000 y`.
unsafe fn add_plane(args: *const *const c_void) {
    unsafe {
        let (from, to): (Extents2, Extents2) = (value(args, 2), value(args, 4));
        let [x, y, _] = place();
        if x < to.columns() && y < to.rows() {
            let read = value::<*const u32>(args, 1).add(from.offset([y, x])).read();
            let sum = value::<u32>(args, 0) + read + x + 1000 * y;
            value::<*mut u32>(args, 3).add(to.offset([y, x])).write(sum);
        }
    }
}

/// Computes `to = 1 + x + 100 y + 10000 z`.
unsafe fn volume(args: *const *const c_void) {
    unsafe {
        let (to, [x, y, z]) = (value::<Extents3>(args, 1), place());
        if x < to.columns() && y < to.rows() && z < to.planes() {
            let sum = 1 + x + 100 * y + 10_000 * z;
            value::<*mut u32>(args, 0).add(to.offset([z, y, x])).write(sum);
        }
    }
}

/// Asserts that an invalid view of `len` elements fails with an error that contains all of these words.
fn refused<T>(result: Result<T, Error>, words: &[&str]) {
    let error = result.err().expect("it is refused");
    assert!(matches!(error, Error::BadExtents { .. }), "{error}");
    assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
}

#[test]
fn planes_with_a_row_stride_are_arguments() {
    let (_, _, stream, kernel) = kernel_fixture::<AddPlane>();
    let (rows, columns, row_stride) = (5, 7, 9);
    let from: Vec<u32> = (0..row_stride * rows - 2).map(|i| i as u32).collect();
    let device_from = DeviceBuffer::from_host(&stream, &from).unwrap();
    let mut to = DeviceBuffer::from_host(&stream, &[u32::MAX; 40]).unwrap();
    let plane = device_from.as_2d_strided(rows, columns, row_stride).unwrap();
    assert_eq!((plane.rows(), plane.columns(), plane.row_stride(), plane.elements().len()), (5, 7, 9, 43));
    let launch = Launch::cover((columns, rows));
    let view = to.slice_mut(3..38).as_2d_mut(rows, columns).map(|view| {
        kernel.launch(&stream, launch, (5, &plane, view)).unwrap();
    });
    view.unwrap();
    let found = to.to_host().unwrap();
    for (i, found) in found.into_iter().enumerate() {
        let expected = match i.checked_sub(3) {
            Some(i) if i < 35 => {
                let (x, y) = (i % columns, i / columns);
                5 + from[y * row_stride + x] + x as u32 + 1000 * y as u32
            }
            _ => u32::MAX,
        };
        assert_eq!(found, expected, "element {i}");
    }
}

#[test]
fn parts_of_planes_are_written_alone() {
    let (_, _, stream, kernel) = kernel_fixture::<AddPlane>();
    let zeros = DeviceBuffer::<u32>::zeros(&stream, 80).unwrap();
    let mut to = DeviceBuffer::<u32>::zeros(&stream, 80).unwrap();
    let from = zeros.as_2d(8, 10).unwrap().part(..4, 2..5);
    let mut inner = to.as_2d_mut(8, 10).unwrap().into_part(3.., ..).into_part(1.., 2..5);
    kernel.launch(&stream, Launch::cover((3, 4)).block((3, 1)), (1, from, &mut inner)).unwrap();
    let corner = to.as_2d_mut(8, 10).unwrap().into_part(..3, 7..);
    kernel.launch(&stream, Launch::cover((3, 3)), (7, from, corner)).unwrap();
    for (i, found) in to.to_host().unwrap().into_iter().enumerate() {
        let expected = match (i % 10, i / 10) {
            (x @ 2..5, y @ 4..) => 1 + (x - 2) + 1000 * (y - 4),
            (x @ 7.., y @ ..3) => 7 + (x - 7) + 1000 * y,
            _ => 0,
        };
        assert_eq!(found as usize, expected, "element {i}");
    }
    let mut none = DeviceBuffer::<u32>::zeros(&stream, 0).unwrap();
    let empty = zeros.as_2d(8, 10).unwrap().part(8.., 10..);
    assert!(empty.is_empty() && none.as_2d(7, 0).unwrap().is_empty());
    kernel.launch(&stream, Launch::cover((1, 1)), (1, empty, none.as_2d_mut(7, 0).unwrap())).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn volumes_are_arguments() {
    let (_, _, stream, kernel) = kernel_fixture::<Volume>();
    let mut to = DeviceBuffer::<u32>::zeros(&stream, 6 * 5 * 4).unwrap();
    let plane = to.as_3d(4, 5, 6).unwrap().plane(3);
    assert_eq!((plane.rows(), plane.columns(), plane.elements().len()), (5, 6, 30));
    kernel.launch(&stream, Launch::cover((6, 5, 4)), (to.as_3d_mut(4, 5, 6).unwrap(),)).unwrap();
    for (i, found) in to.to_host().unwrap().into_iter().enumerate() {
        assert_eq!(found as usize, 1 + i % 6 + 100 * (i / 6 % 5) + 10_000 * (i / 30), "element {i}");
    }
    let mut to = DeviceBuffer::<u32>::zeros(&stream, 100).unwrap();
    let view = to.as_3d_strided_mut([4, 2, 3], [20, 5]).map(|mut view| {
        assert_eq!((view.planes(), view.rows(), view.columns()), (4, 2, 3));
        assert_eq!((view.plane_stride(), view.row_stride()), (20, 5));
        kernel.launch(&stream, Launch::cover((3, 2, 4)).block((2, 2, 2)), (&mut view,)).unwrap();
    });
    view.unwrap();
    for (i, found) in to.to_host().unwrap().into_iter().enumerate() {
        let (x, y, z) = (i % 5, i / 5 % 4, i / 20);
        let expected = if x < 3 && y < 2 && z < 4 { 1 + x + 100 * y + 10_000 * z } else { 0 };
        assert_eq!(found as usize, expected, "element {i}");
    }
}

#[test]
fn extents_that_do_not_fit_are_refused() {
    let (_, _, stream) = fixture();
    let mut buffer = DeviceBuffer::<u32>::zeros(&stream, 100).unwrap();
    refused(buffer.as_2d(9, 10), &["100 elements", "9 x 10", "90 elements"]);
    refused(buffer.as_2d_mut(10, 11), &["10 x 11", "110 elements"]);
    refused(buffer.as_2d_strided(5, 10, 9), &["row stride of 9 is smaller than the number of columns"]);
    refused(buffer.as_2d_strided(5, 10, 23), &["row stride of 23", "ends at element 102"]);
    assert!(buffer.as_2d_strided(5, 10, 22).is_ok());
    refused(buffer.as_2d(2, usize::MAX), &["2^31 - 1"]);
    refused(buffer.as_2d_strided(1 << 31, 0, 0), &["2^31 - 1"]);
    refused(buffer.as_3d(5, 5, 5), &["5 x 5 x 5", "125 elements"]);
    refused(buffer.as_3d_strided([2, 5, 5], [20, 5]), &["20 is smaller than 5 rows with a stride of 5"]);
    refused(buffer.as_3d_strided([2, 5, 5], [32, 6]), &["32 is not a multiple of the row stride of 6"]);
    refused(buffer.as_3d_strided([2, 5, 0], [5, 0]), &["5 is not a multiple of the row stride of 0"]);
    refused(buffer.as_3d_strided([3, 5, 5], [40, 5]), &["strides of 40 and 5", "ends at element 105"]);
    refused(buffer.as_3d_strided_mut([1 << 20, 1 << 20, 0], [0, 0]), &["2^32 or more rows"]);
}

#[test]
fn an_extent_is_covered_by_whole_blocks() {
    let (_, device) = device();
    let function = module(&device).kernel::<Volume>().unwrap().function().clone();
    let config = |launch: Launch| function.configure(launch).unwrap().unwrap();
    let same = |launch: Launch, grid, block| {
        assert_eq!(config(launch), LaunchConfig::new(grid, block, 0), "{launch:?}")
    };
    same(Launch::cover((640, 480)).block((16, 8)), [40, 60, 1], [16, 8, 1]);
    same(Launch::cover((641usize, 481usize)).block([16u32, 8]), [41, 61, 1], [16, 8, 1]);
    same(Launch::cover((9, 9, 9)).block((4, 4, 4)), [3, 3, 3], [4, 4, 4]);
    same(Launch::cover(1000).block(128), [8, 1, 1], [128, 1, 1]);
    same(Launch::cover((100, 70)).tile((32, 32)).block((32, 8)), [4, 3, 1], [32, 8, 1]);
    same(Launch::cover((100, 70)).block((32, 8)).tile((32usize, 32usize)), [4, 3, 1], [32, 8, 1]);
    for sides in
        [(1000, 1000, 1), (5, 3000, 1), (3000, 5, 1), (40, 40, 40), (1, 1, 3000), (100_000, 1, 1), (1, 2, 3)]
    {
        let LaunchConfig { grid, block, .. } = config(Launch::cover(sides));
        for (axis, side) in [sides.0, sides.1, sides.2].into_iter().enumerate() {
            let threads = grid[axis] * block[axis];
            assert!(threads >= side && threads < side + block[axis], "{sides:?}: {grid:?} {block:?}");
            assert!(block[axis] < 2 * side, "{sides:?}: blocks of {block:?}");
        }
    }
    assert_eq!(config(Launch::cover((1000, 1000))).block[0], 32);
    for nothing in [(0, 5, 5), (5, 0, 5), (5, 5, 0)] {
        assert_eq!(function.configure(Launch::cover(nothing)).unwrap(), None);
    }
    let clusters = config(Launch::cover((100, 10)).block((16, 1)).cluster((2, 4)));
    assert_eq!((clusters.grid, clusters.cluster), ([8, 12, 1], [2, 4, 1]));
}

#[test]
fn extents_over_the_grid_are_refused() {
    let (_, device) = device();
    let function = module(&device).kernel::<Volume>().unwrap().function().clone();
    let error = |launch: Launch| function.configure(launch).unwrap_err();
    let rows = error(Launch::cover((10, 600_000)).block((32, 8)));
    assert!(matches!(rows, Error::Launch(LaunchError::GridTooLarge { grid: [1, 75_000, 1], .. })), "{rows}");
    let large = error(Launch::cover((usize::MAX, 1)));
    assert!(matches!(large, Error::Launch(LaunchError::ExtentTooLarge { .. })), "{large}");
    let block = error(Launch::cover((10, 10)).block((64, 32)));
    let limit = BlockLimit::Device;
    assert!(
        matches!(&block, Error::Launch(LaunchError::BlockTooLarge { threads: 2048, by, .. }) if *by == limit)
    );
    let zero = error(Launch::cover((10, 10)).block((8, 0)));
    assert!(matches!(zero, Error::Launch(LaunchError::EmptyLaunch { what: "block", .. })), "{zero}");
    let negative = error(Launch::grid_block((-1, 1), 32));
    assert!(matches!(negative, Error::Launch(LaunchError::EmptyLaunch { what: "grid", .. })), "{negative}");
}

/// Returns the configuration of a launch, or the text of its error.
fn configured<K: Kernel>(device: &Device, launch: Launch) -> Result<LaunchConfig, String> {
    let kernel = module(device).kernel::<K>().unwrap();
    kernel.function().configure(launch).map(Option::unwrap).map_err(|error| error.to_string())
}

#[test]
fn a_required_block_is_filled_in_or_named() {
    let (_, device) = device();
    let filled = configured::<AddBlocks>(&device, Launch::cover((10, 10))).unwrap();
    assert_eq!((filled.grid, filled.block), ([3, 5, 1], [4, 2, 1]));
    let same = configured::<AddBlocks>(&device, Launch::grid_block((2, 2), (4, 2))).unwrap();
    assert_eq!(same.block, [4, 2, 1]);
    for launch in [Launch::cover((10, 10)).block((2, 4)), Launch::grid_block((2, 2), (2, 4))] {
        let error = configured::<AddBlocks>(&device, launch).unwrap_err();
        assert!(
            error.contains("requires blocks of 4 x 2 threads, but the launch has blocks of 2 x 4"),
            "{error}"
        );
        assert!(error.contains("Launch::cover"), "{error}");
    }
    let error = configured::<AddBlocks>(&device, Launch::linear(100, 8)).unwrap_err();
    assert!(error.contains("requires blocks of 4 x 2 threads, but the launch has blocks of 8;"), "{error}");
    for launch in [Launch::auto(100), Launch::for_occupancy(100), Launch::for_bandwidth(100, 4)] {
        let error = configured::<AddBlocks>(&device, launch).unwrap_err();
        assert!(
            error.contains(
                "requires blocks of 4 x 2 threads, but the launch specifies only a number of threads"
            ),
            "{error}"
        );
        let line = configured::<LineBlocks>(&device, launch).unwrap();
        assert_eq!((line.block, line.grid), ([96, 1, 1], [2, 1, 1]), "{launch:?}");
    }
    assert_eq!(configured::<LineBlocks>(&device, Launch::cover(100)).unwrap().grid, [2, 1, 1]);
    assert!(configured::<LineBlocks>(&device, Launch::linear(100, 64)).is_err());
    assert!(configured::<LineBlocks>(&device, Launch::linear(100, 96)).is_ok());
}

#[test]
fn a_required_cluster_is_filled_in_or_named() {
    let (_, device, stream, kernel) = kernel_fixture::<AddClusters>();
    for launch in [Launch::cover((40, 3)).block((8, 1)), Launch::cover((40, 3)).block((8, 1)).cluster(2)] {
        let config = configured::<AddClusters>(&device, launch).unwrap();
        assert_eq!((config.grid, config.cluster), ([6, 3, 1], [2, 1, 1]));
    }
    let config = configured::<AddClusters>(&device, Launch::linear(100, 32)).unwrap();
    assert_eq!((config.grid, config.cluster), ([4, 1, 1], [2, 1, 1]));
    let error = configured::<AddClusters>(&device, Launch::cover((40, 3)).cluster(4)).unwrap_err();
    assert!(error.contains("requires clusters of 2 blocks, but the launch has 4"), "{error}");
    let error = configured::<AddClusters>(&device, Launch::grid_block(3, 32)).unwrap_err();
    assert!(error.contains("not a multiple of the cluster [2, 1, 1]"), "{error}");
    let from = DeviceBuffer::<u32>::zeros(&stream, 120).unwrap();
    let mut to = DeviceBuffer::<u32>::zeros(&stream, 120).unwrap();
    let launch = Launch::cover((40, 3));
    kernel.launch(&stream, launch, (1, from.as_2d(3, 40).unwrap(), to.as_2d_mut(3, 40).unwrap())).unwrap();
    assert_eq!(to.to_host().unwrap()[119], 1 + 39 + 2000);
}

#[test]
fn more_dimensions_than_the_views_are_refused() {
    let (_, device) = device();
    for (grid, block) in [((2, 2, 1), (4, 4, 1)), ((1, 1, 1), (4, 4, 1)), ((1, 1, 2), (4, 1, 1))] {
        let error = configured::<Line>(&device, Launch::grid_block(grid, block)).unwrap_err();
        assert!(error.contains("out: DisjointMut<u32>") && error.contains("DisjointMut2<T>"), "{error}");
    }
    assert!(configured::<Line>(&device, Launch::grid_block(5, 32)).is_ok());
    assert!(configured::<Line>(&device, Launch::auto(1000)).is_ok());
    assert!(configured::<AddPlane>(&device, Launch::grid_block((2, 2), (4, 4))).is_ok());
    for (grid, block) in [((1, 1, 2), (4, 4, 1)), ((1, 1, 1), (4, 4, 2))] {
        let error = configured::<AddPlane>(&device, Launch::grid_block(grid, block)).unwrap_err();
        assert!(error.contains("to: DisjointMut2<u32>") && error.contains("DisjointMut3<T>"), "{error}");
        assert!(configured::<Volume>(&device, Launch::grid_block(grid, block)).is_ok());
    }
    let long = configured::<AddPlane>(&device, Launch::grid_block(1 << 24, 512)).unwrap_err();
    assert!(long.contains("more than 2^32 threads in one dimension"), "{long}");
    assert!(configured::<Line>(&device, Launch::grid_block(1 << 24, 512)).is_ok());
}

#[test]
fn graph_nodes_take_other_views() {
    let (_, device, stream, kernel) = kernel_fixture::<AddBlocks>();
    let from = DeviceBuffer::<u32>::zeros(&stream, 60).unwrap();
    let mut to = DeviceBuffer::<u32>::zeros(&stream, 60).unwrap();
    let mut other = DeviceBuffer::<u32>::zeros(&stream, 60).unwrap();
    let mut graph = Graph::new(&device).unwrap();
    let view = to.as_2d_mut(6, 10).unwrap();
    let node = graph
        .add_kernel(&kernel, Launch::cover((10, 6)), (1, from.as_2d(6, 10).unwrap(), view), &[])
        .unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    let arguments = (2, from.as_2d_strided(6, 5, 11).unwrap(), other.as_2d_strided_mut(6, 5, 10).unwrap());
    exec.set_kernel(&node, &kernel, Launch::cover((5, 6)), arguments).unwrap();
    exec.launch(&stream).unwrap();
    let (to, other) = (to.to_host().unwrap(), other.to_host().unwrap());
    for i in 0..60 {
        let (x, y) = (i % 10, i / 10);
        assert_eq!(to[i] as usize, 1 + x + 1000 * y, "element {i}");
        assert_eq!(other[i] as usize, if x < 5 { 2 + x + 1000 * y } else { 0 }, "element {i} of the other");
    }
}
