//! Tests that findings name the parameter and the element, for every kind of parameter.

use gpu_std::prelude::*;
use warpsmith_runtime::check::FindingKind;
use warpsmith_runtime::{DeviceBuffer, Launch, Result, Stream};

use crate::{device, kernel, kinds};

#[kernel(block(1, 1))]
fn read_pixel(image: Slice2<u32>, mut out: DisjointMut2<u32>) {
    if let Some(out) = out.get_mut(thread::unique_2d()) {
        *out = image[[3usize, 2]];
    }
}

#[kernel(block(1, 1, 1))]
fn read_voxel(volume: Slice3<u32>, mut out: DisjointMut3<u32>) {
    if let Some(out) = out.get_mut(thread::unique_3d()) {
        *out = volume[[1usize, 2, 3]];
    }
}

#[kernel]
fn read_option(weights: Option<&[u32]>, mut out: DisjointMut<u32>) {
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = weights.map_or(0, |weights| weights[5]);
    }
}

#[derive(Debug, Clone, Copy, KernelType)]
#[repr(C)]
struct Table {
    len: u64,
    address: u64,
}

#[kernel]
unsafe fn read_table(table: Table, out: *mut u32) {
    unsafe { out.write((table.address as *mut u32).add(7).read()) };
}

/// Returns the text of the only finding, which is a read of uninitialized memory.
fn found(launch: impl FnOnce(&Stream, &DeviceBuffer<u32>, &mut DeviceBuffer<u32>) -> Result<()>) -> String {
    let device = device();
    let stream = device.default_stream();
    let data = DeviceBuffer::<u32>::uninit(&stream, 100).unwrap();
    let mut out = DeviceBuffer::<u32>::zeros(&stream, 1).unwrap();
    let checked = device.checked().unwrap();
    launch(&stream, &data, &mut out).unwrap();
    let findings = checked.findings().unwrap();
    assert_eq!(kinds(&findings), [FindingKind::Uninitialized], "{findings:?}");
    findings[0].to_string()
}

#[test]
fn a_2d_view_is_named_with_row_and_column() {
    let text = found(|stream, data, out| {
        let args = (data.as_2d(10, 10)?, out.as_2d_mut(1, 1)?);
        kernel::<read_pixel>(stream.device()).launch(stream, Launch::grid_block(1, (1, 1)), args)
    });
    assert!(text.contains("at `image[[3, 2]]` (row 3, column 2)"), "{text}");
}

#[test]
fn a_3d_view_is_named_with_plane_row_and_column() {
    let text = found(|stream, data, out| {
        let args = (data.as_3d(5, 4, 5)?, out.as_3d_mut(1, 1, 1)?);
        kernel::<read_voxel>(stream.device()).launch(stream, Launch::grid_block(1, (1, 1, 1)), args)
    });
    assert!(text.contains("at `volume[[1, 2, 3]]` (plane 1, row 2, column 3)"), "{text}");
}

#[test]
fn an_optional_slice_is_named_as_a_slice() {
    let text = found(|stream, data, out| {
        kernel::<read_option>(stream.device()).launch(stream, Launch::grid_block(1, 1), (Some(data), out))
    });
    assert!(text.contains("at `weights[5]`"), "{text}");
}

#[test]
fn an_address_in_a_struct_is_named() {
    let text = found(|stream, data, out| {
        let table = Table { len: 100, address: data.as_device_ptr().0 };
        // SAFETY: the accessed element is within the table.
        unsafe {
            kernel::<read_table>(stream.device()).launch_unsafe(
                stream,
                Launch::grid_block(1, 1),
                (table, out),
            )
        }
    });
    assert!(text.contains("index 7 in elements of 4 of a buffer of 400 bytes, argument `table`"), "{text}");
}
