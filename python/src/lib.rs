//! Exposes Rust kernels as Python functions that accept tensors from any framework, and as PyTorch operators that
//! support `torch.compile` and CUDA graphs.
//!
//! An operator is a Rust function. Its first argument is the [`Call`], which provides the stream to launch on and
//! allocates results. The other arguments are [tensors](Tensor) and numbers. [`operators!`] creates a Python module
//! named `_native` from the functions:
//!
//! ```ignore
//! use warpsmith_python::{Call, Result, Tensor, TensorMut, operators};
//!
//! fn axpy(call: &Call, x: Tensor, y: Tensor, a: f64) -> Result<TensorMut> {
//!     let mut out = call.empty_like(&x)?;
//!     let kernel = call.device().load(&KERNELS)?.kernel::<kernels::axpy>()?;
//!     let arguments = (a as f32, x.as_slice()?, y.as_slice()?, out.as_mut_slice()?);
//!     kernel.launch(call.stream(), Launch::auto(x.elements()), arguments)?;
//!     Ok(out)
//! }
//!
//! operators! {
//!     "fused":
//!     /// `a * x + y`.
//!     axpy(x, y, a = 1.0);
//! }
//! ```
//!
//! | call | device | stream |
//! | --- | --- | --- |
//! | Python function | the device of the tensors | the framework's current stream, if the framework implements the DLPack C exchange API; otherwise the device's default stream, synchronized as DLPack specifies |
//! | PyTorch operator | the device of the tensors | PyTorch's current stream |
//! | TVM FFI function | the device of the tensors | TVM FFI's current stream, which the caller's framework sets |
//! | any call with CPU tensors | the emulated device | none: the call is synchronous |
//!
//! Results are tensors of the first tensor's framework. The framework allocates their memory if it implements the C
//! exchange API; otherwise Warpsmith allocates it. PyTorch's functions are looked up at run time, so the library is
//! built without PyTorch and works with PyTorch 2.10 and later.
#![deny(missing_docs)]

mod call;
mod error;
mod exchange;
mod library;
mod module;
mod operator;
mod tensor;
mod torch;
mod tvm;

pub use call::Call;
pub use error::{Error, Result};
pub use operator::{Argument, Function, Operator, Returned};
pub use tensor::{Tensor, TensorMut};

pub use warpsmith_interop::dlpack;

#[doc(hidden)]
pub mod expansion {
    pub use pyo3::ffi::PyObject;

    pub use crate::library::ContextGuard;
    pub use crate::module::{Extend, initialize};
    pub use crate::torch::{call as call_torch, throw};
    pub use crate::tvm::{Any, call as call_tvm};
}

/// Creates the Python module `_native` from a list of functions. Invoke the macro once in a crate of type `cdylib`.
/// Each entry lists the names of the arguments, with default values in Python syntax. The argument types are those of
/// the Rust function (see [`Function`]).
///
/// The module also contains `register_torch()`, which registers the operators `torch.ops.NAMESPACE.FUNCTION` for CPU
/// and CUDA tensors. The string literal is the namespace.
///
/// The library also exports the functions for TVM FFI: `tvm_ffi.load_module(_native.__file__).FUNCTION(…)`. These
/// functions accept only positional arguments.
///
/// To add other functions to the module, write `"fused", extend:` instead of `"fused":`. Importing the module then also
/// calls the crate's `fn extend(module: &Bound<PyModule>) -> PyResult<()>`.
#[macro_export]
macro_rules! operators {
    ($namespace:literal $(, $extend:path)?:
        $($(#[doc = $doc:literal])* $function:ident($($argument:ident $(= $default:expr)?),* $(,)?);)+
    ) => {
        /// Module initialization function, which Python calls on import.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn PyInit__native() -> *mut $crate::expansion::PyObject {
            #[allow(unused_mut, unused_assignments)]
            let mut extend: $crate::expansion::Extend = |_| Ok(());
            $(extend = $extend;)?
            $crate::expansion::initialize($namespace, extend, || vec![$({
                unsafe extern "C-unwind" fn called(stack: *mut u64, arguments: u64, results: u64) {
                    // SAFETY: PyTorch passes the values that the schema specifies.
                    unsafe { $crate::expansion::call_torch(&NAMES, &$function, stack, arguments, results) }
                }
                #[unsafe(export_name = concat!("__tvm_ffi_", stringify!($function)))]
                unsafe extern "C" fn called_by_tvm(
                    _: *mut ::std::ffi::c_void,
                    arguments: *const $crate::expansion::Any,
                    count: i32,
                    result: *mut $crate::expansion::Any,
                ) -> i32 {
                    // SAFETY: TVM FFI passes `count` arguments.
                    unsafe {
                        $crate::expansion::call_tvm(&NAMES, &DEFAULTS, &$function, arguments, count, result)
                    }
                }
                static NAMES: [&str; $crate::operators!(@count $($argument)*)] = [$(stringify!($argument)),*];
                static DEFAULTS: [Option<&str>; NAMES.len()] = [$($crate::operators!(@default $($default)?)),*];
                $crate::Operator::new(
                    stringify!($function),
                    concat!($($doc, "\n"),*),
                    &NAMES,
                    &DEFAULTS,
                    $function,
                    called,
                )
            }),+])
        }
    };
    (@count) => { 0 };
    (@count $first:ident $($rest:ident)*) => { 1 + $crate::operators!(@count $($rest)*) };
    (@default) => { None };
    (@default $default:expr) => { Some(stringify!($default)) };
}

/// Runs a block with the Rust type of a tensor's elements, like PyTorch's `AT_DISPATCH` macros. The type is the first
/// one in the list that matches the given [`DLDataType`](dlpack::DLDataType). The block must return a `Result` whose
/// error type converts to [`Error`]. If no type matches, the macro returns [`Error::Value`].
///
/// ```ignore
/// dispatch!(x.data_type(), T in [f32, f16] => { launch::<T>(x.as_slice::<T>()?, out.as_mut_slice::<T>()?) })?;
/// ```
#[macro_export]
macro_rules! dispatch {
    ($data_type:expr, $name:ident in [$($element:ty),+ $(,)?] => $block:block) => {
        match $data_type {
            $(found if found == <$element as $crate::dlpack::Element>::DATA_TYPE => {
                type $name = $element;
                #[allow(unused_mut)]
                let mut run = || -> $crate::Result<_> { $block.map_err($crate::Error::from) };
                run()
            })+
            found => {
                let known = [$(<$element as $crate::dlpack::Element>::DATA_TYPE.to_string()),+].join(", ");
                Err($crate::Error::value(format!("the element type {found} is not supported; use {known}")))
            }
        }
    };
}
