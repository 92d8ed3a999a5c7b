//! [`CodeDriver`]: the part of [`Driver`](crate::Driver) about images, the kernels in them, and their launches.

use std::ffi::c_void;

use gpu_spec::{KernelSpec, TensorMapData, TensorMapSpec};

use crate::error::Result;
use crate::{
    Context, DevicePtr, FunctionAttributes, FunctionHandle, LaunchConfig, ModuleHandle, ModuleSource,
    StreamHandle,
};

/// The calls of a [`Driver`](crate::Driver) about images, the kernels in them, and their launches.
///
/// # Safety
/// As for [`Driver`](crate::Driver).
pub unsafe trait CodeDriver {
    /// The newest PTX version the driver compiles, as `10 * major + minor`; `None` where it does not matter.
    fn max_ptx_version(&self) -> Option<u32>;
    /// Loads an image, and points its panic mailbox at the context's.
    fn module_load(&self, context: Context, source: ModuleSource<'_>) -> Result<ModuleHandle>;
    /// Unloads it.
    ///
    /// # Safety
    /// No work that uses the module is enqueued, and no function of it is used again.
    unsafe fn module_unload(&self, context: Context, module: ModuleHandle);
    /// Finds a kernel.
    fn module_function(
        &self,
        context: Context,
        module: ModuleHandle,
        spec: &'static KernelSpec,
    ) -> Result<FunctionHandle>;
    /// Address and size in bytes of a global of a module that was loaded from code.
    fn module_global(&self, context: Context, module: ModuleHandle, name: &str)
    -> Result<(DevicePtr, usize)>;
    /// Links PTX, cubins and fatbins into one cubin for the context's device.
    fn link(&self, context: Context, parts: &[ModuleSource<'_>]) -> Result<Vec<u8>>;
    /// The names of a module's kernels; `None` where the driver does not report them (CUDA before 12.4, the emulated
    /// one).
    fn module_kernels(&self, _context: Context, _module: ModuleHandle) -> Result<Option<Vec<String>>> {
        Ok(None)
    }
    /// Bytes of each machine parameter of a kernel, in order; `None` where the driver does not report them (CUDA before
    /// 12.4, the emulated one).
    fn function_params(&self, _context: Context, _function: FunctionHandle) -> Result<Option<Vec<usize>>> {
        Ok(None)
    }
    /// The resources that the kernel needs.
    fn function_attributes(&self, context: Context, function: FunctionHandle) -> Result<FunctionAttributes>;
    /// Lets blocks of the kernel use up to `bytes` of dynamic shared memory.
    fn function_allow_shared(&self, context: Context, function: FunctionHandle, bytes: u32) -> Result<()>;
    /// Encodes a tensor map for the context's device, which copies of boxes then take. Fails with
    /// `CUDA_ERROR_NOT_SUPPORTED` where there are none.
    fn tensor_map(&self, context: Context, spec: &TensorMapSpec) -> Result<TensorMapData>;
    /// How many blocks of `block_threads` fit on a multiprocessor at once.
    fn function_occupancy(
        &self,
        context: Context,
        function: FunctionHandle,
        block_threads: u32,
        shared_bytes: u32,
    ) -> Result<u32>;
    /// Blocks of the largest cluster that this configuration, whose own cluster does not matter, can have on the device;
    /// larger than [`DeviceProperties::max_cluster`](crate::DeviceProperties::max_cluster) only after [`Self::function_allow_large_clusters`]. Fails with
    /// `CUDA_ERROR_NOT_SUPPORTED` where there are no clusters.
    fn function_max_cluster(
        &self,
        context: Context,
        function: FunctionHandle,
        config: LaunchConfig,
    ) -> Result<u32>;
    /// How many clusters of this configuration are on the device at once.
    fn function_resident_clusters(
        &self,
        context: Context,
        function: FunctionHandle,
        config: LaunchConfig,
    ) -> Result<u32>;
    /// Lets the kernel have clusters larger than every device of its kind can have.
    fn function_allow_large_clusters(&self, context: Context, function: FunctionHandle) -> Result<()>;
    /// Enqueues a launch.
    ///
    /// # Safety
    /// `args` has one pointer per machine parameter of the kernel, each to a value of the parameter's size
    /// (they are copied before the call returns); what those values point to is valid until the kernel is done;
    /// the configuration is within the limits of device and kernel.
    unsafe fn launch(
        &self,
        context: Context,
        function: FunctionHandle,
        config: &LaunchConfig,
        args: &[*const c_void],
        stream: StreamHandle,
    ) -> Result<()>;
}
