//! A launch on the emulated device. The launch owns a copy of its arguments, so that a stream's worker can run it
//! later.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock};

use gpu_spec::{Extents2, Extents3, KernelSpec, ParamKind, PtxParam};
use warpsmith_emulator::{self as emulator, Launch, Order, settings};

use super::control::Call;
use super::control::driver_error;
use super::touched::{Access, Touched};
use warpsmith_driver::error::{Result, code};
use warpsmith_driver::{DevicePtr, Fault, FaultKind, FunctionHandle, LaunchConfig};

/// Kernels that have handles. The handle of a kernel is its address.
static KNOWN: RwLock<BTreeMap<u64, &'static KernelSpec>> = RwLock::new(BTreeMap::new());

/// Returns the handle of a kernel.
pub(super) fn function_of(kernel: &'static KernelSpec) -> FunctionHandle {
    let handle = std::ptr::from_ref(kernel).addr() as u64;
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner).contains_key(&handle);
    if !known {
        KNOWN.write().unwrap_or_else(PoisonError::into_inner).insert(handle, kernel);
    }
    FunctionHandle(handle)
}

/// Returns the kernel of a function handle.
pub(super) fn spec_of(call: Call, function: FunctionHandle) -> Result<&'static KernelSpec> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(&function.0).copied();
    let text = || format!("function {:#x} is unknown", function.0);
    known.ok_or_else(|| driver_error(call.name(), code::INVALID_HANDLE, text()))
}

/// A launch with its own copy of the arguments.
#[derive(Debug)]
pub(super) struct KernelCall {
    kernel: &'static KernelSpec,
    config: LaunchConfig,
    order: Order,
    args: ArgumentBlock,
    /// Memory of the kernel's module, if the module was loaded from code.
    module: Option<DevicePtr>,
}

impl KernelCall {
    /// # Safety
    /// `args` must contain one pointer per kernel parameter (PTX `.param`), each of which points to a value of the
    /// parameter's size.
    pub(super) unsafe fn new(
        (kernel, module): (&'static KernelSpec, Option<DevicePtr>),
        config: LaunchConfig,
        order: Order,
        args: &[*const c_void],
    ) -> Self {
        // SAFETY: guaranteed by the caller.
        Self { kernel, config, order, args: unsafe { ArgumentBlock::copy(kernel, args) }, module }
    }

    /// Returns the symbol of the kernel.
    pub(super) fn symbol(&self) -> &'static str {
        self.kernel.symbol
    }

    pub(super) fn kernel(&self) -> &'static KernelSpec {
        self.kernel
    }

    pub(super) fn function(&self) -> FunctionHandle {
        function_of(self.kernel)
    }

    pub(super) fn config(&self) -> LaunchConfig {
        self.config
    }

    /// Returns the device memory of the slices and views among the arguments. Memory that is accessed through raw
    /// pointers is unknown. Slices are assumed to be read, except slices of atomics, which are recognized by their type
    /// name and assumed to be written.
    pub(super) fn touched(&self) -> Touched {
        let mut touched: Touched = self.module.map(|module| Access::read(module.0, 1)).into_iter().collect();
        let mut index = 0;
        for param in self.kernel.params {
            // SAFETY: a slice or view is an address followed by a length or extents.
            let elements = unsafe {
                match param.kind {
                    ParamKind::Slice | ParamKind::SliceMut => Some(self.args.value::<u64>(index + 1)),
                    ParamKind::Slice2 | ParamKind::SliceMut2 => {
                        Some(self.args.value::<Extents2>(index + 1).span() as u64)
                    }
                    ParamKind::Slice3 | ParamKind::SliceMut3 => {
                        Some(self.args.value::<Extents3>(index + 1).span() as u64)
                    }
                    ParamKind::Value
                    | ParamKind::Pointer
                    | ParamKind::PointerMut
                    | ParamKind::Shared
                    | ParamKind::TensorMap => None,
                }
            };
            if let Some(elements) = elements {
                // SAFETY: as above.
                let start = unsafe { self.args.value::<u64>(index) };
                let write = param.kind.is_mutable_view() || param.type_name.contains("Atomic");
                touched.push(Access { range: start..start + elements * param.size as u64, write });
            }
            index += param.kind.ptx_param_count();
        }
        touched
    }

    /// Returns true if any parameter is an address.
    pub(super) fn names_memory(&self) -> bool {
        self.kernel.params.iter().any(|param| !matches!(param.kind, ParamKind::Value | ParamKind::Shared))
    }

    /// Runs the kernel to completion. The kernel's declared stack must be within the context's limit.
    ///
    /// # Safety
    /// The memory to which the arguments point must be valid.
    pub(super) unsafe fn run(&self, stack_limit: usize) -> std::result::Result<(), Fault> {
        if let Some(stack) = self.kernel.stack.filter(|stack| *stack as usize > stack_limit) {
            let message = format!(
                "its threads use {stack} bytes of stack, but the stack limit is {stack_limit}; raise the limit"
            );
            let kernel = Some(self.kernel.symbol.to_owned());
            return Err(Fault {
                kind: FaultKind::Other,
                message,
                location: None,
                kernel,
                block: None,
                thread: None,
            });
        }
        let launch = Launch {
            kernel: self.kernel,
            grid: self.config.grid,
            block: self.config.block,
            shared_bytes: self.config.shared_bytes,
            cluster: self.config.cluster,
            cooperative: self.config.cooperative,
            args: &self.args.pointers(),
            order: self.order,
        };
        // SAFETY: the arguments match the kernel's parameters, and the caller guarantees that the memory to which they
        // point is valid.
        unsafe { warpsmith_emulator::run(&launch) }.map_err(|fault| self.fault(fault))
    }

    /// Returns a note on how to repeat the thread order in which the kernel failed, if the order was random.
    fn seed_note(&self, fault: &emulator::Fault) -> String {
        use emulator::FaultKind::{InvalidLaunch, OutOfStacks};
        let depends = !matches!(fault.kind, InvalidLaunch(_) | OutOfStacks(_));
        let is_drawn = matches!(self.order, Order::Varied(_)) && depends;
        settings::seed_note().filter(|_| is_drawn).map_or_else(String::new, |note| format!(" ({note})"))
    }

    fn fault(&self, fault: emulator::Fault) -> Fault {
        Fault {
            kind: match fault.kind {
                emulator::FaultKind::Panic { .. } => FaultKind::Panic,
                emulator::FaultKind::Deadlock { .. } | emulator::FaultKind::Livelock { .. } => {
                    FaultKind::Deadlock
                }
                _ => FaultKind::Other,
            },
            message: fault.message() + &self.seed_note(&fault),
            location: fault.location().map(str::to_owned),
            // If the fault occurred in a kernel that this kernel has launched, only the name of that kernel is known.
            kernel: Some(match fault.kernel {
                name if name == self.kernel.name => self.kernel.symbol.to_owned(),
                child => child.to_owned(),
            }),
            block: fault.block,
            thread: fault.thread,
        }
    }
}

/// Values of a kernel's parameters (PTX `.param`), stored in one block. Each value is aligned as its type requires.
#[derive(Debug)]
struct ArgumentBlock {
    memory: Option<(NonNull<u8>, Layout)>,
    offsets: Vec<usize>,
}

// SAFETY: the block consists of plain bytes that only this value accesses; the code that launches the kernel is
// responsible for memory to which the values point.
unsafe impl Send for ArgumentBlock {}
// SAFETY: as above; no code writes through a shared reference.
unsafe impl Sync for ArgumentBlock {}

impl ArgumentBlock {
    /// # Safety
    /// The caller must uphold the safety contract of [`KernelCall::new`].
    unsafe fn copy(kernel: &KernelSpec, args: &[*const c_void]) -> Self {
        let mut layout = Layout::new::<()>();
        let mut values = Vec::with_capacity(args.len());
        for param in kernel.params {
            for PtxParam { size, align } in param.lower() {
                let extended = Layout::from_size_align(size, align).and_then(|value| layout.extend(value));
                if let Ok((whole, offset)) = extended {
                    layout = whole;
                    values.push((offset, size));
                }
            }
        }
        let memory = (layout.size() > 0).then(|| {
            // SAFETY: the size is not zero.
            let pointer = unsafe { std::alloc::alloc(layout) };
            (NonNull::new(pointer).unwrap_or_else(|| std::alloc::handle_alloc_error(layout)), layout)
        });
        let block = Self { memory, offsets: values.iter().map(|(offset, _)| *offset).collect() };
        for (&(offset, size), &arg) in values.iter().zip(args) {
            // SAFETY: the caller guarantees that there are `size` bytes at `arg`, and the layout has space for them at
            // `offset`.
            unsafe { block.base().add(offset).copy_from_nonoverlapping(arg.cast(), size) };
        }
        block
    }

    fn base(&self) -> *mut u8 {
        self.memory.map_or(NonNull::dangling().as_ptr(), |(pointer, _)| pointer.as_ptr())
    }

    /// Returns the value of kernel parameter `index`.
    ///
    /// # Safety
    /// The parameter must have the type `T`.
    unsafe fn value<T: Copy>(&self, index: usize) -> T {
        // SAFETY: the offset is within the block, and aligned for the parameter's type.
        unsafe { self.base().add(self.offsets[index]).cast::<T>().read() }
    }

    fn pointers(&self) -> Vec<*const c_void> {
        // SAFETY: every offset is within the block (or at the end of an empty one).
        self.offsets.iter().map(|&offset| unsafe { self.base().add(offset) } as *const c_void).collect()
    }
}

impl Drop for ArgumentBlock {
    fn drop(&mut self) {
        if let Some((pointer, layout)) = self.memory {
            // SAFETY: the memory was allocated with this layout in `copy`.
            unsafe { std::alloc::dealloc(pointer.as_ptr(), layout) };
        }
    }
}
