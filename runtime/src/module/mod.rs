//! Loaded images, and the kernels in them.
//!
//! An image is loaded once a device, in the best form that the device takes ([`GpuImage`]); a kernel is looked
//! up once a module. Both stay until the device goes.

mod image;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use gpu_spec::{Kernel, KernelSpec};

pub use self::image::{Binary, BinaryTuple, GpuImage, ImageTuple, KernelResources, KernelTuple};
use crate::device::Device;
use crate::driver::{ModuleHandle, ModuleSource};
use crate::error::{Error, Result, code};
use crate::launch::{Function, FunctionInner, TypedKernel};

/// An image on a device. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Module {
    device: Device,
    inner: Arc<ModuleInner>,
}

/// What of a module the device keeps.
#[derive(Debug)]
pub(crate) struct ModuleInner {
    handle: ModuleHandle,
    /// The form that was loaded; `None` on the emulated device.
    binary: Option<Binary>,
    /// Kernels looked up so far, by the address of their spec.
    functions: RwLock<HashMap<usize, Arc<FunctionInner>>>,
}

impl ModuleInner {
    pub(crate) fn load(device: &Device, image: &'static GpuImage) -> Result<Self> {
        let loaded = |handle, binary| Self { handle, binary, functions: RwLock::default() };
        let load = |source| device.call(|driver, context| driver.module_load(context, source));
        if device.is_emulated() {
            return Ok(loaded(load(ModuleSource::HostEntries)?, None));
        }
        let properties = device.properties();
        let max_ptx = device.driver().0.max_ptx_version();
        let candidates =
            image.candidates(device.id(), properties.capability, max_ptx, &properties.driver_version)?;
        let mut first_error = None;
        for binary in candidates {
            let source = if binary.is_cubin {
                ModuleSource::Cubin(binary.code)
            } else {
                ModuleSource::Ptx(binary.code)
            };
            match load(source) {
                Ok(handle) => return Ok(loaded(handle, Some(binary))),
                Err(error) if error.is_device_lost() => return Err(error),
                // A cubin of a newer toolkit than the driver: the next form may still do.
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or_else(|| Error::NoImage {
            image: image.name().to_owned(),
            reason: "the builder made none".to_owned(),
        }))
    }

    pub(crate) fn handle(&self) -> ModuleHandle {
        self.handle
    }
}

impl Module {
    pub(crate) fn new(device: Device, inner: Arc<ModuleInner>) -> Self {
        Self { device, inner }
    }

    /// The device it is loaded on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The form of the code that was loaded; `None` on the emulated device.
    pub fn binary(&self) -> Option<Binary> {
        self.inner.binary
    }

    /// A kernel by its type, for launches that are type checked.
    ///
    /// # Errors
    /// [`Error::KernelNotInImage`], also for a kernel that needs a newer architecture than the device's.
    pub fn kernel<K: Kernel>(&self) -> Result<TypedKernel<K>> {
        Ok(TypedKernel::new(self.function(K::spec())?))
    }

    /// A kernel by its data, for raw launches.
    ///
    /// # Errors
    /// As [`Self::kernel`].
    pub fn function(&self, spec: &'static KernelSpec) -> Result<Function> {
        let key = std::ptr::from_ref(spec).addr();
        let functions = self.inner.functions.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = functions.get(&key) {
            return Ok(Function::new(self.device.clone(), Arc::clone(found)));
        }
        drop(functions);
        let found = self.look_up(spec)?;
        let mut functions = self.inner.functions.write().unwrap_or_else(PoisonError::into_inner);
        let found = functions.entry(key).or_insert(Arc::new(found));
        Ok(Function::new(self.device.clone(), Arc::clone(found)))
    }

    fn look_up(&self, spec: &'static KernelSpec) -> Result<FunctionInner> {
        let not_in_image = || Error::KernelNotInImage {
            kernel: spec.symbol.to_owned(),
            device: self.device.id(),
            min_arch: spec.min_arch,
            capability: self.device.properties().capability,
        };
        let handle = self
            .device
            .call(|driver, context| driver.module_function(context, self.inner.handle, spec))
            .map_err(|error| match error.driver_code() {
                Some(code::NOT_FOUND) => not_in_image(),
                _ => error,
            })?;
        let attributes = self.device.call(|driver, context| driver.function_attributes(context, handle))?;
        Ok(FunctionInner::new(spec, handle, attributes))
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({:#x} on {})", self.inner.handle.0, self.device.id())
    }
}
