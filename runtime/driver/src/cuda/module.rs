//! Images, their kernels, and launches.

use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys;
use gpu_spec::mailbox::MAILBOX_SYMBOL;
use gpu_spec::{KernelSpec, TensorMapData, TensorMapSpec};

use super::call::{Feature, RelaxedCapture, check, integer, invalid};
use super::context::bind;
use super::{CudaDriver, launch, linker, tensor_map};
use crate::error::{DriverError, Result, code};
use crate::{
    CodeDriver, Context, DevicePtr, FunctionAttributes, FunctionHandle, LaunchConfig, ModuleHandle,
    ModuleSource, StreamHandle,
};

/// Size of the log buffer for the driver's PTX compiler, in bytes.
pub(super) const LOG_BYTES: usize = 8 << 10;

/// Returns the newest PTX version that a driver for this CUDA version (`1000 * major + 10 * minor`) can compile, by
/// NVIDIA's table.
fn max_ptx_version(driver: i32) -> u32 {
    let (major, minor) = ((driver / 1000).max(0) as u32, (driver % 1000 / 10).max(0) as u32);
    match (major, minor) {
        (12, 0..=5) => 80 + minor,
        (12, 6) => 85,
        (12, 7..) => 80 + minor - 1,
        (0..=10, _) => 65,
        // CUDA 11.x corresponds to PTX 7.x; from CUDA 13.0 (PTX 9.0) on, the minor numbers match again.
        _ => 10 * (major - 4) + minor,
    }
}

/// Loads an image and stores the mailbox's address in it.
fn load(source: ModuleSource<'_>, mailbox: Option<DevicePtr>) -> Result<ModuleHandle> {
    let _relaxed = RelaxedCapture::enter();
    let module = match source {
        ModuleSource::Ptx(text) => load_data(terminated(text)?.as_ptr().cast()),
        ModuleSource::Cubin(code) => {
            // Machine code must be aligned, but embedded bytes may not be.
            let mut aligned = vec![0u64; code.len().div_ceil(8)];
            // SAFETY: the words are large enough for the bytes and do not overlap them.
            unsafe { aligned.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(code.as_ptr(), code.len()) };
            load_data(aligned.as_ptr().cast())
        }
        ModuleSource::Linked { code, is_cubin: true, library } => {
            linker::with_linked_cubin(code, library, load_data)
        }
        ModuleSource::Linked { code, is_cubin: false, library } => {
            linker::with_linked(&terminated(code)?, library, load_data)
        }
        ModuleSource::HostEntries => {
            Err(invalid("cuModuleLoadDataEx", "host entries run only on the emulated device".to_owned()))
        }
    }?;
    match mailbox.map_or(Ok(()), |mailbox| set_mailbox(module, mailbox)) {
        Ok(()) => Ok(ModuleHandle(module as u64)),
        Err(error) => {
            // SAFETY: the module was just loaded and is not in use. Only the first error is reported.
            let _ = unsafe { sys::cuModuleUnload(module) };
            Err(error)
        }
    }
}

/// Returns NUL-terminated PTX, as the driver expects. The driver would ignore text after an earlier NUL.
pub(super) fn terminated(text: &[u8]) -> Result<CString> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    CString::new(text).map_err(|_| invalid("cuModuleLoadDataEx", "the PTX contains a zero byte".to_owned()))
}

fn load_data(image: *const c_void) -> Result<sys::CUmodule> {
    let mut log = vec![0u8; LOG_BYTES];
    let mut options =
        [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The driver expects the size itself in place of a pointer, and overwrites it with the number of bytes used.
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG_BYTES)];
    let mut module = std::ptr::null_mut();
    // SAFETY: `image` is PTX with a terminating zero or a complete cubin. The option count matches, and each option has
    // a value of its type; the log has the given size.
    let result = unsafe {
        sys::cuModuleLoadDataEx(
            &mut module,
            image,
            options.len() as u32,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    check("cuModuleLoadDataEx", result).map_err(|error| {
        let used = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
        let log = String::from_utf8_lossy(&log[..used]).trim().to_owned();
        DriverError::ImageRejected { source_error: Arc::new(error), log }
    })?;
    Ok(module)
}

/// Returns the address and size of a global variable.
fn global(module: sys::CUmodule, name: &CStr) -> Result<(DevicePtr, usize)> {
    let (mut address, mut bytes) = (0, 0);
    // SAFETY: the module is loaded; the pointers are to local variables and a C string.
    let result = unsafe { sys::cuModuleGetGlobal_v2(&mut address, &mut bytes, module, name.as_ptr()) };
    check("cuModuleGetGlobal", result)?;
    Ok((DevicePtr(address), bytes))
}

/// Stores the mailbox's address in the image's global variable, if it has one.
fn set_mailbox(module: sys::CUmodule, mailbox: DevicePtr) -> Result<()> {
    let (DevicePtr(address), bytes) = match global(module, &c_string(MAILBOX_SYMBOL)?) {
        Err(error) if error.code() == Some(code::NOT_FOUND) => return Ok(()),
        found => found?,
    };
    let value = mailbox.0;
    if bytes != size_of_val(&value) {
        return Err(invalid("cuModuleGetGlobal", format!("`{MAILBOX_SYMBOL}` has {bytes} bytes, not 8")));
    }
    let mut stream = std::ptr::null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // Not the legacy default stream, which would wait for other code's streams and invalidate their captures. SAFETY:
    // the global has 8 bytes, as checked, and no kernel of the module runs yet. The copy has run, or failed, before
    // `value` is dropped. The stream is alive until destroyed here and is not used anywhere else.
    unsafe {
        check("cuStreamCreateWithPriority", sys::cuStreamCreateWithPriority(&mut stream, flags, 0))?;
        let source = std::ptr::from_ref(&value).cast();
        let copied = check("cuMemcpyHtoDAsync", sys::cuMemcpyHtoDAsync_v2(address, source, bytes, stream));
        let waited = check("cuStreamSynchronize", sys::cuStreamSynchronize(stream));
        sys::cuStreamDestroy_v2(stream);
        copied.and(waited)
    }
}

fn c_string(symbol: &str) -> Result<CString> {
    CString::new(symbol).map_err(|_| invalid("looking up a symbol", format!("`{symbol:?}` has a zero byte")))
}

/// Returns the symbol of a kernel, if the driver reports it.
pub(super) fn name(function: FunctionHandle) -> Result<String> {
    Feature::ModuleKernels.need("cuFuncGetName")?;
    let mut name = std::ptr::null();
    // SAFETY: the function belongs to a loaded module, by the trait's contract; the pointer is to a local variable.
    check("cuFuncGetName", unsafe { sys::cuFuncGetName(&mut name, function.0 as sys::CUfunction) })?;
    // SAFETY: the driver returned a C string, which lives as long as the module.
    Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

pub(super) fn attribute(function: FunctionHandle, attribute: sys::CUfunction_attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the function belongs to a loaded module, by the trait's contract; the pointer is to a local variable.
    let result = unsafe { sys::cuFuncGetAttribute(&mut value, attribute, function.0 as sys::CUfunction) };
    check("cuFuncGetAttribute", result)?;
    Ok(value.max(0) as u32)
}

// SAFETY: CUDA's driver upholds this contract; each method forwards its arguments to the driver and returns its result.
unsafe impl CodeDriver for CudaDriver {
    fn max_ptx_version(&self) -> Option<u32> {
        Some(max_ptx_version(self.version))
    }

    fn module_load(&self, context: Context, source: ModuleSource<'_>) -> Result<ModuleHandle> {
        bind(context)?;
        load(source, self.contexts.mailbox(context))
    }

    unsafe fn module_unload(&self, context: Context, module: ModuleHandle) {
        if bind(context).is_ok() {
            let _relaxed = RelaxedCapture::enter();
            // SAFETY: guaranteed by the caller. An error cannot be reported here.
            let _ = unsafe { sys::cuModuleUnload(module.0 as sys::CUmodule) };
        }
    }

    fn module_function(
        &self,
        context: Context,
        module: ModuleHandle,
        spec: &'static KernelSpec,
    ) -> Result<FunctionHandle> {
        bind(context)?;
        let name = c_string(spec.symbol)?;
        let _relaxed = RelaxedCapture::enter();
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded, by the trait's contract; the pointers are to a local variable and a C string.
        let result =
            unsafe { sys::cuModuleGetFunction(&mut function, module.0 as sys::CUmodule, name.as_ptr()) };
        check("cuModuleGetFunction", result)?;
        Ok(FunctionHandle(function as u64))
    }

    fn module_kernels(&self, context: Context, module: ModuleHandle) -> Result<Option<Vec<String>>> {
        bind(context)?;
        if !Feature::ModuleKernels.is_there() {
            return Ok(None);
        }
        let module = module.0 as sys::CUmodule;
        let _relaxed = RelaxedCapture::enter();
        let mut count = 0;
        // SAFETY: the module is loaded, by the trait's contract; the pointer is to a local variable.
        unsafe { check("cuModuleGetFunctionCount", sys::cuModuleGetFunctionCount(&mut count, module)) }?;
        let mut functions = vec![std::ptr::null_mut(); count as usize];
        // SAFETY: as above; the list is large enough for the requested number.
        let result = unsafe { sys::cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module) };
        check("cuModuleEnumerateFunctions", result)?;
        let name = |function: sys::CUfunction| name(FunctionHandle(function as u64));
        functions.into_iter().map(name).collect::<Result<_>>().map(Some)
    }

    fn module_global(
        &self,
        context: Context,
        module: ModuleHandle,
        name: &str,
    ) -> Result<(DevicePtr, usize)> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        global(module.0 as sys::CUmodule, &c_string(name)?)
    }

    fn link(&self, context: Context, parts: &[ModuleSource<'_>]) -> Result<Vec<u8>> {
        bind(context)?;
        let _relaxed = RelaxedCapture::enter();
        linker::link(parts)
    }

    fn function_params(&self, context: Context, function: FunctionHandle) -> Result<Option<Vec<usize>>> {
        bind(context)?;
        if !Feature::KernelParams.is_there() {
            return Ok(None);
        }
        let _relaxed = RelaxedCapture::enter();
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            let function = function.0 as sys::CUfunction;
            // SAFETY: the function belongs to a loaded module, by the trait's contract; the pointers are to local
            // variables.
            let result = unsafe { sys::cuFuncGetParamInfo(function, sizes.len(), &mut offset, &mut size) };
            match result {
                // There are no more parameters.
                sys::CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(Some(sizes)),
                result => check("cuFuncGetParamInfo", result)?,
            }
            sizes.push(size);
        }
    }

    fn function_attributes(&self, context: Context, function: FunctionHandle) -> Result<FunctionAttributes> {
        bind(context)?;
        use sys::CUfunction_attribute as Attribute;
        let _relaxed = RelaxedCapture::enter();
        Ok(FunctionAttributes {
            max_threads_per_block: attribute(function, Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            registers: attribute(function, Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            static_shared: attribute(function, Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            local_memory: attribute(function, Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            binary_arch: attribute(function, Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
            ptx_arch: attribute(function, Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
        })
    }

    fn tensor_map(&self, context: Context, spec: &TensorMapSpec) -> Result<TensorMapData> {
        bind(context)?;
        tensor_map::encode(spec)
    }

    fn function_allow_shared(&self, context: Context, function: FunctionHandle, bytes: u32) -> Result<()> {
        bind(context)?;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the function belongs to a loaded module, by the trait's contract.
        let result = unsafe {
            sys::cuFuncSetAttribute(
                function.0 as sys::CUfunction,
                attribute,
                integer("cuFuncSetAttribute", bytes)?,
            )
        };
        check("cuFuncSetAttribute", result)
    }

    fn function_occupancy(
        &self,
        context: Context,
        function: FunctionHandle,
        block_threads: u32,
        shared_bytes: u32,
    ) -> Result<u32> {
        bind(context)?;
        let mut blocks = 0;
        // SAFETY: the function belongs to a loaded module, by the trait's contract; the pointer is to a local variable.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                function.0 as sys::CUfunction,
                integer("cuOccupancyMaxActiveBlocksPerMultiprocessor", block_threads)?,
                shared_bytes as usize,
            )
        };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        Ok(blocks.max(0) as u32)
    }

    fn function_max_cluster(
        &self,
        context: Context,
        function: FunctionHandle,
        config: LaunchConfig,
    ) -> Result<u32> {
        bind(context)?;
        launch::max_cluster(self.contexts.ordinal(context)?, function, &config)
    }

    fn function_resident_clusters(
        &self,
        context: Context,
        function: FunctionHandle,
        config: LaunchConfig,
    ) -> Result<u32> {
        bind(context)?;
        launch::resident_clusters(self.contexts.ordinal(context)?, function, &config)
    }

    fn function_allow_large_clusters(&self, context: Context, function: FunctionHandle) -> Result<()> {
        bind(context)?;
        launch::allow_large_clusters(self.contexts.ordinal(context)?, function)
    }

    unsafe fn launch(
        &self,
        context: Context,
        function: FunctionHandle,
        config: &LaunchConfig,
        args: &[*const c_void],
        stream: StreamHandle,
    ) -> Result<()> {
        bind(context)?;
        if !config.is_plain() {
            // SAFETY: guaranteed by the caller.
            return unsafe { launch::launch(function, config, args, stream) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { launch::launch_plain(function, config, args, stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::max_ptx_version;

    #[test]
    fn ptx_versions_follow_the_table() {
        let table = [
            (10020, 65),
            (11000, 70),
            (11040, 74),
            (11080, 78),
            (12000, 80),
            (12050, 85),
            (12060, 85),
            (12070, 86),
            (12080, 87),
            (12090, 88),
            (13000, 90),
            (13010, 91),
        ];
        for (driver, ptx) in table {
            assert_eq!(max_ptx_version(driver), ptx, "driver {driver}");
        }
    }
}
