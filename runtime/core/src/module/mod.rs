//! Loaded images, and the kernels in them.
//!
//! An image is loaded once a device, in the best form that the device takes ([`GpuImage`]); a kernel is looked
//! up once a module. Both stay until the device goes.
//!
//! Kernels that launch kernels or set a graph's conditions are in a part of the image that is linked with NVIDIA's
//! device runtime. That part is loaded when the first of them is looked up.

mod image;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use gpu_spec::{Kernel, KernelSpec};

pub use self::image::{
    Binary, BinaryTuple, CompilersTuple, GpuImage, ImageTuple, KernelResources, KernelTuple, LinkedTuple,
};
use crate::device::{Device, EventPool, Part};
use crate::driver::{Context, Driver, DriverError, FunctionHandle, ModuleHandle, ModuleSource};
use crate::error::{Error, Result, code};
use crate::launch::{Function, FunctionInner, TypedKernel};

/// An image on a device. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Module {
    device: Device,
    inner: Arc<ModuleInner>,
}

/// The images that a device has loaded, by the address of their static.
#[derive(Debug, Default)]
pub(crate) struct Modules(Mutex<HashMap<usize, Arc<ModuleInner>>>);

impl Part for Modules {
    const PLACE: usize = 0;

    fn close(&mut self, driver: &dyn Driver, context: Context, _: &EventPool) {
        let modules = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for module in std::mem::take(modules).into_values() {
            for handle in module.handles() {
                // SAFETY: functions hold the device, so none is left; the work of all streams was waited for.
                unsafe { driver.module_unload(context, handle) };
            }
        }
    }
}

impl Device {
    /// Loads an image, or finds it loaded: the best form of it that the device takes.
    ///
    /// # Errors
    /// [`Error::NoImage`] when the program was built without GPU code, [`Error::NoImageForDevice`],
    /// [`Error::DriverTooOld`], [`DriverError::ImageRejected`](crate::DriverError::ImageRejected). On the emulated device none of them: it needs no code.
    pub fn load(&self, image: &'static GpuImage) -> Result<Module> {
        self.check_process()?;
        let mut modules = self.part::<Modules>().0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = std::ptr::from_ref(image).addr();
        if let Some(loaded) = modules.get(&key) {
            return Ok(Module::new(self.clone(), Arc::clone(loaded)));
        }
        let loaded = Arc::new(ModuleInner::load(self, image)?);
        modules.insert(key, Arc::clone(&loaded));
        Ok(Module::new(self.clone(), loaded))
    }

    /// The symbol of a kernel of a loaded image, by the driver's handle.
    pub(crate) fn kernel_symbol(&self, function: FunctionHandle) -> Option<&'static str> {
        let modules = self.part::<Modules>().0.lock().unwrap_or_else(PoisonError::into_inner);
        modules.values().find_map(|module| module.kernel_symbol(function))
    }
}

/// What of a module the device keeps.
#[derive(Debug)]
pub(crate) struct ModuleInner {
    handle: ModuleHandle,
    /// The form that was loaded; `None` on the emulated device.
    binary: Option<Binary>,
    image: &'static GpuImage,
    /// The part that is linked with the device runtime, once it is loaded.
    linked: Mutex<Option<ModuleHandle>>,
    /// The code's [`Binary::fingerprint`], once it is needed; 0 for no code.
    fingerprint: OnceLock<u64>,
    /// Kernels looked up so far, by the address of their spec.
    functions: RwLock<HashMap<usize, Arc<FunctionInner>>>,
}

impl ModuleInner {
    pub(crate) fn load(device: &Device, image: &'static GpuImage) -> Result<Self> {
        let loaded = |handle, binary| Self {
            handle,
            binary,
            image,
            linked: Mutex::default(),
            fingerprint: OnceLock::new(),
            functions: RwLock::default(),
        };
        if device.is_emulated() {
            let load = |driver: &dyn Driver, context| driver.module_load(context, ModuleSource::HostEntries);
            return Ok(loaded(device.call(load)?, None));
        }
        let (handle, binary) = load_best(device, image, image.forms(), |binary| match binary.is_cubin {
            true => ModuleSource::Cubin(binary.code),
            false => ModuleSource::Ptx(binary.code),
        })?;
        Ok(loaded(handle, Some(binary)))
    }

    /// The part of the image that is linked with the device runtime; `kernel` is what it is loaded for.
    fn linked(&self, device: &Device, kernel: &str) -> Result<ModuleHandle> {
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = *linked {
            return Ok(handle);
        }
        let library = self.image.device_runtime();
        let source =
            |binary: Binary| ModuleSource::Linked { code: binary.code, is_cubin: binary.is_cubin, library };
        match load_best(device, self.image, self.image.linked_forms(), source) {
            Ok((handle, _)) => Ok(*linked.insert(handle)),
            Err(error @ Error::Driver(DriverError::ImageRejected { .. })) => {
                Err(Error::DeviceRuntimeRejected {
                    kernel: kernel.to_owned(),
                    driver_version: device.properties().driver_version.clone(),
                    source_error: Arc::new(error),
                })
            }
            Err(error) => Err(error),
        }
    }

    /// What was loaded.
    pub(crate) fn handles(&self) -> impl Iterator<Item = ModuleHandle> {
        let linked = *self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        [self.handle].into_iter().chain(linked)
    }

    /// The symbol of a kernel that was looked up, by the driver's handle.
    pub(crate) fn kernel_symbol(&self, function: FunctionHandle) -> Option<&'static str> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.values().find(|known| known.handle() == function).map(|known| known.spec().symbol)
    }
}

/// Loads the best of an image's `forms` that device and driver take.
fn load_best(
    device: &Device,
    image: &'static GpuImage,
    forms: &'static [BinaryTuple],
    source: impl Fn(Binary) -> ModuleSource<'static>,
) -> Result<(ModuleHandle, Binary)> {
    let properties = device.properties();
    let max_ptx = device.raw().0.max_ptx_version();
    let driver_version = &properties.driver_version;
    let candidates = image.candidates(forms, device.id(), properties.capability, max_ptx, driver_version)?;
    let mut first_error = None;
    for binary in candidates {
        match device.call(|driver, context| driver.module_load(context, source(binary))) {
            Ok(handle) => return Ok((handle, binary)),
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

    /// Tells the code that was loaded from other code, in later processes too; 0 on the emulated device. The first call
    /// reads all of the code, some gigabytes a second.
    pub fn image_hash(&self) -> u64 {
        *self.inner.fingerprint.get_or_init(|| self.inner.binary.map_or(0, |binary| binary.fingerprint()))
    }

    /// What compiled the code that was loaded: rustc and LLVM, then what the code says of itself ([`Binary::toolchain`], which
    /// is searched at each call): `rustc 1.96.0 (ac68faa20 2026-05-25), LLVM 22.1.8, ptxas 13.0.88 for sm_90a`. On the emulated
    /// device, where the program's own compiler did, that and this crate's version. Without rustc and LLVM where the image does
    /// not say which they were ([`GpuImage::device_compiler`], [`GpuImage::host_compiler`]).
    pub fn toolchain(&self) -> String {
        let image = self.inner.image;
        let (compiler, rest) = match self.inner.binary {
            Some(binary) => (image.device_compiler(), binary.toolchain()),
            None => {
                (image.host_compiler(), concat!("warpsmith-runtime ", env!("CARGO_PKG_VERSION")).to_owned())
            }
        };
        compiler.map_or_else(|| rest.clone(), |compiler| format!("{compiler}, {rest}"))
    }

    /// A kernel by its type, for launches that are type checked.
    ///
    /// # Errors
    /// [`Error::KernelNotInImage`], also for a kernel that needs a newer architecture than the device's;
    /// [`Error::DeviceRuntimeRejected`] for one that launches kernels or sets conditions, on an old driver.
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
        let module = match self.inner.binary {
            Some(_) if self.inner.image.is_linked(spec.symbol) => {
                self.inner.linked(&self.device, spec.symbol)?
            }
            _ => self.inner.handle,
        };
        let handle = self
            .device
            .call(|driver, context| driver.module_function(context, module, spec))
            .map_err(|error| match error.driver_code() {
                Some(code::NOT_FOUND) => not_in_image(),
                _ => error,
            })?;
        let attributes = self.device.call(|driver, context| driver.function_attributes(context, handle))?;
        Ok(FunctionInner::new(spec, handle, attributes, self.image_hash()))
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({:#x} on {})", self.inner.handle.0, self.device.id())
    }
}
