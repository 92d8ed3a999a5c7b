//! [`CodeDriver`]: the part of [`Driver`](crate::Driver) for images, their kernels, and launches.

use std::ffi::c_void;

use gpu_spec::{KernelSpec, TensorMapData, TensorMapSpec};

use crate::error::Result;
use crate::{
    Context, DevicePtr, FunctionAttributes, FunctionHandle, LaunchConfig, ModuleHandle, ModuleSource,
    StreamHandle,
};

/// Methods of a [`Driver`](crate::Driver) for images, their kernels, and launches.
///
/// # Safety
/// Implementations must uphold the safety contract of [`Driver`](crate::Driver).
pub unsafe trait CodeDriver {
    /// Returns the newest PTX version that the driver compiles, as `10 * major + minor`; `None` for a driver without
    /// PTX.
    fn max_ptx_version(&self) -> Option<u32>;
    /// Loads an image and makes it use the context's panic mailbox.
    fn module_load(&self, context: Context, source: ModuleSource<'_>) -> Result<ModuleHandle>;
    /// Unloads a module.
    ///
    /// # Safety
    /// Work that uses the module must not be enqueued afterwards, and none of its functions may be used again.
    unsafe fn module_unload(&self, context: Context, module: ModuleHandle);
    /// Returns a kernel of a module.
    fn module_function(
        &self,
        context: Context,
        module: ModuleHandle,
        spec: &'static KernelSpec,
    ) -> Result<FunctionHandle>;
    /// Returns the address and the size in bytes of a global variable of a module.
    fn module_global(&self, context: Context, module: ModuleHandle, name: &str)
    -> Result<(DevicePtr, usize)>;
    /// Links PTX, cubins and fatbins into one cubin for the context's device.
    fn link(&self, context: Context, parts: &[ModuleSource<'_>]) -> Result<Vec<u8>>;
    /// Returns the names of a module's kernels; `None` if the driver does not report them (before CUDA 12.4, and on
    /// emulated devices).
    fn module_kernels(&self, _context: Context, _module: ModuleHandle) -> Result<Option<Vec<String>>> {
        Ok(None)
    }
    /// Returns the size in bytes of each kernel parameter (PTX `.param`), in order; `None` if the driver does not
    /// report them (before CUDA 12.4, and on emulated devices).
    fn function_params(&self, _context: Context, _function: FunctionHandle) -> Result<Option<Vec<usize>>> {
        Ok(None)
    }
    /// Returns the resources that the kernel uses.
    fn function_attributes(&self, context: Context, function: FunctionHandle) -> Result<FunctionAttributes>;
    /// Raises the kernel's dynamic shared memory limit to `bytes` per block.
    fn function_allow_shared(&self, context: Context, function: FunctionHandle, bytes: u32) -> Result<()>;
    /// Encodes a tensor map for the context's device, for use by TMA copies. Returns `CUDA_ERROR_NOT_SUPPORTED` if the
    /// device does not support tensor maps.
    fn tensor_map(&self, context: Context, spec: &TensorMapSpec) -> Result<TensorMapData>;
    /// Returns the number of blocks of `block_threads` threads that can be resident on an SM concurrently.
    fn function_occupancy(
        &self,
        context: Context,
        function: FunctionHandle,
        block_threads: u32,
        shared_bytes: u32,
    ) -> Result<u32>;
    /// Returns the maximum cluster size in blocks for this configuration on the device. The cluster size in `config` is
    /// ignored. The result exceeds [`DeviceProperties::max_cluster`](crate::DeviceProperties::max_cluster) only after
    /// [`Self::function_allow_large_clusters`]. Returns `CUDA_ERROR_NOT_SUPPORTED` if the device does not support
    /// clusters.
    fn function_max_cluster(
        &self,
        context: Context,
        function: FunctionHandle,
        config: LaunchConfig,
    ) -> Result<u32>;
    /// Returns the number of clusters of this configuration that can be resident on the device concurrently.
    fn function_resident_clusters(
        &self,
        context: Context,
        function: FunctionHandle,
        config: LaunchConfig,
    ) -> Result<u32>;
    /// Permits non-portable cluster sizes for the kernel.
    fn function_allow_large_clusters(&self, context: Context, function: FunctionHandle) -> Result<()>;
    /// Enqueues a launch.
    ///
    /// # Safety
    /// - `args` must contain one pointer per kernel parameter (PTX `.param`), each to a value of the parameter's size.
    ///   The values are copied before the call returns.
    /// - Memory to which these values point must stay valid until the kernel has finished.
    /// - The configuration must be within the limits of the device and the kernel.
    unsafe fn launch(
        &self,
        context: Context,
        function: FunctionHandle,
        config: &LaunchConfig,
        args: &[*const c_void],
        stream: StreamHandle,
    ) -> Result<()>;
}
