//! Driver calls for images, their kernels, and launches.

use std::ffi::c_void;

use gpu_spec::{KernelSpec, TensorMapData, TensorMapSpec};

use super::EmulatedDriver;
use super::action::Action;
use super::control::{Call, driver_error};
use super::kernel::{KernelCall, function_of};
use super::limits::{MAX_SHARED_BYTES, MAX_THREADS, occupancy};
use super::stream::Work;
use warpsmith_driver::error::{Result, code};
use warpsmith_driver::{
    CodeDriver, Context, DevicePtr, FunctionAttributes, FunctionHandle, LaunchConfig, ModuleHandle,
    ModuleSource, StreamHandle,
};

/// Module that contains the host entry points of all kernels.
const HOST_ENTRIES: ModuleHandle = ModuleHandle(0);

// SAFETY: as for `Driver`.
unsafe impl CodeDriver for EmulatedDriver {
    fn max_ptx_version(&self) -> Option<u32> {
        None
    }

    fn module_load(&self, context: Context, source: ModuleSource<'_>) -> Result<ModuleHandle> {
        let _called = self.called_aside(Call::ModuleLoad);
        let context = self.enter(Call::ModuleLoad, context)?;
        match source {
            ModuleSource::HostEntries => Ok(HOST_ENTRIES),
            ModuleSource::Ptx(_) | ModuleSource::Cubin(_) | ModuleSource::Linked { .. } => {
                self.code.load(&context)
            }
        }
    }

    unsafe fn module_unload(&self, context: Context, module: ModuleHandle) {
        // A failure cannot be reported.
        if let Ok(context) = self.enter_to_free(Call::ModuleUnload, context)
            && module != HOST_ENTRIES
        {
            // SAFETY: guaranteed by the caller.
            unsafe { self.code.unload(&context, module) };
        }
    }

    fn module_function(
        &self,
        context: Context,
        module: ModuleHandle,
        spec: &'static KernelSpec,
    ) -> Result<FunctionHandle> {
        let _called = self.called_aside(Call::ModuleFunction);
        self.enter(Call::ModuleFunction, context)?;
        if module == HOST_ENTRIES { Ok(function_of(spec)) } else { self.code.function(module, spec.symbol) }
    }

    fn module_global(
        &self,
        context: Context,
        module: ModuleHandle,
        name: &str,
    ) -> Result<(DevicePtr, usize)> {
        let _called = self.called_aside(Call::ModuleGlobal);
        self.enter(Call::ModuleGlobal, context)?;
        if module == HOST_ENTRIES {
            let text = "the globals of host entries are the program's own";
            return Err(driver_error(Call::ModuleGlobal.name(), code::NOT_SUPPORTED, text));
        }
        self.code.global(module, name)
    }

    fn link(&self, context: Context, parts: &[ModuleSource<'_>]) -> Result<Vec<u8>> {
        let _called = self.called_aside(Call::Link);
        self.enter(Call::Link, context)?;
        self.code.link(parts)
    }

    fn function_attributes(&self, context: Context, function: FunctionHandle) -> Result<FunctionAttributes> {
        let _called = self.called_aside(Call::FunctionAttributes);
        self.enter(Call::FunctionAttributes, context)?;
        let (kernel, _) = self.code.kernel_of(Call::FunctionAttributes, function)?;
        let bounds = kernel.launch_bounds.map_or(MAX_THREADS, |bounds| bounds.max_threads);
        Ok(FunctionAttributes { max_threads_per_block: bounds.min(MAX_THREADS), ..Default::default() })
    }

    fn function_allow_shared(&self, context: Context, _function: FunctionHandle, bytes: u32) -> Result<()> {
        let _called = self.called_aside(Call::FunctionAllowShared);
        self.enter(Call::FunctionAllowShared, context)?;
        if bytes > MAX_SHARED_BYTES {
            let text = format!("{bytes} bytes of shared memory exceed the limit of {MAX_SHARED_BYTES}");
            return Err(driver_error("function_allow_shared", code::INVALID_VALUE, text));
        }
        Ok(())
    }

    fn tensor_map(&self, context: Context, spec: &TensorMapSpec) -> Result<TensorMapData> {
        let _called = self.called_aside(Call::TensorMap);
        self.enter(Call::TensorMap, context)?;
        match spec.check() {
            Ok(()) => Ok(spec.encode()),
            Err(error) => Err(driver_error("tensor_map", code::INVALID_VALUE, error.to_string())),
        }
    }

    fn function_occupancy(
        &self,
        context: Context,
        _function: FunctionHandle,
        block_threads: u32,
        shared_bytes: u32,
    ) -> Result<u32> {
        let _called = self.called_aside(Call::FunctionOccupancy);
        self.enter(Call::FunctionOccupancy, context)?;
        Ok(occupancy(block_threads, shared_bytes))
    }

    fn function_max_cluster(
        &self,
        context: Context,
        function: FunctionHandle,
        _config: LaunchConfig,
    ) -> Result<u32> {
        self.enter(Call::FunctionMaxCluster, context)?;
        Ok(self.largest_cluster(function))
    }

    fn function_resident_clusters(
        &self,
        context: Context,
        function: FunctionHandle,
        config: LaunchConfig,
    ) -> Result<u32> {
        self.enter(Call::FunctionResidentClusters, context)?;
        self.resident_clusters(Call::FunctionResidentClusters, function, &config)
    }

    fn function_allow_large_clusters(&self, context: Context, function: FunctionHandle) -> Result<()> {
        self.enter(Call::FunctionAllowLargeClusters, context)?;
        self.allow_large_clusters(function);
        Ok(())
    }

    unsafe fn launch(
        &self,
        context: Context,
        function: FunctionHandle,
        config: &LaunchConfig,
        args: &[*const c_void],
        stream: StreamHandle,
    ) -> Result<()> {
        let called = self.called(Call::Launch);
        let context = self.enter(Call::Launch, context)?;
        self.check_config(Call::Launch, function, config)?;
        if self.idle && !self.captures.holds(stream.0) {
            if self.time.is_none() && !self.races.is_on() {
                if let Some(called) = &called {
                    self.launched_idly(called, (context.ordinal, stream), function, config);
                }
                return Ok(());
            }
            let kernel = self.code.kernel_of(Call::Launch, function)?;
            // SAFETY: the caller promises that the arguments are valid.
            let touched = unsafe { KernelCall::new(kernel, *config, self.order, args) }.touched();
            return self.push(Call::Launch, stream, Work::Idle(kernel.0, *config), touched);
        }
        // SAFETY: the caller promises that the arguments are valid.
        let call = unsafe {
            KernelCall::new(self.code.kernel_of(Call::Launch, function)?, *config, self.order, args)
        };
        let touched = call.touched();
        self.check_launch(Call::Launch, &context, &call, &touched)?;
        self.push(Call::Launch, stream, Work::Act(Action::Launch(call)), touched)
    }
}
