//! Chrome's JSON trace format, as written by PyTorch's profiler (Kineto). Chrome's viewer, Perfetto and Holistic Trace
//! Analysis (HTA) read this format.
//!
//! Some content has no equivalent in Kineto: graphs, waits inserted by the runtime, and source lines. For this content,
//! the crate uses its own categories and keys, which these tools skip.

mod event;
mod json;
mod number;
mod read;
mod records;
mod write;

pub(crate) use self::read::read;
pub use self::write::ChromeWriter;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::definitions::{Device, Loss};
use crate::event::category;
use crate::record::{SyncKind, TransferKind};

/// Maps the categories of records to Kineto's categories or, if Kineto has no matching category, to this crate's own.
const CATEGORIES: [(&str, &str); 10] = [
    (category::KERNEL, "kernel"),
    (category::COPY, "gpu_memcpy"),
    (category::MEMSET, "gpu_memset"),
    (category::DRIVER, "cuda_driver"),
    (category::RUNTIME, "cuda_runtime"),
    (category::LIBRARY, "library_call"),
    (category::OVERHEAD, "overhead"),
    (category::SYNC, "cuda_sync"),
    (category::GRAPH, "graph"),
    (category::RANGE, "user_annotation"),
];
/// Name that identifies traces written by this crate.
const OURS: &str = "warpsmith";
/// Key for the rank, which traces of multi-process programs contain.
const RANK: &str = "rank";
/// Kineto's categories of ranges. A range keeps its category if the category is one of these.
const RANGES: [&str; 3] = ["cpu_op", "python_function", "user_annotation"];
/// Categories of instant events.
const MARK: &str = "mark";
const WAIT: &str = "stream_wait";
const INSTANT: &str = "cpu_instant_event";
const MEMORY: &str = "[memory]";
/// Categories of device counters and host counters.
const OF_DEVICE: &str = "device_counter";
const OF_HOST: &str = "host_counter";
/// Key for the stream of a synchronization event.
const SYNC_STREAM: &str = "sync stream";
/// Category of the flow from a call to the work that it enqueues.
const FLOW: &str = "ac2g";

/// Returns the function that a program using the CUDA runtime API would call instead of this driver function. HTA
/// counts only calls with these names. The name of the driver function is written in addition.
fn runtime_name(function: &str) -> Option<&'static str> {
    let is_asynchronous = function.contains("Async");
    Some(match function {
        _ if function.starts_with("cuLaunchKernelEx") => "cudaLaunchKernelExC",
        _ if function.starts_with("cuLaunchKernel") || function.starts_with("cuLaunchCooperative") => {
            "cudaLaunchKernel"
        }
        _ if function.starts_with("cuMemcpy") && is_asynchronous => "cudaMemcpyAsync",
        _ if function.starts_with("cuMemset") && is_asynchronous => "cudaMemsetAsync",
        _ if function.starts_with("cuGraphLaunch") => "cudaGraphLaunch",
        _ if function.starts_with("cuStreamWaitEvent") => "cudaStreamWaitEvent",
        _ if function.starts_with("cuEventRecord") => "cudaEventRecord",
        "cuStreamSynchronize" | "cuStreamSynchronize_ptsz" | "stream_synchronize" => "cudaStreamSynchronize",
        "cuEventSynchronize" | "event_synchronize" => "cudaEventSynchronize",
        "cuCtxSynchronize" | "context_synchronize" => "cudaDeviceSynchronize",
        // This host work replaces a library call, so it corresponds to the library's kernels.
        "launch" | "host_work" => "cudaLaunchKernel",
        "copy_to_device" | "copy_to_host" | "copy_device" | "copy_peer" | "copy_rows" => "cudaMemcpyAsync",
        "memset" => "cudaMemsetAsync",
        "graph_launch" => "cudaGraphLaunch",
        "stream_wait_event" => "cudaStreamWaitEvent",
        "event_record" => "cudaEventRecord",
        _ => return None,
    })
}

/// Name prefixes of copies, by kind.
const TRANSFERS: [(TransferKind, &str); 7] = [
    (TransferKind::HostToDevice, "Memcpy HtoD"),
    (TransferKind::DeviceToHost, "Memcpy DtoH"),
    (TransferKind::DeviceToDevice, "Memcpy DtoD"),
    (TransferKind::PeerToPeer, "Memcpy PtoP"),
    (TransferKind::HostToHost, "Memcpy HtoH"),
    (TransferKind::Fill, "Memset"),
    (TransferKind::Unknown, "Memcpy"),
];
const SYNCS: [(SyncKind, &str); 4] = [
    (SyncKind::Device, "Context Sync"),
    (SyncKind::Stream, "Stream Sync"),
    (SyncKind::Event, "Event Sync"),
    (SyncKind::StreamWait, "Stream Wait Event"),
];

/// Facts about the trace as a whole, stored under the key `warpsmith`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Facts {
    about: BTreeMap<String, String>,
    loss: Loss,
    devices: BTreeMap<u32, Device>,
}
