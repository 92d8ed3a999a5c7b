//! Checks of the memory that work uses. Work may use blocks and mapped memory of its own context and of contexts to
//! which it has peer access. It may also use page-locked memory.
//!
//! Ranges of copies and memsets are checked when they are enqueued. For launches, only two kinds of memory are checked:
//! ranges in reserved addresses, in which a wrong address would terminate the process, and blocks of other devices.

use std::sync::Arc;

use super::EmulatedDriver;
use super::context::EmulatedContext;
use super::control::Call;
use super::control::driver_error;
use super::kernel::KernelCall;
use super::pages::Backing;
use super::touched::{Access, Touched};
use warpsmith_driver::error::{DriverError, Result, code};
use warpsmith_driver::{DevicePtr, HostAccess};

impl EmulatedDriver {
    /// Checks that work of a context may use a range of device memory.
    pub(super) fn check_range(
        &self,
        call: Call,
        context: &EmulatedContext,
        ptr: DevicePtr,
        bytes: usize,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        if matches!(self.backing, Backing::Numbers(_)) {
            return Err(nothing_behind(call));
        }
        self.check_held(call, context, ptr, bytes)
    }

    /// Checks the range of a memset and returns the number of bytes to write, which is 0 for addresses without memory
    /// on an idle driver.
    pub(super) fn check_fill(
        &self,
        call: Call,
        context: &EmulatedContext,
        ptr: DevicePtr,
        bytes: usize,
    ) -> Result<usize> {
        if self.idle && bytes > 0 && matches!(self.backing, Backing::Numbers(_)) {
            return self.check_held(call, context, ptr, bytes).map(|()| 0);
        }
        self.check_range(call, context, ptr, bytes).map(|()| bytes)
    }

    fn check_held(&self, call: Call, context: &EmulatedContext, ptr: DevicePtr, bytes: usize) -> Result<()> {
        if context.heap.holds(ptr, bytes) {
            return Ok(());
        }
        if let Some(verdict) = self.check_mapped(call, context, ptr, bytes) {
            return verdict;
        }
        if context.peers().iter().any(|peer| peer.heap.holds(ptr, bytes)) || self.is_page_locked(ptr, bytes) {
            return Ok(());
        }
        let text = format!("{bytes} bytes at {:#x} are not within a live block of this device", ptr.0);
        Err(driver_error(call.name(), code::INVALID_VALUE, text))
    }

    /// Checks the memory that host work declares.
    pub(super) fn check_uses(
        &self,
        call: Call,
        context: &EmulatedContext,
        uses: &[HostAccess],
    ) -> Result<Touched> {
        let check = |used: &HostAccess| {
            self.check_range(call, context, used.ptr, used.bytes)?;
            let access = if used.write { Access::write } else { Access::read };
            Ok(access(used.ptr.0, used.bytes))
        };
        uses.iter().map(check).collect()
    }

    /// Checks the memory to which the arguments of a launch refer.
    pub(super) fn check_launch(
        &self,
        called: Call,
        context: &EmulatedContext,
        call: &KernelCall,
        touched: &Touched,
    ) -> Result<()> {
        if matches!(self.backing, Backing::Numbers(_)) && call.names_memory() {
            return Err(nothing_behind(called));
        }
        for range in touched.iter().map(|access| &access.range).filter(|range| !range.is_empty()) {
            let bytes = (range.end - range.start) as usize;
            let ptr = DevicePtr(range.start);
            let mapped = self.check_mapped(called, context, ptr, bytes);
            mapped.unwrap_or_else(|| self.check_foreign(called, context, ptr, bytes))?;
        }
        Ok(())
    }

    /// Rejects a range in a block of another device, if there is no peer access to that device.
    fn check_foreign(
        &self,
        called: Call,
        context: &EmulatedContext,
        ptr: DevicePtr,
        bytes: usize,
    ) -> Result<()> {
        if self.devices.len() == 1 || context.heap.holds(ptr, bytes) {
            return Ok(());
        }
        let holder = self.contexts.all().into_iter().find(|other| other.heap.holds(ptr, bytes));
        let Some(holder) = holder.filter(|holder| !context.peers().iter().any(|p| Arc::ptr_eq(p, holder)))
        else {
            return Ok(());
        };
        let text = format!(
            "{bytes} bytes at {:#x} belong to device {}, but peer access from device {} is not enabled",
            ptr.0, holder.ordinal, context.ordinal
        );
        Err(driver_error(called.name(), code::INVALID_VALUE, text))
    }

    /// Checks a range of reserved addresses of any context. Returns `None` if the range does not start at reserved
    /// addresses.
    fn check_mapped(
        &self,
        call: Call,
        context: &EmulatedContext,
        ptr: DevicePtr,
        bytes: usize,
    ) -> Option<Result<()>> {
        let check = |space: &EmulatedContext| space.space.check(call, context.ordinal, ptr, bytes);
        check(context).or_else(|| {
            if self.devices.len() == 1 {
                return None;
            }
            self.contexts.all().iter().find_map(|other| check(other))
        })
    }

    /// Returns true if a range is within host memory that every device can access, because it is page-locked or
    /// exposed.
    pub(super) fn is_page_locked(&self, ptr: DevicePtr, bytes: usize) -> bool {
        self.pinned.holds(ptr, bytes)
            || self.registered.holds(ptr.0, bytes)
            || self.exposed.holds(ptr.0, bytes)
    }

    /// Returns true if pending work of any context accesses addresses from `start` to `end`.
    pub(super) fn is_busy(&self, start: u64, end: u64) -> bool {
        self.contexts.all().iter().any(|context| context.is_busy(start, end))
    }

    /// Checks that one device can access the memory of another device.
    pub(super) fn reaches(&self, call: Call, ordinal: u32, peer: u32) -> Result<()> {
        if self.peers || ordinal == peer {
            return Ok(());
        }
        let text = format!("device {ordinal} cannot access the memory of device {peer}");
        Err(driver_error(call.name(), code::PEER_ACCESS_UNSUPPORTED, text))
    }

    /// Checks that device `ordinal` exists.
    pub(super) fn known(&self, call: Call, ordinal: u32) -> Result<()> {
        if (ordinal as usize) < self.devices.len() {
            return Ok(());
        }
        Err(driver_error(call.name(), code::INVALID_VALUE, format!("no device {ordinal}")))
    }
}

fn nothing_behind(call: Call) -> DriverError {
    let text = "this driver was built without backing memory (`unbacked`): memory can be allocated, mapped and \
                freed, but not accessed";
    driver_error(call.name(), code::NOT_SUPPORTED, text)
}
