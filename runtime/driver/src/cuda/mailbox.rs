//! Panic mailbox of a context, in pinned host memory that kernels write and the host reads.

use std::ffi::c_void;

use cudarc::driver::sys;
use gpu_spec::mailbox::{EMPTY, Mailbox};

use super::call::{RelaxedCapture, check};
use crate::error::Result;
use crate::{DevicePtr, Fault, FaultKind};

/// Allocates page-locked, device-mapped memory that all contexts can use. A context must be current.
pub(super) fn allocate_mapped(bytes: usize) -> Result<*mut c_void> {
    let _relaxed = RelaxedCapture::enter();
    let mut pointer = std::ptr::null_mut();
    let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    // SAFETY: the pointer is to a local variable.
    unsafe { check("cuMemHostAlloc", sys::cuMemHostAlloc(&mut pointer, bytes, flags)) }?;
    Ok(pointer)
}

/// A [`Mailbox`] in pinned memory, freed by [`Self::free`].
#[derive(Debug)]
pub(super) struct PinnedMailbox {
    host: *mut Mailbox,
    device: DevicePtr,
}

// SAFETY: the memory is accessed only by volatile reads and writes, under the lock of the driver's context table;
// kernels' concurrent writes are read as plain bytes.
unsafe impl Send for PinnedMailbox {}

impl PinnedMailbox {
    /// Allocates an empty mailbox in the current context.
    pub(super) fn allocate() -> Result<Self> {
        let host: *mut Mailbox = allocate_mapped(size_of::<Mailbox>())?.cast();
        let mut device = 0;
        // SAFETY: the memory was allocated with the size of a mailbox, is page-aligned, and is mapped.
        unsafe {
            host.write_volatile(Mailbox::empty());
            let result = sys::cuMemHostGetDevicePointer_v2(&mut device, host.cast(), 0);
            check("cuMemHostGetDevicePointer", result).inspect_err(|_| {
                sys::cuMemFreeHost(host.cast());
            })?;
        }
        Ok(Self { host, device: DevicePtr(device) })
    }

    /// Returns the device address of the mailbox, for kernels.
    pub(super) fn device_address(&self) -> DevicePtr {
        self.device
    }

    /// Takes the report, if a kernel wrote one. The kernel must have stopped.
    pub(super) fn take(&self) -> Option<Fault> {
        // SAFETY: the memory is a mailbox as long as this value lives, and every bit pattern is valid. The context has
        // stopped, so no kernel writes to it.
        let mail = unsafe { self.host.read_volatile() };
        if mail.state == EMPTY {
            return None;
        }
        // SAFETY: as above.
        unsafe { (&raw mut (*self.host).state).write_volatile(EMPTY) };
        let text = |bytes: &[u8], len: u32| {
            String::from_utf8_lossy(&bytes[..bytes.len().min(len as usize)]).into_owned()
        };
        let file = text(&mail.file, mail.file_len);
        let location = (!file.is_empty()).then(|| format!("{file}:{}:{}", mail.line, mail.column));
        Some(Fault {
            kind: FaultKind::Panic,
            message: text(&mail.message, mail.message_len),
            location,
            kernel: None,
            block: Some(mail.block),
            thread: Some(mail.thread),
        })
    }

    /// Frees the memory. Its context must be current.
    pub(super) fn free(self) -> Result<()> {
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the memory was allocated in `allocate`. The context has no more users, so all modules that use the
        // mailbox have been unloaded.
        unsafe { check("cuMemFreeHost", sys::cuMemFreeHost(self.host.cast())) }
    }
}
