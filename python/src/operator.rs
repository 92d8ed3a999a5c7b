//! [`Operator`]: a Rust function with its name, its schema, and the conversions of its arguments and results.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::call::{Call, Frame};
use crate::error::{Error, Result};
use crate::exchange;
use crate::tensor::{Tensor, TensorMut};
use crate::{torch, tvm};

/// Function that calls an operator with Python objects.
type PythonCall = dyn Fn(&[Bound<'_, PyAny>], Frame) -> Result<Py<PyAny>> + Send + Sync;

/// Rust function as an operator. [`operators!`](crate::operators) creates this type.
pub struct Operator {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) names: &'static [&'static str],
    pub(crate) defaults: &'static [Option<&'static str>],
    /// Schema in PyTorch's syntax.
    pub(crate) schema: String,
    pub(crate) call: Box<PythonCall>,
    pub(crate) boxed: torch::Boxed,
}

impl Operator {
    /// Creates an operator from a function.
    #[doc(hidden)]
    pub fn new<A, F: Function<A> + Send + Sync + 'static>(
        name: &'static str,
        doc: &'static str,
        names: &'static [&'static str],
        defaults: &'static [Option<&'static str>],
        function: F,
        boxed: torch::Boxed,
    ) -> Self {
        let argument = |(at, (name, kind)): (usize, (&&str, &&str))| {
            // Each written tensor has its own alias set.
            let kind = kind.replace('!', &format!("({}!)", (b'a' + at as u8) as char));
            let default = defaults[at].map_or(String::new(), |default| format!("={default}"));
            format!("{kind} {name}{default}")
        };
        let arguments: Vec<_> = names.iter().zip(F::ARGUMENTS).enumerate().map(argument).collect();
        let schema = format!("{name}({}) -> {}", arguments.join(", "), F::RETURNS);
        let call = Box::new(move |arguments: &[Bound<'_, PyAny>], frame: Frame| {
            function.call_python(arguments, frame)
        });
        Self { name, doc, names, defaults, schema, call, boxed }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Argument type of an operator:
///
/// | Rust type | type in PyTorch's schema |
/// | --- | --- |
/// | [`Tensor`], [`TensorMut`] | `Tensor`, `Tensor(a!)` |
/// | `f64`, `i64`, `bool` | `float`, `int`, `bool` |
/// | `Option` of [`Tensor`], `f64`, `i64` or `bool` | `Tensor?`, `float?`, `int?`, `bool?` |
pub trait Argument: sealed::Sealed + Sized {
    /// Type in PyTorch's schema. A written tensor has the suffix `!`.
    #[doc(hidden)]
    const SCHEMA: &'static str;

    /// Converts a value from PyTorch's stack and takes ownership of it.
    ///
    /// # Safety
    /// The value must have the type in the schema and must not have been converted before.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "other crates cannot call the function")]
    unsafe fn from_torch(value: u64, frame: &mut Frame) -> Result<Self>;

    /// Converts an argument of a TVM FFI call.
    ///
    /// # Safety
    /// The value must be valid. If it is a tensor, the tensor must be alive during the call.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "other crates cannot call the function")]
    unsafe fn from_tvm(value: &tvm::Any, frame: &mut Frame) -> Result<Self>;

    /// Converts a Python object.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "other crates cannot call the function")]
    fn from_python(object: &Bound<'_, PyAny>, frame: &mut Frame) -> Result<Self>;
}

macro_rules! numbers {
    ($($number:ty: $schema:literal, |$value:ident| $convert:expr, $from_tvm:path;)*) => {
        $(impl sealed::Sealed for $number {}
        #[expect(private_interfaces, reason = "as in the trait")]
        impl Argument for $number {
            const SCHEMA: &'static str = $schema;

            unsafe fn from_torch($value: u64, _: &mut Frame) -> Result<Self> {
                Ok($convert)
            }

            unsafe fn from_tvm(value: &tvm::Any, frame: &mut Frame) -> Result<Self> {
                $from_tvm(value).ok_or_else(|| {
                    let (argument, found) = (frame.argument(), value.name());
                    Error::Arguments(format!("argument `{argument}` must be of type {}, not {found}", $schema))
                })
            }

            fn from_python(object: &Bound<'_, PyAny>, frame: &mut Frame) -> Result<Self> {
                object.extract().map_err(|error| {
                    Error::Arguments(format!("argument `{}`: {error}", frame.argument()))
                })
            }
        })*
    };
}

numbers! {
    f64: "float", |value| f64::from_bits(value), tvm::Any::float;
    i64: "int", |value| value as i64, tvm::Any::int;
    bool: "bool", |value| value & 0xff != 0, tvm::Any::bool;
}

impl sealed::Sealed for Tensor {}
#[expect(private_interfaces, reason = "as in the trait")]
impl Argument for Tensor {
    const SCHEMA: &'static str = "Tensor";

    unsafe fn from_torch(value: u64, frame: &mut Frame) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        let (imported, stream) = unsafe { torch::import(value, frame) }?;
        frame.read(imported, &stream)
    }

    unsafe fn from_tvm(value: &tvm::Any, frame: &mut Frame) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        let (imported, stream) = unsafe { tvm::import(value, frame) }?;
        frame.read(imported, &stream)
    }

    fn from_python(object: &Bound<'_, PyAny>, frame: &mut Frame) -> Result<Self> {
        let (imported, stream) = exchange::import(object, frame)?;
        frame.read(imported, &stream)
    }
}

impl sealed::Sealed for TensorMut {}
#[expect(private_interfaces, reason = "as in the trait")]
impl Argument for TensorMut {
    const SCHEMA: &'static str = "Tensor!";

    unsafe fn from_torch(value: u64, frame: &mut Frame) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        let (imported, stream) = unsafe { torch::import(value, frame) }?;
        frame.write(imported, &stream)
    }

    unsafe fn from_tvm(value: &tvm::Any, frame: &mut Frame) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        let (imported, stream) = unsafe { tvm::import(value, frame) }?;
        frame.write(imported, &stream)
    }

    fn from_python(object: &Bound<'_, PyAny>, frame: &mut Frame) -> Result<Self> {
        let (imported, stream) = exchange::import(object, frame)?;
        frame.write(imported, &stream)
    }
}

impl<A: Argument> sealed::Sealed for Option<A> {}
#[expect(private_interfaces, reason = "as in the trait")]
impl<A: Argument> Argument for Option<A> {
    const SCHEMA: &'static str = match A::SCHEMA.as_bytes() {
        b"Tensor" => "Tensor?",
        b"float" => "float?",
        b"int" => "int?",
        b"bool" => "bool?",
        _ => panic!("an optional argument must be a `Tensor`, a number or a `bool`"),
    };

    unsafe fn from_torch(value: u64, frame: &mut Frame) -> Result<Self> {
        // SAFETY: a value of an optional type is null or points to the contained value.
        match unsafe { torch::unwrap(value) } {
            None => Ok(None),
            // SAFETY: guaranteed by the caller.
            Some(value) => unsafe { A::from_torch(value, frame) }.map(Some),
        }
    }

    unsafe fn from_tvm(value: &tvm::Any, frame: &mut Frame) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        if value.is_none() { Ok(None) } else { unsafe { A::from_tvm(value, frame) }.map(Some) }
    }

    fn from_python(object: &Bound<'_, PyAny>, frame: &mut Frame) -> Result<Self> {
        if object.is_none() { Ok(None) } else { A::from_python(object, frame).map(Some) }
    }
}

/// Return type of an operator: `()`, a [`TensorMut`], or a tuple of two to four of them.
pub trait Returned: sealed::Sealed {
    #[doc(hidden)]
    const SCHEMA: &'static str;

    #[doc(hidden)]
    fn into_tensors(self) -> Vec<TensorMut>;
}

impl sealed::Sealed for () {}
impl Returned for () {
    const SCHEMA: &'static str = "()";

    fn into_tensors(self) -> Vec<TensorMut> {
        Vec::new()
    }
}

impl Returned for TensorMut {
    const SCHEMA: &'static str = "Tensor";

    fn into_tensors(self) -> Vec<TensorMut> {
        vec![self]
    }
}

macro_rules! tuples {
    ($($tuple:ty: $schema:literal;)*) => {
        $(impl sealed::Sealed for $tuple {}
        impl Returned for $tuple {
            const SCHEMA: &'static str = $schema;

            fn into_tensors(self) -> Vec<TensorMut> {
                <[TensorMut; _]>::from(self).into()
            }
        })*
    };
}

tuples! {
    (TensorMut, TensorMut): "(Tensor, Tensor)";
    (TensorMut, TensorMut, TensorMut): "(Tensor, Tensor, Tensor)";
    (TensorMut, TensorMut, TensorMut, TensorMut): "(Tensor, Tensor, Tensor, Tensor)";
}

/// Function that implements an operator. It takes a [`Call`] and up to twelve [arguments](Argument) and returns a
/// [`Result`] with a [`Returned`] type.
pub trait Function<A> {
    #[doc(hidden)]
    const ARGUMENTS: &'static [&'static str];
    #[doc(hidden)]
    const RETURNS: &'static str;

    /// Calls the function with values from PyTorch's stack.
    ///
    /// # Safety
    /// The stack must contain one value per argument. Each value must satisfy the safety contract of
    /// [`Argument::from_torch`].
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "other crates cannot call the function")]
    unsafe fn call_torch(&self, stack: *const u64, frame: Frame) -> Result<Vec<TensorMut>>;

    /// Calls the function with the arguments of a TVM FFI call.
    ///
    /// # Safety
    /// Each argument must satisfy the safety contract of [`Argument::from_tvm`].
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "other crates cannot call the function")]
    unsafe fn call_tvm(&self, arguments: &[tvm::Any], frame: Frame) -> Result<tvm::Any>;

    /// Calls the function with Python objects, one per argument.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "other crates cannot call the function")]
    fn call_python(&self, arguments: &[Bound<'_, PyAny>], frame: Frame) -> Result<Py<PyAny>>;
}

macro_rules! functions {
    ($($type:ident $value:ident),*; ) => { functions!(@ $($type $value),*); };
    ($($type:ident $value:ident),*; $next:ident $name:ident $(, $rest:ident $more:ident)*) => {
        functions!(@ $($type $value),*);
        functions!($($type $value,)* $next $name; $($rest $more),*);
    };
    (@ $($type:ident $value:ident),*) => {
        #[expect(private_interfaces, reason = "as in the trait")]
        impl<F, R, $($type),*> Function<($($type,)*)> for F
        where
            F: Fn(&Call, $($type),*) -> Result<R>,
            R: Returned,
            $($type: Argument,)*
        {
            const ARGUMENTS: &'static [&'static str] = &[$($type::SCHEMA),*];
            const RETURNS: &'static str = R::SCHEMA;

            unsafe fn call_torch(&self, stack: *const u64, mut frame: Frame) -> Result<Vec<TensorMut>> {
                let mut at = 0..;
                // Converting a value takes ownership of it, so all values are converted before the first error is
                // returned.
                $(
                    frame.advance();
                    // SAFETY: guaranteed by the caller.
                    let $value = unsafe { $type::from_torch(*stack.add(at.next().unwrap_or(0)), &mut frame) };
                )*
                $(let $value = $value?;)*
                let _ = (stack, &mut at);
                let call = frame.call()?;
                call.run(|| self(&call, $($value),*))
            }

            unsafe fn call_tvm(&self, arguments: &[tvm::Any], mut frame: Frame) -> Result<tvm::Any> {
                let [$($value),*] = arguments else {
                    return Err(Error::Arguments("wrong number of arguments".to_owned()));
                };
                $(
                    frame.advance();
                    // SAFETY: guaranteed by the caller.
                    let $value = unsafe { $type::from_tvm($value, &mut frame) }?;
                )*
                let call = frame.call()?;
                tvm::export(call.run(|| self(&call, $($value),*))?, &call)
            }

            fn call_python(&self, arguments: &[Bound<'_, PyAny>], mut frame: Frame) -> Result<Py<PyAny>> {
                let [$($value),*] = arguments else {
                    return Err(Error::Arguments("wrong number of arguments".to_owned()));
                };
                $(
                    frame.advance();
                    let $value = $type::from_python($value, &mut frame)?;
                )*
                let call = frame.call()?;
                let tensors = call.run(|| self(&call, $($value),*))?;
                Python::attach(|py| {
                    let objects: Vec<_> =
                        tensors.into_iter().map(|tensor| exchange::export(py, tensor, &call)).collect::<Result<_>>()?;
                    match <[_; 1]>::try_from(objects) {
                        Ok([object]) => Ok(object),
                        Err(objects) if objects.is_empty() => Ok(py.None()),
                        Err(objects) => Ok(PyTuple::new(py, objects)?.unbind().into_any()),
                    }
                })
            }
        }
    };
}

functions!(A a; B b, C c, D d, E e, G g, H h, I i, J j, K k, L l, M m);
