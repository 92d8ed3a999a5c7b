//! PTX, cubins and fatbins on the emulated device, which cannot run them. To test the layers above the driver, a driver
//! can be configured to accept any code as a module that contains specified kernels.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use gpu_spec::KernelSpec;

use super::action::fault;
use super::context::EmulatedContext;
use super::control::{Call, driver_error};
use super::kernel::spec_of;
use warpsmith_driver::error::{Result, code};
use warpsmith_driver::{DevicePtr, FaultKind, FunctionHandle, ModuleHandle, ModuleSource};

/// Name of the global variable that every module has. The variable is the module's memory. The next constant is its
/// size in bytes.
const GLOBAL: &str = "module_memory";
const MODULE_BYTES: usize = 256;

/// Kernels that every module contains, and the functions that were looked up.
#[derive(Debug, Default)]
pub(super) struct LoadedCode {
    kernels: Vec<&'static KernelSpec>,
    /// Functions, each with the memory of its module. The handle of a function is its one-based index. A number this
    /// small cannot be the address of a kernel.
    functions: RwLock<HashMap<FunctionHandle, (&'static KernelSpec, DevicePtr)>>,
}

impl LoadedCode {
    pub(super) fn new(kernels: Vec<&'static KernelSpec>) -> Self {
        Self { kernels, functions: RwLock::default() }
    }

    /// Loads code. A module is represented by a block of device memory, which launches of its kernels are assumed to
    /// read.
    pub(super) fn load(&self, context: &EmulatedContext) -> Result<ModuleHandle> {
        self.takes_code(Call::ModuleLoad)?;
        Ok(ModuleHandle(context.heap.allocate(Call::ModuleLoad, MODULE_BYTES)?.0))
    }

    fn takes_code(&self, call: Call) -> Result<()> {
        if self.kernels.is_empty() {
            let text = "the emulated device runs only host entries";
            return Err(driver_error(call.name(), code::NOT_SUPPORTED, text));
        }
        Ok(())
    }

    /// Links code. Because all code is equivalent, the result is the first part.
    pub(super) fn link(&self, parts: &[ModuleSource<'_>]) -> Result<Vec<u8>> {
        self.takes_code(Call::Link)?;
        match parts.first() {
            Some(ModuleSource::Ptx(code) | ModuleSource::Cubin(code)) => Ok(code.to_vec()),
            _ => Err(driver_error(Call::Link.name(), code::INVALID_VALUE, "there is no code to link")),
        }
    }

    /// Returns the global variable [`GLOBAL`] of a module.
    pub(super) fn global(&self, module: ModuleHandle, name: &str) -> Result<(DevicePtr, usize)> {
        match name {
            GLOBAL => Ok((DevicePtr(module.0), MODULE_BYTES)),
            _ => Err(driver_error(Call::ModuleGlobal.name(), code::NOT_FOUND, format!("no global `{name}`"))),
        }
    }

    /// Unloads a module. If pending work still uses the module, this is an error in the layer above, and the context
    /// becomes unusable.
    ///
    /// # Safety
    /// No function of the module may be used again.
    pub(super) unsafe fn unload(&self, context: &EmulatedContext, module: ModuleHandle) {
        let memory = DevicePtr(module.0);
        let busy = |start, end| context.is_busy(start, end);
        // SAFETY: the block belongs to the module, and kernels do not actually access it.
        if let Err(error) = unsafe { context.heap.free(Call::ModuleUnload, memory, busy) } {
            let text = format!("a module was unloaded before the work that uses it had run: {error}");
            context.poison(fault(FaultKind::Other, text));
        }
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        functions.retain(|_, (_, of)| *of != memory);
    }

    /// Returns a kernel of loaded code by its symbol.
    pub(super) fn function(&self, module: ModuleHandle, symbol: &str) -> Result<FunctionHandle> {
        let found = self.kernels.iter().find(|kernel| kernel.symbol == symbol);
        let text = || format!("no kernel `{symbol}`");
        let kernel =
            found.ok_or_else(|| driver_error(Call::ModuleFunction.name(), code::NOT_FOUND, text()))?;
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        let next = functions.keys().map(|handle| handle.0).max().unwrap_or(0) + 1;
        functions.insert(FunctionHandle(next), (kernel, DevicePtr(module.0)));
        Ok(FunctionHandle(next))
    }

    /// Returns the kernel that belongs to a handle, and the memory of its module if the module was loaded from code.
    pub(super) fn kernel_of(
        &self,
        call: Call,
        function: FunctionHandle,
    ) -> Result<(&'static KernelSpec, Option<DevicePtr>)> {
        if !self.kernels.is_empty() {
            let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
            if let Some((kernel, module)) = functions.get(&function) {
                return Ok((kernel, Some(*module)));
            }
        }
        spec_of(call, function).map(|kernel| (kernel, None))
    }
}
