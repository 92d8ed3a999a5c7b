//! Pitched copies of rows: validity checks, accessed memory, and the copy itself.
//!
//! Bytes between the rows are neither read nor written. Invalid copies are rejected before any data is copied.

use std::ops::Range;

use super::control::Call;
use super::control::driver_error;
use super::touched::{Access, Touched};
use warpsmith_driver::activity::ActivityTransfer;
use warpsmith_driver::error::{DriverError, Result, code};
use warpsmith_driver::{DevicePtr, Place, RowsCopy};

/// A copy that has passed all checks.
#[derive(Debug)]
pub(super) struct Rows {
    dst: Side,
    src: Side,
    row_bytes: usize,
    rows: usize,
}

/// Layout of the rows on one side of a copy.
#[derive(Debug, Clone, Copy)]
struct Side {
    address: u64,
    pitch: usize,
    on_device: bool,
}

fn invalid(text: String) -> DriverError {
    driver_error(Call::CopyRows.name(), code::INVALID_VALUE, text)
}

impl Side {
    fn new(place: Place, pitch: usize) -> Self {
        match place {
            Place::Host(pointer) => {
                Self { address: pointer.expose_provenance() as u64, pitch, on_device: false }
            }
            Place::Device(DevicePtr(address)) => Self { address, pitch, on_device: true },
        }
    }

    /// Returns the number of bytes from the first byte of the first row to the last byte of the last row.
    fn span(&self, row_bytes: usize, rows: usize) -> Result<usize> {
        let span = self.pitch.checked_mul(rows - 1).and_then(|gaps| gaps.checked_add(row_bytes));
        let fits = span.filter(|span| self.address.checked_add(*span as u64).is_some());
        fits.ok_or_else(|| {
            invalid(format!("{rows} rows with a pitch of {} bytes exceed the address space", self.pitch))
        })
    }
}

impl Rows {
    /// Checks the shape of a copy; `check_range` checks that device memory may be accessed.
    pub(super) fn check(
        copy: RowsCopy,
        check_range: impl Fn(DevicePtr, usize) -> Result<()>,
    ) -> Result<Self> {
        let RowsCopy { dst, dst_pitch, src, src_pitch, row_bytes, rows } = copy;
        if row_bytes == 0 || rows == 0 {
            return Err(invalid(format!("{rows} rows of {row_bytes} bytes have no bytes to copy")));
        }
        if let Some(text) = copy.overlap() {
            return Err(invalid(text));
        }
        let checked =
            Self { dst: Side::new(dst, dst_pitch), src: Side::new(src, src_pitch), row_bytes, rows };
        for side in [checked.dst, checked.src] {
            let span = side.span(row_bytes, rows)?;
            if side.on_device {
                check_range(DevicePtr(side.address), span)?;
            }
        }
        Ok(checked)
    }

    /// Returns the direction of the copy.
    pub(super) fn kind(&self) -> ActivityTransfer {
        ActivityTransfer::between(self.src.on_device, self.dst.on_device)
    }

    /// Returns the total number of bytes in all rows.
    pub(super) fn bytes(&self) -> usize {
        self.row_bytes * self.rows
    }

    /// Returns the host memory of the rows.
    pub(super) fn on_host(&self) -> impl Iterator<Item = Range<u64>> {
        [self.dst, self.src].into_iter().filter(|side| !side.on_device).flat_map(|side| self.ranges(side))
    }

    /// Returns the memory of the rows, as one range if there are no gaps.
    pub(super) fn touched(&self) -> Touched {
        let written = self.ranges(self.dst).map(|range| Access { range, write: true });
        let read = self.ranges(self.src).map(|range| Access { range, write: false });
        written.chain(read).collect()
    }

    fn ranges(&self, side: Side) -> impl Iterator<Item = Range<u64>> {
        let whole = side.pitch == self.row_bytes;
        let (count, bytes) =
            if whole { (1, self.row_bytes * self.rows) } else { (self.rows, self.row_bytes) };
        (0..count as u64).map(move |row| {
            let start = side.address + row * side.pitch as u64;
            start..start + bytes as u64
        })
    }

    /// Copies the rows, one after another.
    ///
    /// # Safety
    /// All rows must be valid, and no destination row may overlap any other row of the source or destination.
    pub(super) unsafe fn copy(&self) {
        for row in 0..self.rows {
            let at = |side: Side| side.address as usize + row * side.pitch;
            let src: *const u8 = std::ptr::with_exposed_provenance(at(self.src));
            let dst: *mut u8 = std::ptr::with_exposed_provenance_mut(at(self.dst));
            // SAFETY: guaranteed by the caller.
            unsafe { dst.copy_from_nonoverlapping(src, self.row_bytes) };
            warpsmith_emulator::check::copied(dst.addr(), src.addr(), self.row_bytes);
        }
    }
}
