//! A fake CUPTI for tests: a function table that records calls, fails on request, and delivers given records.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUcontext, CUgraphExec, CUgraphNode, CUstream};

use super::super::cupti::{
    BufferCompleted, BufferRequested, Callback, Cupti, Status, Subscriber, SubscriberParams, status,
};
use super::records::kind;
use crate::activity::{Activity, ActivitySink};

#[derive(Default)]
pub struct Fake {
    pub calls: Vec<String>,
    /// Functions that fail, with the status they return.
    pub failures: HashMap<&'static str, Status>,
    pub is_subscribed: bool,
    pub kinds: BTreeSet<u32>,
    /// Driver functions that are disabled.
    pub left_out: BTreeSet<u32>,
    /// Records that the next flush delivers.
    pub records: VecDeque<Vec<u8>>,
    /// Dropped records not yet reported.
    pub dropped: usize,
    /// Number of nanoseconds by which the library's clock is ahead.
    pub ahead: i64,
    pub pushed: Vec<u64>,
    callbacks: Option<(BufferRequested, BufferCompleted)>,
}

/// State of a fake library. It is process-wide, so tests must be serialized.
pub struct OfProcess<T> {
    turn: Mutex<()>,
    state: Mutex<Option<T>>,
}

impl<T: Default> OfProcess<T> {
    pub const fn new() -> Self {
        Self { turn: Mutex::new(()), state: Mutex::new(None) }
    }

    /// Locks the library for a test and resets its state.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(T::default());
        turn
    }

    /// Reads or changes the state.
    pub fn with<R>(&self, function: impl FnOnce(&mut T) -> R) -> R {
        function(self.state.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
    }
}

static FAKE: OfProcess<Fake> = OfProcess::new();

/// Locks the library and the buffers for a test.
pub fn turn() -> MutexGuard<'static, ()> {
    FAKE.turn()
}

/// Reads or changes the library's state.
pub fn with<R>(function: impl FnOnce(&mut Fake) -> R) -> R {
    FAKE.with(function)
}

/// Records a call and returns its status.
fn call(name: &'static str, argument: impl std::fmt::Display) -> Status {
    with(|fake| {
        fake.calls.push(format!("{name}({argument})"));
        fake.failures.get(name).copied().unwrap_or(status::SUCCESS)
    })
}

pub fn table() -> Cupti {
    Cupti {
        version: 130_001,
        get_version,
        get_result_string,
        subscribe,
        unsubscribe,
        register_callbacks,
        set_attribute,
        set_thread_id_type,
        enable,
        disable,
        flush_all,
        get_next_record,
        get_num_dropped,
        get_timestamp,
        get_callback_name,
        get_context_id,
        get_stream_id,
        push_external_id,
        pop_external_id,
        enable_driver_api: Some(enable_driver_api),
        subscribe_v2: Some(subscribe_v2),
        get_error_message: None,
        get_graph_node_id: Some(get_graph_node_id),
        get_graph_exec_id: Some(get_graph_exec_id),
    }
}

/// Leaks a function table, for the lifetime of the process.
pub fn leaked(table: Cupti) -> &'static Cupti {
    Box::leak(Box::new(table))
}

unsafe extern "C" fn get_version(version: *mut u32) -> Status {
    // SAFETY: here and below, the caller's pointers are valid.
    unsafe { *version = 130_001 };
    status::SUCCESS
}

unsafe extern "C" fn get_result_string(code: Status, text: *mut *const c_char) -> Status {
    let message = CString::new(format!("fake text of {code}")).unwrap();
    // SAFETY: see above. The text is leaked.
    unsafe { *text = message.into_raw() };
    status::SUCCESS
}

unsafe extern "C" fn subscribe(subscriber: *mut Subscriber, _: Callback, _: *mut c_void) -> Status {
    let result = call("subscribe", "");
    if result != status::SUCCESS {
        return result;
    }
    if with(|fake| std::mem::replace(&mut fake.is_subscribed, true)) {
        return status::MULTIPLE_SUBSCRIBERS;
    }
    // SAFETY: see above.
    unsafe { *subscriber = std::ptr::without_provenance_mut(7) };
    status::SUCCESS
}

unsafe extern "C" fn subscribe_v2(
    _: *mut Subscriber,
    _: Callback,
    _: *mut c_void,
    params: *mut SubscriberParams,
) -> Status {
    call("subscribe_v2", "");
    let name = b"CUPTI for other\0";
    // SAFETY: see above; the buffer of the name is large enough.
    unsafe {
        assert_eq!(((*params).size, (*params).old_name_size >= 64), (32, true));
        (*params).old_name.cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), name.len());
    }
    status::MULTIPLE_SUBSCRIBERS
}

unsafe extern "C" fn unsubscribe(subscriber: Subscriber) -> Status {
    assert_eq!(subscriber.addr(), 7);
    with(|fake| fake.is_subscribed = false);
    call("unsubscribe", "")
}

unsafe extern "C" fn register_callbacks(requested: BufferRequested, completed: BufferCompleted) -> Status {
    with(|fake| fake.callbacks = Some((requested, completed)));
    call("register_callbacks", "")
}

unsafe extern "C" fn set_attribute(attribute: u32, _: *mut usize, _: *mut c_void) -> Status {
    call("set_attribute", attribute)
}

unsafe extern "C" fn set_thread_id_type(kind: u32) -> Status {
    call("set_thread_id_type", kind)
}

unsafe extern "C" fn enable(kind: u32) -> Status {
    let result = call("enable", kind);
    if result == status::SUCCESS {
        with(|fake| fake.kinds.insert(kind));
    }
    result
}

unsafe extern "C" fn disable(kind: u32) -> Status {
    with(|fake| fake.kinds.remove(&kind));
    call("disable", kind)
}

unsafe extern "C" fn enable_driver_api(number: u32, enable: u8) -> Status {
    let result = with(|fake| fake.failures.get("enable_driver_api").copied().unwrap_or(status::SUCCESS));
    if result == status::SUCCESS {
        with(|fake| if enable == 0 { fake.left_out.insert(number) } else { fake.left_out.remove(&number) });
    }
    result
}

/// Node n of graph 5 is at address n.
unsafe extern "C" fn get_graph_node_id(node: CUgraphNode, id: *mut u64) -> Status {
    // SAFETY: see above.
    unsafe { *id = 5 << 32 | node.addr() as u64 };
    call("get_graph_node_id", node.addr())
}

unsafe extern "C" fn get_graph_exec_id(exec: CUgraphExec, id: *mut u32) -> Status {
    // SAFETY: see above.
    unsafe { *id = exec.addr() as u32 };
    call("get_graph_exec_id", exec.addr())
}

unsafe extern "C" fn flush_all(flag: u32) -> Status {
    let result = call("flush_all", flag);
    let (records, callbacks) = with(|fake| (std::mem::take(&mut fake.records), fake.callbacks));
    let (requested, completed) = callbacks.expect("callbacks were registered");
    let mut records = records.into_iter().peekable();
    while records.peek().is_some() {
        let (mut buffer, mut bytes, mut most) = (std::ptr::null_mut(), 0, 1);
        // SAFETY: the pointers are to local variables.
        unsafe { requested(&mut buffer, &mut bytes, &mut most) };
        assert_eq!(most, 0, "as many as fit");
        if buffer.is_null() {
            with(|fake| fake.dropped += records.by_ref().count());
            break;
        }
        let mut valid = 0;
        while let Some(record) = records.next_if(|record| valid + record.len() <= bytes) {
            // SAFETY: the buffer has this many bytes.
            unsafe { buffer.add(valid).copy_from_nonoverlapping(record.as_ptr(), record.len()) };
            valid += record.len();
        }
        // SAFETY: the buffer was requested above. CUPTI also makes such calls from its own threads.
        unsafe { completed(std::ptr::null_mut(), 0, buffer, bytes, valid) };
    }
    result
}

/// Returns the size of a record in bytes. The fake library is newer than the version that the reader supports.
fn size(kind: u32) -> Option<usize> {
    Some(match kind {
        kind::CONCURRENT_KERNEL => 248,
        kind::MEMCPY => 112,
        kind::MEMCPY2 => 104,
        kind::MEMSET => 96,
        kind::DRIVER => 40,
        kind::SYNCHRONIZATION => 64,
        kind::OVERHEAD => 64,
        kind::EXTERNAL_CORRELATION => 24,
        UNKNOWN_KIND => 32,
        _ => return None,
    })
}

pub const UNKNOWN_KIND: u32 = 99;

unsafe extern "C" fn get_next_record(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> Status {
    const INVALID_KIND: u32 = 21;
    // SAFETY: `record` is null or points to a record in the buffer, which has `valid` bytes; buffers are aligned.
    unsafe {
        let offset = match (*record).addr() {
            0 => 0,
            address => match size((*record).cast::<u32>().read()) {
                Some(size) => address - buffer.addr() + size,
                None => return INVALID_KIND,
            },
        };
        if offset + 4 > valid {
            return status::MAX_LIMIT_REACHED;
        }
        if size(buffer.add(offset).cast::<u32>().read()).is_none() {
            return INVALID_KIND;
        }
        *record = buffer.add(offset);
    }
    status::SUCCESS
}

unsafe extern "C" fn get_num_dropped(_: CUcontext, _: u32, dropped: *mut usize) -> Status {
    // SAFETY: see above.
    unsafe { *dropped = with(|fake| std::mem::take(&mut fake.dropped)) };
    call("get_num_dropped", "")
}

unsafe extern "C" fn get_timestamp(time: *mut u64) -> Status {
    // SAFETY: see above.
    unsafe { *time = super::now().wrapping_add_signed(with(|fake| fake.ahead)) };
    status::SUCCESS
}

unsafe extern "C" fn get_callback_name(domain: u32, number: u32, name: *mut *const c_char) -> Status {
    assert_eq!(domain, 1, "the driver's");
    let text = match number {
        17 => c"cuCtxSynchronize",
        20 => c"cuMemGetInfo",
        27 => c"cuMemcpyHtoDAsync_v2",
        60 => c"cuLaunchKernel",
        _ => return 1,
    };
    // SAFETY: see above.
    unsafe { *name = text.as_ptr() };
    status::SUCCESS
}

unsafe extern "C" fn get_context_id(context: CUcontext, id: *mut u32) -> Status {
    // SAFETY: see above.
    unsafe { *id = context.addr() as u32 };
    status::SUCCESS
}

unsafe extern "C" fn get_stream_id(_: CUcontext, stream: CUstream, _: u8, id: *mut u32) -> Status {
    // SAFETY: see above.
    unsafe { *id = stream.addr() as u32 };
    status::SUCCESS
}

unsafe extern "C" fn push_external_id(kind: u32, id: u64) -> Status {
    with(|fake| fake.pushed.push(id));
    call("push_external_id", kind)
}

unsafe extern "C" fn pop_external_id(kind: u32, id: *mut u64) -> Status {
    match with(|fake| fake.pushed.pop()) {
        // SAFETY: see above.
        Some(last) => unsafe { *id = last },
        None => return 18,
    }
    call("pop_external_id", kind)
}

/// Builds a full-size record of a kind, with 32-bit and 64-bit numbers at the given offsets.
pub fn record(kind: u32, small: &[(usize, u32)], large: &[(usize, u64)]) -> Vec<u8> {
    // Poison the bytes that the reader must ignore.
    let mut bytes = vec![0xEE; size(kind).unwrap_or(32)];
    bytes[..4].copy_from_slice(&kind.to_ne_bytes());
    small.iter().for_each(|(offset, value)| bytes[*offset..offset + 4].copy_from_slice(&value.to_ne_bytes()));
    large.iter().for_each(|(offset, value)| bytes[*offset..offset + 8].copy_from_slice(&value.to_ne_bytes()));
    bytes
}

pub fn kernel(correlation: u32, start: u64, end: u64) -> Vec<u8> {
    let grid = [(52, 8), (56, 4), (60, 2), (64, 128), (68, 2), (72, 1)];
    let rest =
        [(4, 40 << 16), (40, 1), (44, 3), (48, 13), (76, 512), (80, 1024), (92, correlation), (156, 5)];
    let name = c"saxpy".as_ptr().expose_provenance() as u64;
    let times = [(16, start), (24, end), (104, name), (144, 5 << 32 | 2)];
    record(kind::CONCURRENT_KERNEL, &[&grid[..], &rest[..]].concat(), &times)
}

pub fn driver_call(function: u32, correlation: u32, start: u64, end: u64) -> Vec<u8> {
    let numbers = [(4, function), (24, 1), (28, 4321), (32, correlation), (36, 0)];
    record(kind::DRIVER, &numbers, &[(8, start), (16, end)])
}

/// Keeps records as text.
#[derive(Default)]
pub struct Kept(pub Mutex<Vec<String>>);

impl Kept {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn texts(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ActivitySink for Kept {
    fn record(&self, activity: &Activity<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{activity:?}"));
    }
}
