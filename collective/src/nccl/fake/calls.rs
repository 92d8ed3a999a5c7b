//! Functions that the NCCL library exports, as implemented by the emulation.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};

use super::numbers::{decode, element_bytes};
use super::{DEPTH, FakeComm, Op, PENDING, SCRIPTS, enqueue, issue, locked};
use crate::nccl::sys::{Comm, Config, CudaStream, Nccl, Status, UniqueId, status};

unsafe extern "C" fn get_version(version: *mut c_int) -> Status {
    // SAFETY: the caller's pointer is valid.
    unsafe { *version = 22_809 };
    status::SUCCESS
}

unsafe extern "C" fn get_unique_id(id: *mut UniqueId) -> Status {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut bytes = [7; 128];
    bytes[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_ne_bytes());
    // SAFETY: the caller's pointer is valid.
    unsafe { *id = UniqueId(bytes) };
    status::SUCCESS
}

unsafe extern "C" fn init_rank_config(
    comm: *mut Comm,
    world: c_int,
    id: UniqueId,
    rank: c_int,
    config: *mut Config,
) -> Status {
    // SAFETY: the caller's pointers are valid.
    let (config, name) = unsafe { (&*config, CStr::from_ptr((*config).comm_name)) };
    let name = name.to_string_lossy();
    let known = name.split(['#', '/', ',']).next().unwrap_or_default();
    let Some(script) = locked(&SCRIPTS).as_ref().and_then(|scripts| scripts.get(known).cloned()) else {
        return status::INVALID_ARGUMENT;
    };
    if (config.size, config.magic, config.blocking) != (size_of::<Config>(), 0xcafe_beef, 0) {
        script.violated(format!("{config:?}"));
    }
    if let Some((_, status)) = script.refused.filter(|(name, _)| *name == "ncclCommInitRankConfig") {
        return status;
    }
    *locked(&script.joined).entry(id.0).or_default() += 1;
    let made = Box::new(FakeComm {
        id: id.0,
        rank: rank as usize,
        world: world as usize,
        polls_left: AtomicI64::new(script.init_polls),
        is_joined: AtomicBool::new(false),
        has_connected: AtomicBool::new(false),
        issued: AtomicU64::new(0),
        places: Mutex::default(),
        is_aborted: AtomicBool::new(false),
        has_ended: AtomicBool::new(false),
        error: AtomicI32::new(status::SUCCESS),
        factors: Mutex::default(),
        script,
    });
    made.log(format!("ncclCommInitRankConfig({rank} of {world})"));
    // SAFETY: the caller's pointer is valid.
    unsafe { *comm = Box::into_raw(made).cast() };
    status::IN_PROGRESS
}

unsafe extern "C" fn get_async_error(comm: Comm, state: *mut Status) -> Status {
    let comm = FakeComm::of(comm);
    comm.called("ncclCommGetAsyncError");
    let joined = locked(&comm.script.joined).get(&comm.id).copied().unwrap_or_default();
    let error = comm.error.load(Ordering::SeqCst);
    let left = comm.polls_left.load(Ordering::SeqCst);
    let now = if error != status::SUCCESS {
        error
    } else if left != 0 {
        comm.polls_left.store(if left > 0 { left - 1 } else { left }, Ordering::SeqCst);
        status::IN_PROGRESS
    } else if joined < comm.world {
        status::IN_PROGRESS
    } else {
        comm.is_joined.store(true, Ordering::SeqCst);
        status::SUCCESS
    };
    // SAFETY: the caller's pointer is valid.
    unsafe { *state = now };
    status::SUCCESS
}

unsafe extern "C" fn finalize(comm: Comm) -> Status {
    let comm = FakeComm::of(comm);
    comm.log("ncclCommFinalize".to_owned());
    if let Some(refused) = comm.called("ncclCommFinalize") {
        return refused;
    }
    comm.polls_left.store(comm.script.finalize_polls, Ordering::SeqCst);
    if comm.script.finalize_polls == 0 { status::SUCCESS } else { status::IN_PROGRESS }
}

unsafe extern "C" fn destroy(comm: Comm) -> Status {
    let comm = FakeComm::of(comm);
    comm.log("ncclCommDestroy".to_owned());
    comm.called("ncclCommDestroy");
    comm.has_ended.store(true, Ordering::SeqCst);
    status::SUCCESS
}

unsafe extern "C" fn abort(comm: Comm) -> Status {
    let comm = FakeComm::of(comm);
    comm.log("ncclCommAbort".to_owned());
    comm.called("ncclCommAbort");
    comm.has_ended.store(true, Ordering::SeqCst);
    comm.is_aborted.store(true, Ordering::SeqCst);
    comm.script.changed.notify_all();
    std::thread::sleep(comm.script.abort_takes);
    status::SUCCESS
}

unsafe extern "C" fn get_error_string(_status: Status) -> *const c_char {
    c"the fake's text".as_ptr()
}

unsafe extern "C" fn get_last_error(_comm: Comm) -> *const c_char {
    c"the fake's last error".as_ptr()
}

unsafe extern "C" fn group_start() -> Status {
    DEPTH.set(DEPTH.get() + 1);
    status::SUCCESS
}

unsafe extern "C" fn group_end() -> Status {
    DEPTH.set(DEPTH.get() - 1);
    if DEPTH.get() > 0 {
        return status::SUCCESS;
    }
    enqueue(PENDING.take())
}

unsafe extern "C" fn create_pre_mul_sum(
    operator: *mut c_int,
    factor: *mut c_void,
    data_type: c_int,
    residence: c_int,
    comm: Comm,
) -> Status {
    let comm = FakeComm::of(comm);
    comm.log(format!("ncclRedOpCreatePreMulSum(type {data_type}, residence {residence})"));
    if let Some(refused) = comm.called("ncclRedOpCreatePreMulSum") {
        return refused;
    }
    // SAFETY: the caller's pointers are valid, and `factor` points to one element.
    let bytes = unsafe { std::slice::from_raw_parts(factor.cast::<u8>(), element_bytes(data_type)) };
    let mut factors = locked(&comm.factors);
    factors.push(decode(data_type, bytes)[0]);
    // SAFETY: as above.
    unsafe { *operator = 4 + factors.len() as c_int };
    status::SUCCESS
}

unsafe extern "C" fn destroy_op(operator: c_int, comm: Comm) -> Status {
    let comm = FakeComm::of(comm);
    comm.log("ncclRedOpDestroy".to_owned());
    comm.called("ncclRedOpDestroy");
    if operator - 5 >= locked(&comm.factors).len() as c_int || operator < 5 {
        comm.script.violated(format!("operator {operator} was not made"));
    }
    status::SUCCESS
}

macro_rules! operations {
    ($($function:ident = $name:literal(
        $($argument:ident: $type:ty),*
    ) $($field:ident: $value:expr),*;)*) => { $(
        unsafe extern "C" fn $function($($argument: $type,)* comm: Comm, stream: CudaStream) -> Status {
            let none = Op {
                name: $name, x: 0, y: 0, count: 0, data_type: 0, operator: 0, root: -1,
                comm: comm.expose_provenance(), stream: stream.expose_provenance(),
            };
            issue(Op { $($field: $value,)* ..none })
        }
    )* };
}

type X = *const c_void;
type Y = *mut c_void;

operations! {
    all_reduce = "ncclAllReduce"(x: X, y: Y, n: usize, t: c_int, op: c_int)
        x: x.expose_provenance(), y: y.expose_provenance(), count: n, data_type: t, operator: op;
    reduce = "ncclReduce"(x: X, y: Y, n: usize, t: c_int, op: c_int, root: c_int)
        x: x.expose_provenance(), y: y.expose_provenance(), count: n, data_type: t, operator: op, root: root;
    reduce_scatter = "ncclReduceScatter"(x: X, y: Y, n: usize, t: c_int, op: c_int)
        x: x.expose_provenance(), y: y.expose_provenance(), count: n, data_type: t, operator: op;
    broadcast = "ncclBroadcast"(x: X, y: Y, n: usize, t: c_int, root: c_int)
        x: x.expose_provenance(), y: y.expose_provenance(), count: n, data_type: t, root: root;
    all_gather = "ncclAllGather"(x: X, y: Y, n: usize, t: c_int)
        x: x.expose_provenance(), y: y.expose_provenance(), count: n, data_type: t;
    all_to_all = "ncclAlltoAll"(x: X, y: Y, n: usize, t: c_int)
        x: x.expose_provenance(), y: y.expose_provenance(), count: n, data_type: t;
    gather = "ncclGather"(x: X, y: Y, n: usize, t: c_int, root: c_int)
        x: x.expose_provenance(), y: y.expose_provenance(), count: n, data_type: t, root: root;
    scatter = "ncclScatter"(x: X, y: Y, n: usize, t: c_int, root: c_int)
        x: x.expose_provenance(), y: y.expose_provenance(), count: n, data_type: t, root: root;
    send = "ncclSend"(x: X, n: usize, t: c_int, peer: c_int)
        x: x.expose_provenance(), count: n, data_type: t, root: peer;
    recv = "ncclRecv"(y: Y, n: usize, t: c_int, peer: c_int)
        y: y.expose_provenance(), count: n, data_type: t, root: peer;
}

/// Returns the function table of library version 2.28.9.
pub(in crate::nccl) fn table() -> Nccl {
    Nccl {
        version: 22_809,
        get_version,
        get_unique_id,
        init_rank_config,
        finalize,
        destroy,
        abort,
        get_async_error,
        get_error_string,
        get_last_error,
        group_start,
        group_end,
        create_pre_mul_sum,
        destroy_op,
        all_reduce,
        reduce,
        broadcast,
        all_gather,
        reduce_scatter,
        send,
        recv,
        all_to_all: Some(all_to_all),
        gather: Some(gather),
        scatter: Some(scatter),
    }
}

/// Returns the function table of library version 2.18.
pub(in crate::nccl) fn old_table() -> Nccl {
    Nccl { version: 21_805, all_to_all: None, gather: None, scatter: None, ..table() }
}
