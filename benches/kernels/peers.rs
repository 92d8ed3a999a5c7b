//! CUB and CUDA runtime implementations of the cases. They are functions of `peers/kernels.cu`, which is compiled to
//! one library per family.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;

use libloading::Library;
use warpsmith::prelude::*;

use crate::cases::Case;
use crate::data::{Data, Value};

type Failure = Box<dyn std::error::Error>;

/// Arguments of the functions.
#[repr(C)]
struct Arrays {
    x: *const c_void,
    y: *const c_void,
    out: *mut c_void,
    sums: *mut c_void,
    words: *mut c_void,
    n: usize,
    rows: usize,
    columns: usize,
}

type Run = unsafe extern "C" fn(*mut c_void, *mut usize, *const Arrays, *mut c_void) -> c_int;
type Find = unsafe extern "C" fn(*const c_char, *const c_char) -> Option<Run>;

/// Libraries in a folder.
pub struct Libraries(Vec<Library>);

impl Libraries {
    /// Loads all files in the folder that end in `.so`.
    pub fn load(folder: &Path) -> Result<Self, Failure> {
        let mut libraries = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "so") {
                // SAFETY: the library is `kernels.cu`, whose initializers do not access our data.
                libraries.push(unsafe { Library::new(&path) }?);
            }
        }
        Ok(Self(libraries))
    }

    /// Finds the function for the case, with temporary memory, if a library has one.
    pub fn find<T: Value>(
        &self,
        stream: &Stream,
        case: &Case,
        data: &Data<T>,
    ) -> Result<Option<Peer>, Failure> {
        let (operation, dtype) = (CString::new(case.operation)?, CString::new(case.dtype.name())?);
        for library in &self.0 {
            // SAFETY: `kernels.cu` declares the function with this type; both names are NUL-terminated.
            let run = unsafe { library.get::<Find>(b"peer_find\0")?(operation.as_ptr(), dtype.as_ptr()) };
            let Some(run) = run else { continue };
            let mut bytes = 0;
            // SAFETY: without memory, the function writes only the number of bytes.
            check(unsafe {
                run(std::ptr::null_mut(), &mut bytes, &arrays(case, data, 0), std::ptr::null_mut())
            })?;
            return Ok(Some(Peer { run, memory: DeviceBuffer::uninit(stream, bytes.max(1))? }));
        }
        Ok(None)
    }
}

/// Function with its temporary memory.
pub struct Peer {
    run: Run,
    memory: DeviceBuffer<u8>,
}

impl Peer {
    /// Enqueues the function on a set.
    pub fn launch<T: Value>(
        &self,
        stream: &Stream,
        case: &Case,
        data: &Data<T>,
        set: usize,
    ) -> Result<(), Failure> {
        let (memory, mut bytes) = (self.memory.as_device_ptr().0 as *mut c_void, self.memory.len());
        let arrays = arrays(case, data, set);
        // SAFETY: the arrays have the type and the size of the case. They live until the stream, on which they are
        // always used, has been waited for. The memory has the number of bytes that the function requested.
        check(unsafe { (self.run)(memory, &mut bytes, &arrays, stream.handle().0 as *mut c_void) })
    }
}

fn arrays<T: Value>(case: &Case, data: &Data<T>, set: usize) -> Arrays {
    let offset = (set * data.n * size_of::<T>()) as u64;
    let at = |ptr: warpsmith::driver::DevicePtr, offset: u64| (ptr.0 + offset) as *mut c_void;
    Arrays {
        x: at(data.x.as_device_ptr(), offset),
        y: at(data.y.as_device_ptr(), offset),
        out: at(data.out.as_device_ptr(), offset),
        sums: at(data.sums.as_device_ptr(), 0),
        words: at(data.words.as_device_ptr(), 0),
        n: data.n,
        rows: case.rows,
        columns: case.columns,
    }
}

fn check(code: c_int) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(format!("CUB: CUDA error {code}").into()) }
}

/// Reads PyTorch's time for each case from the file that `kernels.py` wrote.
pub fn torch_times(path: &Path) -> Result<BTreeMap<String, f64>, Failure> {
    let path = path.display();
    let text = std::fs::read_to_string(path.to_string()).map_err(|error| format!("{path}: {error}"))?;
    let mut times = BTreeMap::new();
    for line in text.lines() {
        let (case, us) =
            line.rsplit_once('\t').ok_or_else(|| format!("{path}: {line:?} is not a case and a time"))?;
        times.insert(case.to_owned(), us.parse()?);
    }
    Ok(times)
}
