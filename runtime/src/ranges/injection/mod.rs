//! NVTX: ranges and marks for a tool attached to the process.
//!
//! This is a port of the injection protocol of NVIDIA's NVTX headers. At the first range of a process, the library
//! named by `NVTX_INJECTION64_PATH` (an absolute path) is loaded, and its initializer is called. If the library is
//! unusable, a warning is logged, and the program continues. A set-user-ID program loads no library. Libraries that are
//! already loaded are not searched for an initializer, because libcupti exports the same symbol.

mod abi;

use std::collections::HashMap;
use std::ffi::{CString, OsString, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use self::abi::{
    CORE, CORE2, DomainCreate, EventAttributes, Handle, Initialize, MarkEx, NameCategory, NameOsThread,
    RangeEnd, RangePop, RangePushEx, RangeStartEx, RegisterString,
};
use crate::driver::process::is_privileged;
use crate::ranges::label::{Label, Payload};
use crate::ranges::state::{self, PerProcess, TOOL, UNKNOWN};

const VARIABLE: &str = "NVTX_INJECTION64_PATH";
const DOMAIN: &std::ffi::CStr = c"warpsmith";

struct Tool {
    path: PathBuf,
    domain: usize,
    names: Mutex<Names>,
}

/// Handles and IDs of strings and categories that were registered with the tool.
#[derive(Default)]
struct Names {
    /// Registered strings, keyed by address and length.
    strings: HashMap<(usize, usize), usize>,
    categories: HashMap<&'static str, u32>,
}

static ATTACHED: PerProcess<OnceLock<Tool>> = PerProcess::new();
/// Held during the search for a tool.
static ATTACHING: PerProcess<Mutex<()>> = PerProcess::new();
static CUPTI_ALLOWED: AtomicBool = AtomicBool::new(true);

/// Reason why no tool was attached.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(
        "the program has privileges that its user does not have (set-user-ID), so the environment must not inject \
         code"
    )]
    Privileged,
    #[error("it is not an absolute path, so the file would depend on the current folder or the search path")]
    Relative,
    #[error("it cannot be loaded: {0}")]
    Load(String),
    #[error("it exports no `InitializeInjectionNvtx2`, so it is not an NVTX tool: {0}")]
    Symbol(String),
    #[error("the library's `InitializeInjectionNvtx2` failed")]
    Initialize,
    #[error(
        "it is libcupti, which would replace the active profiler; that profiler's trace contains the ranges"
    )]
    Cupti,
}

/// Returns true if a listener or a tool receives ranges, after searching for a tool once.
pub(crate) fn is_heard() -> bool {
    if state::has(UNKNOWN) {
        attach();
    }
    state::may_be_heard()
}

#[cold]
fn attach() {
    let attaching = ATTACHING.get().lock().unwrap_or_else(PoisonError::into_inner);
    if !state::has(UNKNOWN) {
        return;
    }
    state::watch_forks();
    let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let loaded = path.as_ref().map(load);
    let failed = match loaded {
        Some(Ok(tool)) => {
            // The cell is empty, because this runs only once.
            let _ = ATTACHED.get().set(tool);
            state::set(TOOL);
            None
        }
        Some(Err(failure)) => Some(failure),
        None => None,
    };
    state::clear(UNKNOWN);
    // The lock must not be held here, because the warning may become a mark, which calls this function again.
    drop(attaching);
    if let (Some(path), Some(failure)) = (path, failed) {
        tracing::warn!(
            "NVTX ranges are not forwarded to a tool: {VARIABLE} is `{}`; {failure}. Unset the variable, or set it \
             to the path of the tool's injection library",
            path.display()
        );
    }
}

fn load(path: &OsString) -> Result<Tool, Failure> {
    let path = Path::new(path);
    if is_privileged() {
        return Err(Failure::Privileged);
    }
    if !path.is_absolute() {
        return Err(Failure::Relative);
    }
    if !CUPTI_ALLOWED.load(Ordering::Acquire) && is_cupti(path) {
        return Err(Failure::Cupti);
    }
    state::seek();
    // SAFETY: the user has named this library to run its code in the process.
    let library =
        unsafe { libloading::Library::new(path) }.map_err(|error| Failure::Load(error.to_string()))?;
    // SAFETY: the protocol defines this type for the symbol.
    let initialize = unsafe { library.get::<Initialize>(abi::INITIALIZE) };
    let initialize = *initialize.map_err(|error| Failure::Symbol(error.to_string()))?;
    // SAFETY: the library is loaded, and the argument is the one that the protocol requires.
    if unsafe { initialize(abi::get_export_table) } == 0 {
        return Err(Failure::Initialize);
    }
    // The slots contain functions of the library, so it must stay loaded.
    std::mem::forget(library);
    // SAFETY: the slot has this type.
    let create = unsafe { CORE2.function::<DomainCreate>(12) };
    // SAFETY: the argument is a NUL-terminated string.
    let domain = create.map_or(0, |create| unsafe { create(DOMAIN.as_ptr()) }.expose_provenance());
    Ok(Tool { path: path.to_owned(), domain, names: Mutex::default() })
}

/// Returns true if a library is libcupti, judging by its file name or its link target's.
fn is_cupti(path: &Path) -> bool {
    let named =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().contains("libcupti"));
    named(path) || path.canonicalize().is_ok_and(|path| named(&path))
}

/// Sets whether libcupti may be attached as a tool (allowed by default). A profiler that uses CUPTI itself must
/// disallow this while it records, because a process supports only one CUPTI subscriber. If `NVTX_INJECTION64_PATH`
/// names libcupti, the runtime attaches it once this is allowed again.
///
/// Returns true if libcupti is already attached, which cannot be undone.
pub fn allow_cupti(allow: bool) -> bool {
    let _attaching = ATTACHING.get().lock().unwrap_or_else(PoisonError::into_inner);
    let refused = !CUPTI_ALLOWED.swap(allow, Ordering::AcqRel);
    if let Some(tool) = tool() {
        return is_cupti(&tool);
    }
    let named = std::env::var_os(VARIABLE).is_some_and(|path| is_cupti(Path::new(&path)));
    if allow && refused && named && state::forks() == 0 {
        state::set(UNKNOWN);
    }
    false
}

/// Returns the injection library of the attached tool; `None` if there is none.
pub fn tool() -> Option<PathBuf> {
    attached().map(|tool| tool.path.clone())
}

fn attached() -> Option<&'static Tool> {
    if state::has(TOOL) { ATTACHED.get().get() } else { None }
}

/// Returns a NUL-terminated string, truncated at the first NUL.
fn c_string(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

impl Tool {
    fn handle(&self) -> Handle {
        std::ptr::with_exposed_provenance_mut(self.domain)
    }

    /// Returns the ID of a category; 0 if the category is empty.
    fn category(&self, category: &'static str) -> u32 {
        if category.is_empty() {
            return 0;
        }
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let next = names.categories.len() as u32 + 1;
        *names.categories.entry(category).or_insert_with(|| {
            // SAFETY: the slot has this type.
            if let Some(name) = unsafe { CORE2.function::<NameCategory>(8) } {
                // SAFETY: the domain comes from the tool, and the string is NUL-terminated.
                unsafe { name(self.handle(), next, c_string(category).as_ptr()) };
            }
            next
        })
    }

    /// Returns the tool's handle for a static string; `None` if the tool does not register strings.
    fn registered(&self, text: &'static str) -> Option<Handle> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (text.as_ptr().addr(), text.len());
        let handle = *names.strings.entry(key).or_insert_with(|| {
            // SAFETY: the slot has this type.
            let register = unsafe { CORE2.function::<RegisterString>(10) };
            let text = c_string(text);
            // SAFETY: the domain comes from the tool, and the string is NUL-terminated.
            register
                .map_or(0, |register| unsafe { register(self.handle(), text.as_ptr()) }.expose_provenance())
        });
        (handle != 0).then(|| std::ptr::with_exposed_provenance_mut(handle))
    }

    /// Calls `call` with the domain and a label's attributes.
    fn with<R>(&self, label: &Label, call: impl FnOnce(Handle, *const EventAttributes) -> R) -> R {
        name_this_thread();
        let registered = match label.name {
            std::borrow::Cow::Borrowed(name) => self.registered(name),
            std::borrow::Cow::Owned(_) => None,
        };
        let text = if registered.is_none() { c_string(&label.name) } else { CString::default() };
        let (message_type, message) = match registered {
            Some(handle) => (3, handle.cast_const()),
            None => (1, text.as_ptr().cast::<c_void>()),
        };
        let (payload_type, payload) = match label.payload {
            Payload::None => (0, 0),
            Payload::Int(value) => (2, value as u64),
            Payload::Float(value) => (3, value.to_bits()),
        };
        let attributes = EventAttributes {
            version: abi::VERSION,
            size: size_of::<EventAttributes>() as u16,
            category: self.category(label.category),
            color_type: i32::from(label.color != 0),
            color: label.color,
            payload_type,
            reserved: 0,
            payload,
            message_type,
            message,
        };
        call(self.handle(), &attributes)
    }
}

/// Starts a range on the thread's stack. Returns true if a tool received the range.
pub(crate) fn push(label: &Label) -> bool {
    let Some(tool) = attached() else { return false };
    // SAFETY: the slot has this type.
    let push = unsafe { CORE2.function::<RangePushEx>(4) };
    push.inspect(|push| {
        // SAFETY: the domain comes from the tool, and the attributes are valid for the call.
        tool.with(label, |domain, attributes| unsafe { push(domain, attributes) });
    })
    .is_some()
}

/// Ends the innermost range on the thread's stack that the tool has received.
pub(crate) fn pop() {
    // SAFETY: the slot has this type.
    if let (Some(tool), Some(pop)) = (attached(), unsafe { CORE2.function::<RangePop>(5) }) {
        // SAFETY: the domain comes from the tool.
        unsafe { pop(tool.handle()) };
    }
}

/// Starts a range. Returns the tool's ID of the range.
pub(crate) fn start(label: &Label) -> Option<u64> {
    let tool = attached()?;
    // SAFETY: the slot has this type.
    let start = unsafe { CORE2.function::<RangeStartEx>(2) }?;
    // SAFETY: the domain comes from the tool, and the attributes are valid for the call.
    Some(tool.with(label, |domain, attributes| unsafe { start(domain, attributes) }))
}

/// Ends a range that was started.
pub(crate) fn end(id: u64) {
    // SAFETY: the slot has this type.
    if let (Some(tool), Some(end)) = (attached(), unsafe { CORE2.function::<RangeEnd>(3) }) {
        // SAFETY: both the domain and the ID come from the tool.
        unsafe { end(tool.handle(), id) };
    }
}

pub(crate) fn mark(label: &Label) {
    // SAFETY: the slot has this type.
    if let (Some(tool), Some(mark)) = (attached(), unsafe { CORE2.function::<MarkEx>(1) }) {
        // SAFETY: the domain comes from the tool, and the attributes are valid for the call.
        tool.with(label, |domain, attributes| unsafe { mark(domain, attributes) });
    }
}

/// Names the thread in the tool by its [`std::thread`] name, at most once.
fn name_this_thread() {
    thread_local! {
        static NAMED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    if !NAMED.try_with(|named| named.replace(true)).unwrap_or(true)
        && let Some(name) = std::thread::current().name()
    {
        name_thread(name);
    }
}

/// Names the calling thread in the tool. The default name is the thread's [`std::thread`] name.
pub fn name_thread(name: &str) {
    if !is_heard() || attached().is_none() {
        return;
    }
    // SAFETY: the slot has this type.
    if let Some(set) = unsafe { CORE.function::<NameOsThread>(14) } {
        // SAFETY: the argument is a NUL-terminated string.
        unsafe { set(state::thread() as u32, c_string(name).as_ptr()) };
    }
}
