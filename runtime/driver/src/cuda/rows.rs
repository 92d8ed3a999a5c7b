//! Pitched copies of rows. Every function in this module requires a current context.
//!
//! The driver copies all rows at once, unless a pitch exceeds the copy engines' limit or, within a device, is
//! unsupported. The driver's call then fails before it enqueues any work, and each row is copied separately, which
//! takes longer to enqueue but has the same result. Rows that overlap because of a small pitch are rejected.

use std::ffi::c_void;

use cudarc::driver::sys;

use super::call::{check, invalid};
use crate::error::{Result, code};
use crate::{DevicePtr, Place, RowsCopy};

/// Enqueues a copy of rows.
///
/// # Safety
/// Every row of both sides must be valid until the copy has run, and no row of the destination may overlap another row
/// of either side.
pub(super) unsafe fn copy(rows: &RowsCopy, stream: sys::CUstream) -> Result<()> {
    if let Some(text) = rows.overlap() {
        return Err(invalid("cuMemcpy2DAsync", text));
    }
    let whole = whole(rows);
    // SAFETY: guaranteed by the caller.
    let enqueued = unsafe { check("cuMemcpy2DAsync", sys::cuMemcpy2DAsync_v2(&whole, stream)) };
    match enqueued {
        Err(refused) if refused.code() == Some(code::INVALID_VALUE) => {
            (0..rows.rows).try_for_each(|row| {
                let (dst, src) = row_at(rows, row).ok_or_else(|| refused.clone())?;
                // SAFETY: guaranteed by the caller.
                unsafe { copy_row(dst, src, rows.row_bytes, stream) }
            })
        }
        enqueued => enqueued,
    }
}

/// Returns the driver's description of a single copy of all rows.
fn whole(rows: &RowsCopy) -> sys::CUDA_MEMCPY2D {
    let (src_type, src_host, src_device) = parts(rows.src);
    let (dst_type, dst_host, dst_device) = parts(rows.dst);
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: src_type,
        srcHost: src_host,
        srcDevice: src_device,
        srcArray: std::ptr::null_mut(),
        srcPitch: rows.src_pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: dst_type,
        dstHost: dst_host,
        dstDevice: dst_device,
        dstArray: std::ptr::null_mut(),
        dstPitch: rows.dst_pitch,
        WidthInBytes: rows.row_bytes,
        Height: rows.rows,
    }
}

/// Returns the memory type, the host address and the device address, of which one is null.
pub(super) fn parts(place: Place) -> (sys::CUmemorytype, *mut c_void, sys::CUdeviceptr) {
    match place {
        Place::Host(pointer) => (sys::CUmemorytype::CU_MEMORYTYPE_HOST, pointer, 0),
        Place::Device(ptr) => (sys::CUmemorytype::CU_MEMORYTYPE_DEVICE, std::ptr::null_mut(), ptr.0),
    }
}

/// Returns the destination and the source of a row; `None` if an address overflows.
fn row_at(rows: &RowsCopy, row: usize) -> Option<(Place, Place)> {
    Some((
        place_at(rows.dst, row.checked_mul(rows.dst_pitch)?)?,
        place_at(rows.src, row.checked_mul(rows.src_pitch)?)?,
    ))
}

fn place_at(place: Place, offset: usize) -> Option<Place> {
    Some(match place {
        Place::Host(pointer) => {
            pointer.addr().checked_add(offset)?;
            Place::Host(pointer.wrapping_byte_add(offset))
        }
        Place::Device(ptr) => Place::Device(DevicePtr(ptr.0.checked_add(offset as u64)?)),
    })
}

/// # Safety
/// Both sides must be valid for `bytes` bytes until the copy has run and must not overlap.
unsafe fn copy_row(dst: Place, src: Place, bytes: usize, stream: sys::CUstream) -> Result<()> {
    // The driver determines the kind of memory from the address.
    let address = |place| match place {
        Place::Host(pointer) => pointer.expose_provenance() as sys::CUdeviceptr,
        Place::Device(ptr) => ptr.0,
    };
    // SAFETY: guaranteed by the caller.
    unsafe { check("cuMemcpyAsync", sys::cuMemcpyAsync(address(dst), address(src), bytes, stream)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(dst: Place, src: Place) -> RowsCopy {
        RowsCopy { dst, dst_pitch: 64, src, src_pitch: 48, row_bytes: 40, rows: 3 }
    }

    #[test]
    fn each_side_is_named_by_its_kind() {
        let mut memory = [0u8; 8];
        let (host, device) = (Place::Host(memory.as_mut_ptr().cast()), Place::Device(DevicePtr(0x7000)));
        let up = whole(&rows(device, host));
        assert_eq!(up.dstMemoryType, sys::CUmemorytype::CU_MEMORYTYPE_DEVICE);
        assert_eq!(up.srcMemoryType, sys::CUmemorytype::CU_MEMORYTYPE_HOST);
        assert_eq!((up.dstDevice, up.dstHost.is_null()), (0x7000, true));
        assert_eq!((up.srcDevice, up.srcHost.addr()), (0, memory.as_ptr().addr()));
        assert_eq!((up.dstPitch, up.srcPitch, up.WidthInBytes, up.Height), (64, 48, 40, 3));
        assert_eq!((up.dstXInBytes, up.dstY, up.srcXInBytes, up.srcY), (0, 0, 0, 0));
        assert!(up.dstArray.is_null() && up.srcArray.is_null());

        let down = whole(&rows(host, device));
        assert_eq!(down.dstMemoryType, sys::CUmemorytype::CU_MEMORYTYPE_HOST);
        assert_eq!((down.dstDevice, down.dstHost.addr()), (0, memory.as_ptr().addr()));
        assert_eq!((down.srcDevice, down.srcHost.is_null()), (0x7000, true));
    }

    #[test]
    fn a_pitch_below_a_row_is_refused() {
        let (dst, src) = (Place::Device(DevicePtr(0x7000)), Place::Device(DevicePtr(0x9000)));
        for bad in [RowsCopy { src_pitch: 39, ..rows(dst, src) }, RowsCopy { dst_pitch: 0, ..rows(dst, src) }]
        {
            // SAFETY: no work is enqueued.
            let refused = unsafe { copy(&bad, std::ptr::null_mut()) }.unwrap_err();
            assert!(refused.to_string().contains("less than a row of 40 bytes"), "{refused}");
        }
    }

    #[test]
    fn rows_are_their_pitch_apart() {
        let mut memory = [0u8; 8];
        let pointer: *mut c_void = memory.as_mut_ptr().cast();
        let copy = rows(Place::Device(DevicePtr(0x7000)), Place::Host(pointer));
        for row in [0, 1, 2] {
            let (dst, src) = row_at(&copy, row).unwrap();
            assert_eq!(dst, Place::Device(DevicePtr(0x7000 + 64 * row as u64)));
            assert_eq!(src, Place::Host(pointer.wrapping_byte_add(48 * row)));
        }
        assert_eq!(row_at(&copy, usize::MAX), None);
    }
}
