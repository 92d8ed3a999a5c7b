//! [`Operator`]: a Rust function with its name and the types of its arguments, and the conversions of both.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::call::{Call, Frame};
use crate::error::{Error, Result};
use crate::exchange;
use crate::tensor::{Tensor, TensorMut};
use crate::{torch, tvm};

/// A call with Python objects.
type PythonCall = dyn Fn(&[Bound<'_, PyAny>], Frame) -> Result<Py<PyAny>> + Send + Sync;

/// A function as an operator; [`operators!`](crate::operators) makes it.
pub struct Operator {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) names: &'static [&'static str],
    pub(crate) defaults: &'static [Option<&'static str>],
    /// The schema in PyTorch's syntax.
    pub(crate) schema: String,
    pub(crate) call: Box<PythonCall>,
    pub(crate) boxed: torch::Boxed,
}

impl Operator {
    /// Describes a function.
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
            // Each tensor that is written has an alias of its own.
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

/// A type of an operator's arguments:
///
/// | Rust | PyTorch's schema |
/// | --- | --- |
/// | [`Tensor`], [`TensorMut`] | `Tensor`, `Tensor(a!)` |
/// | `f64`, `i64`, `bool` | `float`, `int`, `bool` |
/// | `Option` of another | `Tensor?` and so on |
pub trait Argument: sealed::Sealed + Sized {
    /// The type in PyTorch's schema; `!` marks one that is written.
    #[doc(hidden)]
    const SCHEMA: &'static str;

    /// Converts a value of PyTorch's stack, and owns it.
    ///
    /// # Safety
    /// The value has the schema's type, and was not converted before.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "it cannot be called elsewhere")]
    unsafe fn from_torch(value: u64, frame: &mut Frame) -> Result<Self>;

    /// Converts an argument of TVM FFI.
    ///
    /// # Safety
    /// The value is valid. A tensor is alive during the call.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "it cannot be called elsewhere")]
    unsafe fn from_tvm(value: &tvm::Any, frame: &mut Frame) -> Result<Self>;

    /// Converts a Python object.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "it cannot be called elsewhere")]
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
                    Error::Arguments(format!("argument `{argument}` is {found}, not of type {}", $schema))
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
        // SAFETY: passed on from the caller.
        let (imported, stream) = unsafe { torch::import(value, frame) }?;
        frame.read(imported, &stream)
    }

    unsafe fn from_tvm(value: &tvm::Any, frame: &mut Frame) -> Result<Self> {
        // SAFETY: passed on from the caller.
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
        // SAFETY: passed on from the caller.
        let (imported, stream) = unsafe { torch::import(value, frame) }?;
        frame.write(imported, &stream)
    }

    unsafe fn from_tvm(value: &tvm::Any, frame: &mut Frame) -> Result<Self> {
        // SAFETY: passed on from the caller.
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
        _ => panic!("an optional argument is a tensor for reading or a number"),
    };

    unsafe fn from_torch(value: u64, frame: &mut Frame) -> Result<Self> {
        // SAFETY: an optional value is null, or points to the value.
        match unsafe { torch::unwrap(value) } {
            None => Ok(None),
            // SAFETY: passed on from the caller.
            Some(value) => unsafe { A::from_torch(value, frame) }.map(Some),
        }
    }

    unsafe fn from_tvm(value: &tvm::Any, frame: &mut Frame) -> Result<Self> {
        // SAFETY: passed on from the caller.
        if value.is_none() { Ok(None) } else { unsafe { A::from_tvm(value, frame) }.map(Some) }
    }

    fn from_python(object: &Bound<'_, PyAny>, frame: &mut Frame) -> Result<Self> {
        if object.is_none() { Ok(None) } else { A::from_python(object, frame).map(Some) }
    }
}

/// A type that operators return: nothing, a [`TensorMut`], or up to four of them as a tuple.
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

/// A function of a [`Call`] and up to twelve [arguments](Argument), which returns a [`Result`] of a [`Returned`] type.
pub trait Function<A> {
    #[doc(hidden)]
    const ARGUMENTS: &'static [&'static str];
    #[doc(hidden)]
    const RETURNS: &'static str;

    /// Calls the function with values of PyTorch's stack.
    ///
    /// # Safety
    /// As for [`Argument::from_torch`]; there are as many values as arguments.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "it cannot be called elsewhere")]
    unsafe fn call_torch(&self, stack: *const u64, frame: Frame) -> Result<Vec<TensorMut>>;

    /// Calls the function with arguments of TVM FFI.
    ///
    /// # Safety
    /// As for [`Argument::from_tvm`].
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "it cannot be called elsewhere")]
    unsafe fn call_tvm(&self, arguments: &[tvm::Any], frame: Frame) -> Result<tvm::Any>;

    /// Calls the function with Python objects, as many as arguments.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "it cannot be called elsewhere")]
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
                // Every value is converted, and so owned, before the first error returns.
                $(
                    frame.advance();
                    // SAFETY: passed on from the caller.
                    let $value = unsafe { $type::from_torch(*stack.add(at.next().unwrap_or(0)), &mut frame) };
                )*
                $(let $value = $value?;)*
                let _ = (stack, &mut at);
                let call = frame.call()?;
                call.run(|| self(&call, $($value),*))
            }

            unsafe fn call_tvm(&self, arguments: &[tvm::Any], mut frame: Frame) -> Result<tvm::Any> {
                let [$($value),*] = arguments else {
                    return Err(Error::Arguments("the number of arguments differs".to_owned()));
                };
                $(
                    frame.advance();
                    // SAFETY: passed on from the caller.
                    let $value = unsafe { $type::from_tvm($value, &mut frame) }?;
                )*
                let call = frame.call()?;
                tvm::export(call.run(|| self(&call, $($value),*))?, &call)
            }

            fn call_python(&self, arguments: &[Bound<'_, PyAny>], mut frame: Frame) -> Result<Py<PyAny>> {
                let [$($value),*] = arguments else {
                    return Err(Error::Arguments("the number of arguments differs".to_owned()));
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
