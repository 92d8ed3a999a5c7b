//! Call counts and fault injection, for tests of the layers above the driver.
//!
//! Every method of [`Driver`](warpsmith_driver::Driver) that a program can observe is a [`Call`], which is counted and
//! can be made to fail. Without injected faults, this module does not change the driver's behavior.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use warpsmith_driver::error::{DriverError, Result, code};
use warpsmith_driver::host_function;

macro_rules! calls {
    ($($name:ident = $text:literal,)*) => {
        /// A driver method whose calls are counted and can be made to fail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each is the method of the same name")]
        pub enum Call { $($name,)* }

        impl Call {
            /// All calls.
            pub const ALL: &'static [Call] = &[$(Call::$name,)*];

            /// Returns the name of the method.
            pub const fn name(self) -> &'static str {
                match self { $(Call::$name => $text,)* }
            }
        }
    };
}

calls! {
    ContextRetain = "context_retain",
    ContextRelease = "context_release",
    ContextSynchronize = "context_synchronize",
    ContextStackLimit = "context_stack_limit",
    ContextSetStackLimit = "context_set_stack_limit",
    ContextLimit = "context_limit",
    ContextSetLimit = "context_set_limit",
    MemoryInfo = "memory_info",
    MemoryAllocate = "memory_allocate",
    MemoryFree = "memory_free",
    PinnedAllocate = "pinned_allocate",
    PinnedFree = "pinned_free",
    HostRegister = "host_register",
    HostUnregister = "host_unregister",
    HostExpose = "host_expose",
    HostConceal = "host_conceal",
    HostAddress = "host_address",
    MemoryDevice = "memory_device",
    AccessesPageable = "accesses_pageable",
    VirtualGranularity = "virtual_granularity",
    VirtualReserve = "virtual_reserve",
    VirtualRelease = "virtual_release",
    PhysicalCreate = "physical_create",
    PhysicalCreateShareable = "physical_create_shareable",
    PhysicalExport = "physical_export",
    PhysicalImport = "physical_import",
    PhysicalRelease = "physical_release",
    VirtualMap = "virtual_map",
    VirtualUnmap = "virtual_unmap",
    VirtualSetAccess = "virtual_set_access",
    StreamAllocate = "stream_allocate",
    StreamFree = "stream_free",
    StreamPoolInfo = "stream_pool_info",
    StreamPoolTrim = "stream_pool_trim",
    PeerCanAccess = "peer_can_access",
    PeerEnable = "peer_enable",
    ProcessMemory = "process_memory",
    StreamPriorities = "stream_priorities",
    StreamCreate = "stream_create",
    StreamUniqueId = "stream_unique_id",
    StreamPriority = "stream_priority",
    StreamDestroy = "stream_destroy",
    StreamQuery = "stream_query",
    StreamSynchronize = "stream_synchronize",
    StreamWaitEvent = "stream_wait_event",
    HostFunction = "host_function",
    HostWork = "host_work",
    EventCreate = "event_create",
    EventCreateShared = "event_create_shared",
    EventExport = "event_export",
    EventImport = "event_import",
    EventDestroy = "event_destroy",
    EventRecord = "event_record",
    EventQuery = "event_query",
    EventSynchronize = "event_synchronize",
    EventElapsed = "event_elapsed",
    CopyToDevice = "copy_to_device",
    CopyToHost = "copy_to_host",
    CopyDevice = "copy_device",
    CopyPeer = "copy_peer",
    CopyRows = "copy_rows",
    Memset = "memset",
    ModuleLoad = "module_load",
    ModuleUnload = "module_unload",
    ModuleFunction = "module_function",
    ModuleGlobal = "module_global",
    Link = "link",
    FunctionAttributes = "function_attributes",
    TensorMap = "tensor_map",
    FunctionAllowShared = "function_allow_shared",
    FunctionOccupancy = "function_occupancy",
    FunctionMaxCluster = "function_max_cluster",
    FunctionResidentClusters = "function_resident_clusters",
    FunctionAllowLargeClusters = "function_allow_large_clusters",
    Launch = "launch",
    CaptureBegin = "capture_begin",
    CaptureEnd = "capture_end",
    CaptureStatus = "capture_status",
    CaptureHostFunction = "capture_host_function",
    GraphCreate = "graph_create",
    GraphDestroy = "graph_destroy",
    GraphClone = "graph_clone",
    GraphNodeInClone = "graph_node_in_clone",
    GraphNodes = "graph_nodes",
    GraphEdges = "graph_edges",
    GraphNode = "graph_node",
    GraphAdd = "graph_add",
    GraphCondition = "graph_condition",
    GraphAddConditional = "graph_add_conditional",
    GraphInstantiate = "graph_instantiate",
    GraphExecDestroy = "graph_exec_destroy",
    GraphUpload = "graph_upload",
    GraphLaunch = "graph_launch",
    GraphExecUpdate = "graph_exec_update",
    GraphExecSet = "graph_exec_set",
}

/// An injected fault.
#[derive(Debug)]
struct Order {
    call: Call,
    /// Number of calls that succeed before the call that fails.
    after: u64,
    code: u32,
}

/// Counts and injected faults of one driver.
#[derive(Debug)]
pub(super) struct Control {
    counts: Vec<AtomicU64>,
    /// True if injected faults are pending. If false, calls do not have to acquire a lock.
    any_orders: AtomicBool,
    orders: Mutex<Vec<Order>>,
    /// Calls that failed because of fault injection.
    failed: Mutex<Vec<Call>>,
    /// Delay before every task of every stream, in microseconds.
    delay_us: AtomicU64,
    /// Number of holds that prevent streams from starting tasks.
    holds: Mutex<usize>,
    released: Condvar,
    /// For each wait to be skipped, the number of waits that take effect before it.
    skips: Mutex<Vec<u64>>,
}

impl Control {
    pub(super) fn new() -> Self {
        Self {
            counts: Call::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            any_orders: AtomicBool::new(false),
            orders: Mutex::new(Vec::new()),
            failed: Mutex::default(),
            delay_us: AtomicU64::new(0),
            holds: Mutex::new(0),
            released: Condvar::new(),
            skips: Mutex::default(),
        }
    }

    /// Counts a call. Returns an error if the call comes from a host function or if a fault was injected.
    pub(super) fn enter(&self, call: Call) -> Result<()> {
        self.enter_to_wait(call)?
    }

    /// Counts a call that must wait before an injected fault takes effect. The outer result is an error only if the
    /// call must not wait because it comes from a host function. The inner result contains the injected fault.
    pub(super) fn enter_to_wait(&self, call: Call) -> Result<Result<()>> {
        self.counts[call as usize].fetch_add(1, Ordering::Relaxed);
        if host_function::is_running() {
            return Err(driver_error(call.name(), code::NOT_PERMITTED, host_function::REFUSED));
        }
        Ok(self.ordered(call))
    }

    /// Returns an error if a fault was injected for this call.
    fn ordered(&self, call: Call) -> Result<()> {
        if !self.any_orders.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let mut due = None;
        for (index, order) in orders.iter_mut().enumerate().filter(|(_, order)| order.call == call) {
            match order.after.checked_sub(1) {
                Some(after) => order.after = after,
                None => due = due.or(Some(index)),
            }
        }
        match due {
            Some(index) => {
                let order = orders.remove(index);
                self.any_orders.store(!orders.is_empty(), Ordering::Relaxed);
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).push(call);
                Err(driver_error(call.name(), order.code, "the test injected this failure"))
            }
            None => Ok(()),
        }
    }

    pub(super) fn count(&self, call: Call) -> u64 {
        self.counts[call as usize].load(Ordering::Relaxed)
    }

    pub(super) fn reset_counts(&self) {
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    pub(super) fn fail(&self, call: Call, after: u64, code: u32) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.push(Order { call, after, code });
        self.any_orders.store(true, Ordering::Relaxed);
    }

    pub(super) fn forget(&self) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.any_orders.store(false, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) -> Vec<Call> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[cfg(feature = "testing")]
    pub(super) fn skip_wait(&self, after: u64) {
        self.skips.lock().unwrap_or_else(PoisonError::into_inner).push(after);
    }

    /// Returns true if this wait of a stream for an event must be skipped. This function must be called exactly once
    /// per wait.
    pub(super) fn skips_wait(&self) -> bool {
        let mut skips = self.skips.lock().unwrap_or_else(PoisonError::into_inner);
        let due = skips.contains(&0);
        skips.retain(|after| *after > 0);
        skips.iter_mut().for_each(|after| *after -= 1);
        due
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.delay_us.store(delay.as_micros() as u64, Ordering::Relaxed);
    }

    pub(super) fn hold(&self) {
        *self.holds.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    pub(super) fn release(&self) {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        *holds = holds.saturating_sub(1);
        self.released.notify_all();
    }

    /// Applies holds and delays. A stream calls this method before each task.
    pub(super) fn before_task(&self, stream_delay: Duration) {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        while *holds > 0 {
            holds = self.released.wait(holds).unwrap_or_else(PoisonError::into_inner);
        }
        drop(holds);
        let delay = stream_delay + Duration::from_micros(self.delay_us.load(Ordering::Relaxed));
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
    }
}

/// Creates an error in the form of a CUDA error.
pub(super) fn driver_error(call: &'static str, code: u32, text: impl Into<String>) -> DriverError {
    let name = match code {
        code::INVALID_VALUE => "CUDA_ERROR_INVALID_VALUE",
        code::OUT_OF_MEMORY => "CUDA_ERROR_OUT_OF_MEMORY",
        code::PEER_ACCESS_UNSUPPORTED => "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
        code::INVALID_HANDLE => "CUDA_ERROR_INVALID_HANDLE",
        code::NOT_FOUND => "CUDA_ERROR_NOT_FOUND",
        code::NOT_READY => "CUDA_ERROR_NOT_READY",
        code::CONTEXT_IS_DESTROYED => "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        code::ASSERT => "CUDA_ERROR_ASSERT",
        code::LAUNCH_FAILED => "CUDA_ERROR_LAUNCH_FAILED",
        code::NOT_PERMITTED => "CUDA_ERROR_NOT_PERMITTED",
        code::NOT_SUPPORTED => "CUDA_ERROR_NOT_SUPPORTED",
        code::ILLEGAL_STATE => "CUDA_ERROR_ILLEGAL_STATE",
        code::COOPERATIVE_LAUNCH_TOO_LARGE => "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        code::STREAM_CAPTURE_UNSUPPORTED => "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        code::STREAM_CAPTURE_INVALIDATED => "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        code::STREAM_CAPTURE_MERGE => "CUDA_ERROR_STREAM_CAPTURE_MERGE",
        code::STREAM_CAPTURE_UNMATCHED => "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        code::STREAM_CAPTURE_UNJOINED => "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        code::STREAM_CAPTURE_ISOLATION => "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        code::CAPTURED_EVENT => "CUDA_ERROR_CAPTURED_EVENT",
        code::STREAM_CAPTURE_WRONG_THREAD => "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        code::INVALID_CLUSTER_SIZE => "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        _ => "CUDA_ERROR_UNKNOWN",
    };
    DriverError::Call { call, code, name: name.to_owned(), text: text.into() }
}
