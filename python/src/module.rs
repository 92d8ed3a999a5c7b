//! Creates the Python module of an extension.

use std::cell::UnsafeCell;
use std::ffi::{CString, c_int};
use std::ptr::null_mut;
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use warpsmith_interop::dlpack;

use crate::call::Frame;
use crate::error::{Error, Result};
use crate::exchange::arguments;
use crate::library::{ContextGuard, this_process};
use crate::operator::Operator;
use crate::torch;

/// Module definition. Python writes to it.
struct Definition(UnsafeCell<ffi::PyModuleDef>);

// SAFETY: only Python uses the definition, and it imports the module once.
unsafe impl Sync for Definition {}

static DEFINITION: Definition = Definition(UnsafeCell::new(ffi::PyModuleDef {
    m_base: ffi::PyModuleDef_HEAD_INIT,
    m_name: c"_native".as_ptr(),
    m_doc: std::ptr::null(),
    // The module has global state, so only one interpreter can import it.
    m_size: -1,
    m_methods: null_mut(),
    m_slots: null_mut(),
    m_traverse: None,
    m_clear: None,
    m_free: None,
}));

/// Function that adds other functions to the module.
pub type Extend = fn(&Bound<'_, PyModule>) -> PyResult<()>;

/// Returns false while the interpreter is being finalized. A thread that attaches to the interpreter at that time never
/// returns.
fn is_running() -> bool {
    static IS_ENDING: OnceLock<Option<unsafe extern "C" fn() -> c_int>> = OnceLock::new();
    // Python 3.13 renamed the function. Neither name is in the stable ABI of Python 3.10.
    // SAFETY: both have this type.
    let find = || unsafe { this_process("Py_IsFinalizing").or_else(|| this_process("_Py_IsFinalizing")) };
    // SAFETY: the function may be called on any thread.
    IS_ENDING.get_or_init(find).is_none_or(|is_ending| unsafe { is_ending() } == 0)
}

/// Creates the module `_native` from the operators. On failure, sets a Python exception and returns null.
pub fn initialize(
    namespace: &'static str,
    extend: Extend,
    operators: fn() -> Vec<Operator>,
) -> *mut ffi::PyObject {
    static OPERATORS: OnceLock<Vec<Operator>> = OnceLock::new();
    let operators = OPERATORS.get_or_init(operators);
    dlpack::call_deleters_while(is_running);
    // The calling thread is already attached to the interpreter.
    Python::attach(|py| {
        let made = module(py, namespace, operators).map_err(PyErr::from);
        match made.and_then(|module| extend(&module).map(|()| module)) {
            Ok(module) => module.into_ptr(),
            Err(error) => {
                error.restore(py);
                null_mut()
            }
        }
    })
}

fn module<'py>(
    py: Python<'py>,
    namespace: &'static str,
    operators: &'static [Operator],
) -> Result<Bound<'py, PyModule>> {
    // SAFETY: the definition is complete and is never moved. Python writes to it while this thread is attached.
    let module = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyModule_Create(DEFINITION.0.get())) }?;
    let module = module.cast_into::<PyModule>().map_err(PyErr::from)?;
    for operator in operators {
        module.add(operator.name, function(py, operator)?)?;
    }
    let register = move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
        static REGISTERED: OnceLock<()> = OnceLock::new();
        if REGISTERED.get().is_none() {
            torch::register(namespace, operators)?;
            let _ = REGISTERED.set(());
        }
        Ok(())
    };
    let doc = c"register_torch()\n--\n\nRegisters the operators with PyTorch. Import torch first.";
    module
        .add("register_torch", PyCFunction::new_closure(py, Some(c"register_torch"), Some(doc), register)?)?;
    Ok(module)
}

/// Creates the Python function of an operator.
fn function<'py>(py: Python<'py>, operator: &'static Operator) -> Result<Bound<'py, PyCFunction>> {
    let Operator { name, doc, names, defaults, call, .. } = operator;
    let value = |default: &Option<&str>| -> Result<Option<Py<PyAny>>> {
        let Some(default) = default else { return Ok(None) };
        let text = CString::new(*default).map_err(|_| Error::value("a default value contains a NUL byte"))?;
        Ok(Some(py.eval(&text, None, None)?.unbind()))
    };
    let values: Vec<_> = defaults.iter().map(value).collect::<Result<_>>()?;
    let signature: Vec<_> = names
        .iter()
        .zip(*defaults)
        .map(|(name, default)| match default {
            Some(default) => format!("{name}={default}"),
            None => (*name).to_owned(),
        })
        .collect();
    let text = format!("{name}({})\n--\n\n{}", signature.join(", "), doc.trim());
    let static_text = |text: String| -> Result<&'static std::ffi::CStr> {
        // The module is never unloaded, so Python may use the pointers until the process exits.
        let text = CString::new(text).map_err(|_| Error::value("a name or docstring contains a NUL byte"))?;
        Ok(Box::leak(text.into_boxed_c_str()))
    };
    let closure =
        move |positional: &Bound<'_, PyTuple>, named: Option<&Bound<'_, PyDict>>| -> PyResult<Py<PyAny>> {
            let _context = ContextGuard::new();
            let arguments = arguments(name, names, &values, positional, named)?;
            Ok(call(&arguments, Frame::new(names))?)
        };
    let name = static_text((*name).to_owned())?;
    let made = PyCFunction::new_closure(py, Some(name), Some(static_text(text)?), closure);
    made.map_err(Error::from)
}
