//! Node parameters in the driver's form.

use std::ffi::c_void;

use cudarc::driver::sys;

use super::super::rows;
use crate::{DevicePtr, FunctionHandle, LaunchConfig, Place};

/// Returns the parameters of a launch. The driver call to which they are passed reads the arguments.
pub(super) fn kernel(
    function: FunctionHandle,
    config: &LaunchConfig,
    args: &[*const c_void],
) -> sys::CUDA_KERNEL_NODE_PARAMS {
    let LaunchConfig { grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes, .. } = *config;
    sys::CUDA_KERNEL_NODE_PARAMS {
        func: function.0 as sys::CUfunction,
        gridDimX: gx,
        gridDimY: gy,
        gridDimZ: gz,
        blockDimX: bx,
        blockDimY: by,
        blockDimZ: bz,
        sharedMemBytes: shared_bytes,
        // The driver only reads the values; its signature takes mutable pointers.
        kernelParams: args.as_ptr() as *mut *mut c_void,
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        // A null context selects the function's context.
        ctx: std::ptr::null_mut(),
    }
}

/// Returns a kernel, and its configuration without attributes. Other code may have captured a library kernel
/// (`CUkernel`), whose handle every call accepts as a function handle.
pub(super) fn read_kernel(params: &sys::CUDA_KERNEL_NODE_PARAMS) -> (FunctionHandle, LaunchConfig) {
    let function = if params.func.is_null() { params.kern as u64 } else { params.func as u64 };
    let grid = [params.gridDimX, params.gridDimY, params.gridDimZ];
    let block = [params.blockDimX, params.blockDimY, params.blockDimZ];
    (FunctionHandle(function), LaunchConfig::new(grid, block, params.sharedMemBytes))
}

/// Returns the parameters for a copy of one row. The pitch is zero (none), because a pitch would limit the row length.
pub(super) fn copy(dst: Place, src: Place, bytes: usize) -> sys::CUDA_MEMCPY3D {
    let (src_type, src_host, src_device) = rows::parts(src);
    let (dst_type, dst_host, dst_device) = rows::parts(dst);
    sys::CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: src_type,
        srcHost: src_host,
        srcDevice: src_device,
        srcArray: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: dst_type,
        dstHost: dst_host,
        dstDevice: dst_device,
        dstArray: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
    }
}

/// Returns the parameters for a memset of one row. The pitch is irrelevant.
pub(super) fn set(dst: DevicePtr, value: u8, bytes: usize) -> sys::CUDA_MEMSET_NODE_PARAMS {
    sys::CUDA_MEMSET_NODE_PARAMS {
        dst: dst.0,
        pitch: 0,
        value: value.into(),
        elementSize: 1,
        width: bytes,
        height: 1,
    }
}

/// Returns the number of bytes in a box of `width` bytes, `height` rows and `depth` layers; `height` and `depth` may be
/// 0.
pub(super) fn box_bytes(width: usize, height: usize, depth: usize) -> usize {
    width.saturating_mul(height.max(1)).saturating_mul(depth.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_sizes_of_the_drivers() {
        assert_eq!(size_of::<sys::CUDA_KERNEL_NODE_PARAMS>(), 72);
        assert_eq!(size_of::<sys::CUDA_MEMCPY3D>(), 200);
        assert_eq!(size_of::<sys::CUDA_MEMSET_NODE_PARAMS>(), 40);
        assert_eq!(size_of::<sys::CUDA_HOST_NODE_PARAMS>(), 16);
    }

    #[test]
    fn a_kernel_is_read_as_it_was_written() {
        let config = LaunchConfig::new([5, 4, 3], [32, 8, 1], 4096);
        let arguments = [std::ptr::without_provenance(0x10), std::ptr::without_provenance(0x20)];
        let params = kernel(FunctionHandle(0xF0), &config, &arguments);
        assert_eq!(params.kernelParams.cast_const().cast(), arguments.as_ptr());
        assert!(params.extra.is_null() && params.kern.is_null() && params.ctx.is_null());
        assert_eq!(read_kernel(&params), (FunctionHandle(0xF0), config));
    }

    #[test]
    fn a_kernel_of_a_library_has_its_own_handle() {
        let config = LaunchConfig::new([1; 3], [1; 3], 0);
        let mut params = kernel(FunctionHandle(0), &config, &[]);
        params.kern = std::ptr::without_provenance_mut(0xAB);
        assert_eq!(read_kernel(&params).0, FunctionHandle(0xAB));
    }

    #[test]
    fn copies_without_pitch_are_one_row() {
        let mut memory = [0u8; 8];
        let (host, device) = (Place::Host(memory.as_mut_ptr().cast()), Place::Device(DevicePtr(0x7000)));
        let down = copy(host, device, 5 << 30);
        assert_eq!(down.dstMemoryType, sys::CUmemorytype::CU_MEMORYTYPE_HOST);
        assert_eq!((down.dstHost.addr(), down.dstDevice), (memory.as_ptr().addr(), 0));
        assert_eq!(down.srcMemoryType, sys::CUmemorytype::CU_MEMORYTYPE_DEVICE);
        assert_eq!((down.srcHost.is_null(), down.srcDevice), (true, 0x7000));
        assert_eq!((down.WidthInBytes, down.Height, down.Depth), (5 << 30, 1, 1));
        assert_eq!((down.srcPitch, down.dstPitch), (0, 0));
    }

    #[test]
    fn setting_counts_in_bytes() {
        let params = set(DevicePtr(0x7000), 0xEE, 100);
        assert_eq!((params.dst, params.value, params.elementSize), (0x7000, 0xEE, 1));
        assert_eq!((params.width, params.height), (100, 1));
    }

    #[test]
    fn a_box_without_rows_or_layers_is_one() {
        assert_eq!(box_bytes(7, 0, 0), 7);
        assert_eq!(box_bytes(7, 3, 2), 42);
        assert_eq!(box_bytes(usize::MAX, 2, 1), usize::MAX);
    }
}
