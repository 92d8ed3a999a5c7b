//! Rust kernels as Python functions on any framework's tensors, and as PyTorch operators that `torch.compile` and CUDA
//! graphs keep.
//!
//! An operator is a Rust function. Its first argument is the [`Call`], which has the stream to launch on and allocates
//! results; the others are [tensors](Tensor) and numbers. [`operators!`] makes a Python module of the functions, with the
//! name `_native`:
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
//! | of a Python function | the tensors' | the framework's current stream, if it has DLPack's exchange table; otherwise the device's default stream, ordered as DLPack says |
//! | of a PyTorch operator | the tensors' | PyTorch's current stream |
//! | by TVM FFI | the tensors' | TVM FFI's current stream, which is that of the caller's framework |
//! | with CPU tensors | the emulated device | the call returns after the work |
//!
//! Results belong to the framework of the first tensor, and its allocator has their memory where the framework can
//! allocate for others. PyTorch's functions are found at run time in the process, so the library is built without PyTorch,
//! and works with version 2.10 and later.
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

    pub use crate::module::{Extend, initialize};
    pub use crate::torch::{call as call_torch, throw};
    pub use crate::tvm::{Any, call as call_tvm};
}

/// Makes the Python module `_native` of functions, whose PyTorch operators have the given namespace. Names of arguments,
/// and defaults in Python's syntax, are those of the module and of the operators. Types are the function's, which
/// [`Function`] documents.
///
/// The library also exports the functions for TVM FFI: `tvm_ffi.load_module(_native.__file__).FUNCTION(…)`. Their arguments
/// are given by position.
///
/// The module also has `register_torch()`, which registers the operators `torch.ops.NAMESPACE.FUNCTION` for CPU and CUDA
/// tensors. A crate of type `cdylib` uses the macro once. `"fused", extend:` in the place of `"fused":` also calls
/// `fn extend(module: &Bound<PyModule>) -> PyResult<()>` of the crate, which adds other functions to the module.
#[macro_export]
macro_rules! operators {
    ($namespace:literal $(, $extend:path)?:
        $($(#[doc = $doc:literal])* $function:ident($($argument:ident $(= $default:expr)?),* $(,)?);)+
    ) => {
        /// Python's entry point of the module.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn PyInit__native() -> *mut $crate::expansion::PyObject {
            #[allow(unused_mut, unused_assignments)]
            let mut extend: $crate::expansion::Extend = |_| Ok(());
            $(extend = $extend;)?
            $crate::expansion::initialize($namespace, extend, || vec![$({
                unsafe extern "C-unwind" fn called(stack: *mut u64, arguments: u64, results: u64) {
                    // SAFETY: PyTorch calls it with the values of the schema.
                    unsafe { $crate::expansion::call_torch(&NAMES, &$function, stack, arguments, results) }
                }
                #[unsafe(export_name = concat!("__tvm_ffi_", stringify!($function)))]
                unsafe extern "C" fn called_by_tvm(
                    _: *mut ::std::ffi::c_void,
                    arguments: *const $crate::expansion::Any,
                    count: i32,
                    result: *mut $crate::expansion::Any,
                ) -> i32 {
                    // SAFETY: TVM FFI calls it with `count` arguments.
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

/// Runs a block for the Rust type of a tensor's elements, like PyTorch's `AT_DISPATCH` macros: the first type of the list
/// whose [`DLDataType`](dlpack::DLDataType) is given. The block returns a `Result`, whose error converts to [`Error`]; for
/// a type that is not in the list, the result is a [`Error::Value`].
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
                Err($crate::Error::value(format!("the type {found} is not supported; use {known}")))
            }
        }
    };
}
