//! [`Code`]: PTX, cubins and fatbins loaded at run time, for kernels written in other languages.
//!
//! [`Device::load_code`] loads code immediately. The code is unloaded once its handles, its kernels' handles, and all
//! graphs that launch these kernels have been dropped, and all work that uses it has finished.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use gpu_spec::KernelSpec;

use crate::device::Device;
use crate::driver::{DevicePtr, ModuleSource};
use crate::error::{Error, LoadError, Result, code};
use crate::launch::{Function, FunctionInner, Loaded};

/// Maximum size of a loaded file, in bytes.
const MAX_FILE: u64 = 1 << 30;

/// Code that was loaded on a device at run time. Cheap to clone; usable from any thread.
///
/// ```no_run
/// use warpsmith_runtime::launch::RawArguments;
/// use warpsmith_runtime::{Device, DeviceBuffer, Launch};
///
/// let device = Device::cuda(0)?;
/// let stream = device.default_stream();
/// // SAFETY: nvcc generated the code.
/// let code = unsafe { device.load_code_file("saxpy.ptx")? };
/// // extern "C" __global__ void saxpy(unsigned n, float a, const float* x, float* y)
/// let saxpy = code.kernel("saxpy")?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32; 1000])?;
/// let mut y = DeviceBuffer::<f32>::zeros(&stream, 1000)?;
/// let args = RawArguments::new().value(1000u32).value(0.5f32).read(x.as_slice()).write(y.as_mut_slice());
/// // SAFETY: the arguments match the parameters, and the kernel accesses only the first 1000 elements.
/// unsafe { saxpy.launch_unchecked(&stream, Launch::linear(1000, 256), &args)? };
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Code {
    device: Device,
    /// Name of the code in error messages.
    name: Arc<str>,
    hash: u64,
    loaded: Arc<Loaded>,
    /// Kernels that have been looked up so far.
    functions: Arc<Mutex<HashMap<String, Arc<FunctionInner>>>>,
}

impl Device {
    /// Loads PTX, a cubin or a fatbin; the format is detected from the bytes.
    ///
    /// ```no_run
    /// let device = warpsmith_runtime::Device::cuda(0)?;
    /// let ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }";
    /// // SAFETY: the kernel does nothing.
    /// let code = unsafe { device.load_code(ptx) }?;
    /// assert_eq!(code.kernel("nothing")?.spec().symbol, "nothing");
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// The example needs a GPU.
    ///
    /// # Errors
    /// Returns [`LoadError::NotCode`], [`LoadError::Emulated`], or [`Error::OutOfMemory`]. Returns
    /// [`LoadError::Rejected`], including the log of the driver's compiler, if the driver rejects the code.
    ///
    /// # Safety
    /// The code must be the unmodified output of a compiler, because the driver trusts machine code.
    pub unsafe fn load_code(&self, code: impl AsRef<[u8]>) -> Result<Code> {
        Code::load(self, "the code", code.as_ref())
    }

    /// Loads a PTX, cubin or fatbin file of at most 1 GiB.
    ///
    /// See the example of [`Code`].
    ///
    /// # Errors
    /// Returns [`LoadError::File`] or the same errors as [`Self::load_code`].
    ///
    /// # Safety
    /// The requirements are the same as for [`Self::load_code`].
    pub unsafe fn load_code_file(&self, path: impl AsRef<Path>) -> Result<Code> {
        let path = path.as_ref();
        let failed = |reason: String| LoadError::file(path.to_owned(), reason);
        let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
        let mut bytes = Vec::new();
        let read = file.take(MAX_FILE + 1).read_to_end(&mut bytes);
        read.map_err(|error| failed(error.to_string()))?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(failed("it has more than 1 GiB".to_owned()).into());
        }
        Code::load(self, &path.display().to_string().escape_debug().to_string(), &bytes)
    }
}

impl Device {
    /// Links PTX, cubins and fatbins into one cubin for this device, which [`Self::load_code`] accepts.
    ///
    /// ```no_run
    /// let device = warpsmith_runtime::Device::cuda(0)?;
    /// let parts = [std::fs::read("kernels.ptx")?, std::fs::read("functions.cubin")?];
    /// // SAFETY: nvcc generated the code.
    /// let code = unsafe { device.load_code(device.link_code(&parts)?)? };
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`Self::load_code`]. Linker errors, such as undefined symbols, are reported as
    /// [`LoadError::Rejected`].
    ///
    /// # Safety
    /// Each part must meet the requirements of [`Self::load_code`].
    pub unsafe fn link_code(&self, parts: &[impl AsRef<[u8]>]) -> Result<Vec<u8>> {
        self.check()?;
        let name = |index: usize| format!("part {} of the code", index + 1);
        let parts = parts.iter().enumerate().map(|(index, part)| source(&name(index), part.as_ref()));
        let parts: Vec<_> = parts.collect::<Result<_>>()?;
        if parts.is_empty() {
            let (code, reason) = ("the code".to_owned(), "there is nothing to link".to_owned());
            return Err(LoadError::NotCode { code, reason }.into());
        }
        let linked = self.call(|driver, context| driver.link(context, &parts));
        linked.map_err(|error| refused(self, "the linked code", error))
    }
}

impl Code {
    fn load(device: &Device, name: &str, bytes: &[u8]) -> Result<Self> {
        device.check()?;
        let source = source(name, bytes)?;
        let load = || device.call(|driver, context| driver.module_load(context, source));
        let loaded = Loaded::new(device, load).map_err(|error| refused(device, name, error))?;
        let (device, name, loaded) = (device.clone(), Arc::from(name), Arc::new(loaded));
        Ok(Self { device, name, hash: hash(bytes), loaded, functions: Arc::default() })
    }

    /// Returns the device on which the code is loaded.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Looks up a kernel by its name in the code, for launches with unchecked arguments. C++ compilers mangle names
    /// unless the kernel is `extern "C"`. The name is leaked.
    ///
    /// # Errors
    /// Returns [`LoadError::NoKernel`], including the names of all kernels if the driver reports them, or any [driver
    /// error](crate::Error::Driver).
    pub fn kernel(&self, name: &str) -> Result<Function> {
        self.device.check_process()?;
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = match functions.get(name) {
            Some(known) => Arc::clone(known),
            None => {
                let found = Arc::new(self.look_up(name)?);
                functions.insert(name.to_owned(), Arc::clone(&found));
                found
            }
        };
        Ok(Function::new(self.device.clone(), inner, Some(Arc::clone(&self.loaded))))
    }

    /// Looks up a global variable by its name in the code. Returns its address and its size in bytes. The address is
    /// valid as long as a handle to the code exists. The runtime does not synchronize accesses to the variable, because
    /// kernels do not declare them.
    ///
    /// # Errors
    /// Returns [`LoadError::NoGlobal`] or any [driver error](crate::Error::Driver).
    pub fn global(&self, name: &str) -> Result<(DevicePtr, usize)> {
        self.device.check_process()?;
        let no_global = || LoadError::NoGlobal { code: self.name.to_string(), global: name.to_owned() };
        if name.contains('\0') {
            return Err(no_global().into());
        }
        let module = self.loaded.module();
        let found = self.device.call(|driver, context| driver.module_global(context, module, name));
        found.map_err(|error| match error.driver_code() {
            Some(code::NOT_FOUND) => no_global().into(),
            _ => error,
        })
    }

    fn look_up(&self, name: &str) -> Result<FunctionInner> {
        let (device, module) = (&self.device, self.loaded.module());
        if name.contains('\0') {
            return Err(self.no_kernel(name));
        }
        let spec = spec_of(name);
        let handle = device.call(|driver, context| driver.module_function(context, module, spec)).map_err(
            |error| match error.driver_code() {
                Some(code::NOT_FOUND) => self.no_kernel(name),
                _ => error,
            },
        )?;
        let attributes = device.call(|driver, context| driver.function_attributes(context, handle))?;
        let params = device.call(|driver, context| driver.function_params(context, handle))?;
        Ok(FunctionInner::new(spec, handle, attributes, device.properties(), self.hash, params, 0))
    }

    fn no_kernel(&self, name: &str) -> Error {
        let module = self.loaded.module();
        let kernels = self.device.call(|driver, context| driver.module_kernels(context, module));
        // The list of kernels only improves the error message, so errors are ignored.
        let mut kernels = kernels.ok().flatten().unwrap_or_default();
        kernels.sort();
        LoadError::NoKernel { code: self.name.to_string(), kernel: name.to_owned(), kernels }.into()
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({} on {})", self.name, self.device.id())
    }
}

/// Returns the spec for all kernels with this name. It is leaked, because launch records may refer to it indefinitely.
fn spec_of(name: &str) -> &'static KernelSpec {
    static KNOWN: Mutex<BTreeMap<&'static str, &'static KernelSpec>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(spec) = known.get(name) {
        return spec;
    }
    let name: &'static str = Box::leak(name.into());
    let mut spec = KernelSpec::new("", "", name, &[], |_| {});
    spec.info.is_safe = false;
    // The caller of a dependent launch guarantees that the kernel waits for the preceding kernel.
    spec.info.dependent = true;
    let spec = Box::leak(Box::new(spec));
    known.insert(name, spec);
    spec
}

/// Returns the code as a module source for the driver.
fn source<'b>(name: &str, bytes: &'b [u8]) -> Result<ModuleSource<'b>> {
    Ok(form(bytes).map_err(|reason| LoadError::NotCode { code: name.to_owned(), reason })?)
}

/// Converts a driver error for the code to the error that the call returns.
fn refused(device: &Device, name: &str, error: Error) -> Error {
    match error.driver_code() {
        Some(code::NOT_SUPPORTED) if device.is_emulated() => {
            LoadError::Emulated { code: name.to_owned(), device: device.id() }.into()
        }
        Some(_) if !error.is_device_lost() => LoadError::Rejected {
            code: name.to_owned(),
            device: device.id(),
            capability: device.capability(),
            source_error: Arc::new(error),
        }
        .into(),
        _ => error,
    }
}

/// Detects the format of the code. The error is the reason why the bytes are not code.
fn form(bytes: &[u8]) -> std::result::Result<ModuleSource<'_>, String> {
    const ELF: &[u8] = b"\x7fELF";
    const FATBIN: &[u8] = &0xba55_ed50_u32.to_le_bytes();
    /// ELF machine type of CUDA code (`EM_CUDA`).
    const CUDA_MACHINE: u16 = 190;
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    let whole = |len: Option<u64>| match len {
        Some(len) if len <= bytes.len() as u64 => Ok(ModuleSource::Cubin(bytes)),
        _ => Err(format!("it is truncated after {} bytes", bytes.len())),
    };
    if bytes.starts_with(ELF) {
        return match word(bytes, 18, 2) {
            Some(machine) if machine != u64::from(CUDA_MACHINE) => Err(format!(
                "it is an ELF file for another machine (number {machine}), not for NVIDIA's GPUs"
            )),
            _ => whole(elf_len(bytes)),
        };
    }
    if bytes.starts_with(FATBIN) {
        // The header contains its own version and length, followed by the length of the data after the header.
        let len = word(bytes, 6, 2).zip(word(bytes, 8, 8));
        return whole(len.and_then(|(header, rest)| header.checked_add(rest)));
    }
    let is_text = std::str::from_utf8(bytes).is_ok_and(|text| {
        let text = text.trim_end_matches('\0');
        !text.contains('\0') && text.lines().any(|line| line.trim_start().starts_with(".version"))
    });
    if is_text {
        return Ok(ModuleSource::Ptx(bytes));
    }
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(16)]).into_owned();
    Err(format!("it starts with \"{}\" and has no `.version` line, which PTX requires", start.escape_debug()))
}

/// Computes the length of a 64-bit ELF file from its tables.
fn elf_len(bytes: &[u8]) -> Option<u64> {
    let table = |at: usize, size: usize| {
        let (start, size, count) = (word(bytes, at, 8)?, word(bytes, size, 2)?, word(bytes, size + 2, 2)?);
        Some((start, size, count, start.checked_add(size * count)?))
    };
    let (.., program_end) = table(32, 54)?;
    let (start, size, count, mut end) = table(40, 58)?;
    end = end.max(program_end);
    if end > bytes.len() as u64 {
        return Some(end);
    }
    for index in 0..count {
        let at = usize::try_from(start + index * size).ok()?;
        let (kind, offset, len) =
            (word(bytes, at + 4, 4)?, word(bytes, at + 24, 8)?, word(bytes, at + 32, 8)?);
        // `SHT_NOBITS`: a section that occupies no bytes in the file.
        const NO_BYTES: u64 = 8;
        if kind != NO_BYTES {
            end = end.max(offset.checked_add(len)?);
        }
    }
    Some(end)
}

/// Reads a little-endian number of `size` bytes.
fn word(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

/// Returns the FNV-1a hash, the same in every process.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(bytes: &[u8]) -> String {
        form(bytes).map(|_| String::new()).unwrap_or_else(|reason| reason)
    }

    fn cubin(len: u64) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 64];
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes[18..20].copy_from_slice(&190u16.to_le_bytes());
        bytes[40..48].copy_from_slice(&64u64.to_le_bytes());
        bytes[58..62].copy_from_slice(&[64, 0, 1, 0]);
        bytes[64 + 32..64 + 40].copy_from_slice(&len.to_le_bytes());
        bytes
    }

    fn fatbin(len: u64) -> Vec<u8> {
        let mut bytes = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0].to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend([0; 8]);
        bytes
    }

    #[test]
    fn the_bytes_say_what_code_it_is() {
        assert!(matches!(form(&cubin(128)), Ok(ModuleSource::Cubin(_))));
        assert!(matches!(form(&fatbin(8)), Ok(ModuleSource::Cubin(_))));
        for ptx in ["//\n.version 7.0\n.target sm_80\n", "  .version 7.0", ".version 7.0\n\0"] {
            assert!(matches!(form(ptx.as_bytes()), Ok(ModuleSource::Ptx(_))), "{ptx}");
        }
    }

    #[test]
    fn what_is_no_code_is_said() {
        for (bytes, expected) in [
            (vec![], "empty"),
            (b"#include <x>\n".to_vec(), "starts with \"#include <x>\\n\""),
            (vec![0x1b, 0xff], "starts with \"\\u{1b}\u{fffd}\""),
            (b".version 7.0\n\0.target".to_vec(), "starts with"),
            (cubin(129), "truncated after 128 bytes"),
            (cubin(u64::MAX), "truncated"),
            (cubin(128)[..100].to_vec(), "truncated after 100 bytes"),
            (b"\x7fELF".to_vec(), "truncated after 4 bytes"),
            (fatbin(9), "truncated after 24 bytes"),
            (fatbin(u64::MAX), "truncated"),
            (fatbin(8)[..10].to_vec(), "truncated after 10 bytes"),
        ] {
            let found = reason(&bytes);
            assert!(found.contains(expected), "{found}");
        }
        let mut host = cubin(128);
        host[18] = 62;
        assert!(reason(&host).contains("another machine (number 62)"));
    }
}
