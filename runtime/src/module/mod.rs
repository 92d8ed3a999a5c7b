//! Loaded images and their kernels.
//!
//! A module of an image is loaded once per device, when one of its kernels is first looked up. The device loads the
//! best form that it supports ([`GpuImage`]). Parts and kernels stay loaded until the device is closed.
//!
//! A lookup succeeds only if the image's record of the symbol has the same package, version and parameters as the
//! kernel type. Parts with kernels that set graph conditions are linked with NVIDIA's device runtime
//! (`libcudadevrt`) when loaded.

mod code;
mod contract;
mod image;
mod stack;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gpu_spec::image::{CodeForm, CodeKind, ImageModule};
use gpu_spec::{Kernel, KernelInfo, KernelSpec, ParamSpec};

pub use self::code::Code;
pub use self::image::{GpuImage, toolchain, unpack};
use crate::device::{Device, EventPool, Part};
use crate::driver::{Context, Driver, DriverError, FunctionHandle, ModuleHandle, ModuleSource};
use crate::error::{Error, Result, code as status};
use crate::launch::{Function, FunctionInner, TypedKernel};
pub use gpu_spec::image as spec;

/// An image loaded on a device. Cheap to clone; usable from any thread.
///
/// See the example of [`TypedKernel`].
#[derive(Clone)]
pub struct Module {
    device: Device,
    inner: Arc<ModuleInner>,
}

/// Images that a device has loaded, keyed by the address of the image's static.
#[derive(Debug, Default)]
pub(crate) struct Modules(Mutex<HashMap<usize, Arc<ModuleInner>>>);

impl Part for Modules {
    const PLACE: usize = 0;

    fn close(&mut self, driver: &dyn Driver, context: Context, _: &EventPool) {
        let modules = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for module in std::mem::take(modules).into_values() {
            for handle in module.handles() {
                // SAFETY: functions keep the device open, so none is left; the work of all streams has finished.
                unsafe { driver.module_unload(context, handle) };
            }
        }
    }
}

impl Device {
    /// Opens an image. Each module of its code is loaded when one of its kernels is first looked up.
    ///
    /// See the example of [`TypedKernel`].
    ///
    /// # Errors
    /// Returns [`Error::NoImage`] if the program was built without GPU code, [`Error::NoImageForDevice`] or
    /// [`Error::DriverTooOld`]. None of these occur on the emulated device, which needs no GPU code.
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

    /// Returns the symbol of the kernel with this driver handle, if it belongs to a loaded image.
    pub(crate) fn kernel_symbol(&self, function: FunctionHandle) -> Option<&'static str> {
        let modules = self.part::<Modules>().0.lock().unwrap_or_else(PoisonError::into_inner);
        modules.values().find_map(|module| module.kernel_symbol(function))
    }
}

/// Shared state of a module, stored in the device.
#[derive(Debug)]
pub(crate) struct ModuleInner {
    image: &'static GpuImage,
    /// Module of the host entry points on an emulated device; `None` on a GPU.
    host_entries: Option<ModuleHandle>,
    /// Modules of the image; `None` until a module is loaded. Empty on an emulated device.
    modules: Box<[Mutex<Option<ModuleHandle>>]>,
    /// Best form that the device can load, from the first module that has one; `None` on an emulated device.
    form: Option<&'static CodeForm>,
    /// Hash of all code that the device can load; 0 if there is no code.
    hash: u64,
    /// Kernels looked up so far, keyed by the address of their spec.
    functions: RwLock<HashMap<usize, Arc<FunctionInner>>>,
}

impl ModuleInner {
    /// Checks that the image has code for the device, without loading it.
    pub(crate) fn load(device: &Device, image: &'static GpuImage) -> Result<Self> {
        let mut loaded = Self {
            image,
            host_entries: None,
            modules: Box::default(),
            form: None,
            hash: 0,
            functions: RwLock::default(),
        };
        if device.is_emulated() {
            let load = |driver: &dyn Driver, context| driver.module_load(context, ModuleSource::HostEntries);
            loaded.host_entries = Some(device.call(load)?);
            return Ok(loaded);
        }
        if let Some(reason) = image.missing() {
            return Err(Error::NoImage { image: image.name().to_owned(), reason: reason.to_owned() });
        }
        let mut first_error = None;
        for module in image.modules() {
            match candidates(device, image, module) {
                Ok(forms) => {
                    let form = forms[0];
                    loaded.form = loaded.form.or(Some(form));
                    loaded.hash =
                        (loaded.hash ^ form.hash).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        if let (None, Some(error)) = (loaded.form, first_error) {
            return Err(error);
        }
        loaded.modules = image.modules().iter().map(|_| Mutex::default()).collect();
        Ok(loaded)
    }

    /// Returns the module with this index, loading it if necessary; `None` if it has no form for this device. `kernel`
    /// is the requested kernel.
    fn module(&self, device: &Device, index: usize, kernel: &str) -> Result<Option<ModuleHandle>> {
        let (Some(module), Some(slot)) = (self.image.modules().get(index), self.modules.get(index)) else {
            return Ok(None);
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = *slot {
            return Ok(Some(handle));
        }
        let forms = match candidates(device, self.image, module) {
            Ok(forms) => forms,
            // Other modules of the image are loadable, so the error concerns only this kernel.
            Err(Error::NoImageForDevice { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        match load_best(device, self.image, module, &forms) {
            Ok(handle) => Ok(Some(*slot.insert(handle))),
            Err(error @ Error::Driver(DriverError::ImageRejected { .. })) if module.is_linked => {
                Err(Error::DeviceRuntimeRejected {
                    kernel: kernel.to_owned(),
                    driver_version: device.properties().driver_version.clone(),
                    source_error: Arc::new(error),
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Iterates over the loaded modules.
    pub(crate) fn handles(&self) -> impl Iterator<Item = ModuleHandle> {
        let loaded =
            |slot: &Mutex<Option<ModuleHandle>>| *slot.lock().unwrap_or_else(PoisonError::into_inner);
        self.host_entries.into_iter().chain(self.modules.iter().filter_map(loaded))
    }

    /// Returns the symbol of the kernel with this driver handle, if it was looked up.
    pub(crate) fn kernel_symbol(&self, function: FunctionHandle) -> Option<&'static str> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.values().find(|known| known.handle() == function).map(|known| known.spec().symbol)
    }
}

/// Returns the size of each kernel parameter (`.param`), in bytes.
fn sizes(spec: &KernelSpec) -> Vec<usize> {
    spec.params.iter().flat_map(ParamSpec::lower).map(|param| param.size).collect()
}

/// Returns the forms of a module that the device and the driver can load, best first. The list is never empty.
fn candidates(device: &Device, image: &GpuImage, module: &ImageModule) -> Result<Vec<&'static CodeForm>> {
    let properties = device.properties();
    let max_ptx = device.raw().0.max_ptx_version();
    image.candidates(module, device.id(), properties.capability, max_ptx, &properties.driver_version)
}

/// Loads the best of a module's `forms` that the driver accepts.
fn load_best(
    device: &Device,
    image: &GpuImage,
    module: &ImageModule,
    forms: &[&'static CodeForm],
) -> Result<ModuleHandle> {
    let library = match &image.spec().device_runtime {
        Some(library) if module.is_linked => unpack(library)?,
        _ => Default::default(),
    };
    let mut first_error = None;
    for form in forms {
        let (code, is_cubin) = (unpack(&form.code)?, matches!(form.kind, CodeKind::Cubin(_)));
        let source = match (module.is_linked, is_cubin) {
            (true, is_cubin) => ModuleSource::Linked { code: &code, is_cubin, library: &library },
            (false, true) => ModuleSource::Cubin(&code),
            (false, false) => ModuleSource::Ptx(&code),
        };
        match device.call(|driver, context| driver.module_load(context, source)) {
            Ok(handle) => return Ok(handle),
            Err(error) if error.is_device_lost() => return Err(error),
            // The cubin may require a newer driver; the next form may still load.
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| Error::NoImage {
        image: image.name().to_owned(),
        reason: "the builder produced no GPU code".to_owned(),
    }))
}

impl Module {
    pub(crate) fn new(device: Device, inner: Arc<ModuleInner>) -> Self {
        Self { device, inner }
    }

    /// Returns the device on which the image is loaded.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns a hash of the code that this device loads, the same in every process; 0 on the emulated device.
    pub fn image_hash(&self) -> u64 {
        self.inner.hash
    }

    /// Returns the compilers of the code that this device loads: rustc and LLVM, then ptxas or the PTX version, for
    /// example `rustc 1.96.0 (ac68faa20 2026-05-25), LLVM 22.1.8, ptxas 13.0.88 for sm_90a`. On the emulated device,
    /// the result is the program's own compiler and this crate's version. rustc and LLVM are omitted if the image does
    /// not record them ([`GpuImage::device_compiler`], [`GpuImage::host_compiler`]).
    pub fn toolchain(&self) -> String {
        let image = self.inner.image;
        let (compiler, rest) = match self.inner.form {
            Some(form) => (image.device_compiler(), toolchain(form)),
            None => {
                (image.host_compiler(), concat!("warpsmith-runtime ", env!("CARGO_PKG_VERSION")).to_owned())
            }
        };
        compiler.map_or_else(|| rest.clone(), |compiler| format!("{compiler}, {rest}"))
    }

    /// Looks up a kernel by its type, for type-checked launches. Raises the device's [stack limit](Device::stack_limit)
    /// if the kernel's stack size is declared or unknown and exceeds it.
    ///
    /// See the example of [`TypedKernel`].
    ///
    /// # Errors
    /// Returns [`Error::KernelNotOfImage`] if the image contains no kernel or a different kernel with that symbol.
    /// Returns [`Error::KernelNotInImage`] if the kernel requires a newer architecture. Returns
    /// [`DriverError::ImageRejected`] if the driver rejects the code. Returns [`Error::DeviceRuntimeRejected`] if the
    /// kernel sets graph conditions and the driver is too old. Returns [`Error::Stack`] if the
    /// device does not support the stack limit that the kernel needs, or if the limit would have to be raised during a
    /// capture.
    pub fn kernel<K: Kernel>(&self) -> Result<TypedKernel<K>> {
        Ok(TypedKernel::new(self.function(K::spec())?))
    }

    /// Looks up a kernel by its spec, for raw launches.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::kernel`].
    pub fn function(&self, spec: &'static KernelSpec) -> Result<Function> {
        let key = std::ptr::from_ref(spec).addr();
        let functions = self.inner.functions.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = functions.get(&key) {
            return Ok(Function::new(self.device.clone(), Arc::clone(found), None));
        }
        drop(functions);
        let found = self.look_up(spec)?;
        let mut functions = self.inner.functions.write().unwrap_or_else(PoisonError::into_inner);
        let found = functions.entry(key).or_insert(Arc::new(found));
        Ok(Function::new(self.device.clone(), Arc::clone(found), None))
    }

    fn look_up(&self, spec: &'static KernelSpec) -> Result<FunctionInner> {
        let not_in_image = || Error::KernelNotInImage {
            kernel: spec.symbol.to_owned(),
            device: self.device.id(),
            min_arch: spec.min_arch,
            capability: self.device.properties().capability,
        };
        let record = contract::check(self.inner.image, spec)?;
        // Kernels may share a name; the symbol in the image identifies this one.
        let spec = match record.filter(|record| record.symbol != spec.symbol) {
            None => spec,
            Some(record) => &*Box::leak(Box::new(KernelSpec {
                info: KernelInfo { symbol: record.symbol, ..spec.info },
                entry: spec.entry,
                bytes: spec.bytes,
                lengths: spec.lengths,
            })),
        };
        let module = match (self.inner.host_entries, record) {
            (Some(handle), _) => handle,
            (None, Some(record)) => {
                self.inner.module(&self.device, record.module_index, spec.symbol)?.ok_or_else(not_in_image)?
            }
            (None, None) => return Err(not_in_image()),
        };
        let handle = self
            .device
            .call(|driver, context| driver.module_function(context, module, spec))
            .map_err(|error| match error.driver_code() {
                Some(status::NOT_FOUND) => not_in_image(),
                _ => error,
            })?;
        let attributes = self.device.call(|driver, context| driver.function_attributes(context, handle))?;
        let stack = stack::needed(self.inner.image, spec, record);
        if stack > 0 {
            self.device.need_stack(spec.symbol, stack as usize)?;
        }
        let params = Some(sizes(spec));
        Ok(FunctionInner::new(
            spec,
            handle,
            attributes,
            self.device.properties(),
            self.image_hash(),
            params,
            stack,
        ))
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({} on {})", self.inner.image.name(), self.device.id())
    }
}
