//! Functions that the NCCL library exports, as implemented by the emulation.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{DEPTH, FakeComm, Op, PENDING, SCRIPTS, Script, enqueue, issue, locked};
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
    check_config(&script, config, false);
    if let Some((_, status)) = script.refused.filter(|(name, _)| *name == "ncclCommInitRankConfig") {
        return status;
    }
    let made = FakeComm::new(script, id.0, (rank as usize, world as usize), None);
    made.log(format!("ncclCommInitRankConfig({rank} of {world})"));
    // SAFETY: the caller's pointer is valid.
    unsafe { *comm = Box::into_raw(made).cast() };
    status::IN_PROGRESS
}

fn check_config(script: &Script, config: &Config, is_blocking: bool) {
    let wanted = (size_of::<Config>(), 0xcafe_beef, is_blocking.into(), 1);
    if (config.size, config.magic, config.blocking, config.split_share) != wanted {
        script.violated(format!("{config:?}"));
    }
}

/// Returns success although the split continues in the background, as NCCL does.
unsafe extern "C" fn split(
    parent: Comm,
    color: c_int,
    key: c_int,
    comm: *mut Comm,
    config: *mut Config,
) -> Status {
    let parent = FakeComm::of(parent);
    parent.log(format!("ncclCommSplit({color}, {key})"));
    if let Some(refused) = parent.called("ncclCommSplit") {
        return refused;
    }
    // SAFETY: the caller's pointer is valid.
    check_config(&parent.script, unsafe { &*config }, true);
    let mut id = parent.id;
    id[127] += 1;
    *locked(&parent.creating) = id;
    parent.polls_left.store(parent.script.split_polls, Ordering::SeqCst);
    parent.is_joined.store(false, Ordering::SeqCst);
    let made = FakeComm::new(Arc::clone(&parent.script), id, (parent.rank, parent.world), Some(parent));
    // SAFETY: the caller's pointer is valid.
    unsafe { *comm = Box::into_raw(made).cast() };
    status::SUCCESS
}

unsafe extern "C" fn get_async_error(comm: Comm, state: *mut Status) -> Status {
    let comm = FakeComm::of(comm);
    comm.called("ncclCommGetAsyncError");
    let creating = *locked(&comm.creating);
    let joined = locked(&comm.script.joined).get(&creating).copied().unwrap_or_default();
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

unsafe extern "C" fn destroy(comm: Comm) -> Status {
    let comm = FakeComm::of(comm);
    comm.log("ncclCommDestroy".to_owned());
    if let Some(refused) = comm.called("ncclCommDestroy") {
        return refused;
    }
    while comm.script.destroy_hangs && !comm.is_aborted.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    comm.has_ended.store(true, Ordering::SeqCst);
    status::SUCCESS
}

unsafe extern "C" fn abort(comm: Comm) -> Status {
    let comm = FakeComm::of(comm);
    comm.log("ncclCommAbort".to_owned());
    comm.called("ncclCommAbort");
    if comm.running.load(Ordering::SeqCst) > 0 {
        comm.script.violated(format!("ncclCommAbort on rank {} during an operation", comm.rank));
    }
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
        split,
        destroy,
        abort,
        get_async_error,
        get_error_string,
        get_last_error,
        group_start,
        group_end,
        all_reduce,
        reduce,
        broadcast,
        all_gather,
        reduce_scatter,
        send,
        recv,
    }
}

/// Returns the function table of library version 2.18.
pub(in crate::nccl) fn old_table() -> Nccl {
    Nccl { version: 21_805, ..table() }
}
