//! Operation of a task or a graph node: a copy, a memset, a launch, a host function call.
//!
//! An action owns its arguments, so it can run later and more than once. If the kernel of a launch fails, the action
//! makes its context unusable.

use std::sync::{Arc, Weak};

use warpsmith_emulator::check;

use super::context::EmulatedContext;
use super::kernel::KernelCall;
use super::rows::Rows;
use warpsmith_driver::activity::ActivityTransfer;
use warpsmith_driver::host_function::HostCall;
use warpsmith_driver::{Fault, FaultKind, GraphFunction, HostWork, NodeInfo};

/// An operation; see the [module's documentation](self).
#[derive(Debug)]
pub(super) enum Action {
    Copy {
        dst: u64,
        src: u64,
        bytes: usize,
        kind: ActivityTransfer,
    },
    Set {
        dst: u64,
        value: u8,
        bytes: usize,
    },
    Rows(Rows),
    Launch(KernelCall),
    /// A function that is kept alive by the code that captured or added it, as the driver's contract requires.
    Host(Weak<GraphFunction>),
    /// Host work that replaces a GPU library call.
    HostWork(Arc<HostWork>),
}

impl Action {
    pub(super) fn host(function: &Arc<GraphFunction>) -> Self {
        Self::Host(Arc::downgrade(function))
    }

    /// Runs the action on a context that is still usable.
    ///
    /// # Safety
    /// The memory that the action accesses must be valid, and the source and destination of a copy must not overlap.
    pub(super) unsafe fn run(&self, context: &EmulatedContext) {
        match self {
            // SAFETY: guaranteed by the caller.
            Self::Copy { dst, src, bytes, .. } => unsafe {
                let src: *const u8 = std::ptr::with_exposed_provenance(*src as usize);
                let dst: *mut u8 = std::ptr::with_exposed_provenance_mut(*dst as usize);
                dst.copy_from_nonoverlapping(src, *bytes);
                check::copied(dst.addr(), src.addr(), *bytes);
            },
            // SAFETY: as above.
            Self::Set { dst, value, bytes } => unsafe {
                let dst: *mut u8 = std::ptr::with_exposed_provenance_mut(*dst as usize);
                dst.write_bytes(*value, *bytes);
                check::written(dst.addr(), *bytes);
            },
            // SAFETY: as above, for each row.
            Self::Rows(rows) => unsafe { rows.copy() },
            Self::Launch(call) => {
                // SAFETY: as above, for the memory to which the arguments point.
                let result = unsafe { call.run(context.stack_limit()) };
                context.kernel_ran(call.symbol());
                if let Err(fault) = result {
                    context.poison(fault);
                }
            }
            Self::Host(function) => match function.upgrade() {
                Some(function) => {
                    HostCall::new(Box::new(move || function.call())).call();
                    check::all_written();
                }
                None => context.poison(fault(
                    FaultKind::Other,
                    "a graph called a host function that was already dropped; keep the function until no executable \
                     graph can run",
                )),
            },
            Self::HostWork(work) => {
                let result = work.run();
                check::all_written();
                if let Err(text) = result {
                    let text = format!("the emulation of a library call panicked: {text}");
                    context.poison(fault(FaultKind::Panic, text));
                }
            }
        }
        freeze();
    }

    /// Returns the kind of a copy or memset, and its number of bytes.
    pub(super) fn transfer(&self) -> Option<(ActivityTransfer, u64)> {
        match self {
            Self::Copy { kind, bytes, .. } => Some((*kind, *bytes as u64)),
            Self::Rows(rows) => Some((rows.kind(), rows.bytes() as u64)),
            Self::Set { bytes, .. } => Some((ActivityTransfer::Memset, *bytes as u64)),
            Self::Launch(_) | Self::Host(_) | Self::HostWork(_) => None,
        }
    }

    /// Returns the description of a graph node with this action.
    pub(super) fn info(&self) -> NodeInfo {
        match self {
            Self::Copy { bytes, .. } => NodeInfo::Copy { bytes: *bytes },
            Self::Rows(rows) => NodeInfo::Copy { bytes: rows.bytes() },
            Self::Set { bytes, .. } => NodeInfo::Set { bytes: *bytes },
            Self::Launch(call) => NodeInfo::Kernel { function: call.function(), config: call.config() },
            Self::Host(_) | Self::HostWork(_) => NodeInfo::Host,
        }
    }
}

/// Makes the compiler treat every byte that an action has written as initialized.
///
/// Kernels store values with padding, and values with padding are copied from the host. In Rust, padding may be
/// uninitialized. The same memory may later become a buffer of bytes, which safe code reads. One solution would be a
/// bound that forbids padding (`NoUninit`) on the element types of every path to device memory, but this would reject
/// structs that GPUs accept. An empty assembly statement solves the problem at no cost. The compiler must assume that
/// it may write all memory whose address was exposed, which includes device memory. The compiler must therefore assume
/// that the statement has written each of these bytes with its current value.
fn freeze() {
    // SAFETY: the statement does nothing. It is considered to write only memory of the action that has just run, and
    // the caller of that action guarantees that no other code uses this memory.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) }
}

/// Creates a fault that was not caused by a kernel.
pub(super) fn fault(kind: FaultKind, message: impl Into<String>) -> Fault {
    Fault { kind, message: message.into(), location: None, kernel: None, block: None, thread: None }
}
