//! Chrome's JSON as PyTorch's profiler (Kineto) writes it, which Chrome's viewer, Perfetto and Holistic Trace Analysis read.
//!
//! What Kineto has no word for has one of ours, which those tools skip: graphs, waits that were inserted, source lines.

mod event;
mod json;
mod number;
mod open;
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

/// The categories of Kineto, and ours for what it does not have, beside those of records.
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
/// Categories of PyTorch's profilers before 2022, and of those for other devices, with today's.
const OLD_CATEGORIES: [(&str, &str); 13] = [
    ("Kernel", "kernel"),
    ("concurrent_kernel", "kernel"),
    ("Memcpy", "gpu_memcpy"),
    ("Memset", "gpu_memset"),
    ("Runtime", "cuda_runtime"),
    ("runtime", "cuda_runtime"),
    ("xpu_runtime", "cuda_runtime"),
    ("privateuse1_runtime", "cuda_runtime"),
    ("Driver", "cuda_driver"),
    ("xpu_driver", "cuda_driver"),
    ("privateuse1_driver", "cuda_driver"),
    ("Operator", "cpu_op"),
    ("Overhead", "overhead"),
];
/// The name of the traces that we write.
const OURS: &str = "warpsmith";
/// What a trace says of itself in a program of several processes: its rank.
const RANK: &str = "rank";
/// Kineto's categories of ranges; a range that has one keeps it.
const RANGES: [&str; 3] = ["cpu_op", "python_function", "user_annotation"];
/// The categories of moments.
const MARK: &str = "mark";
const WAIT: &str = "stream_wait";
const INSTANT: &str = "cpu_instant_event";
const MEMORY: &str = "[memory]";
/// Where a counter belongs.
const OF_DEVICE: &str = "device_counter";
const OF_HOST: &str = "host_counter";
/// The stream of a synchronisation.
const SYNC_STREAM: &str = "sync stream";
/// The flow from a call to what it enqueued.
const FLOW: &str = "ac2g";

/// The name that Holistic Trace Analysis knows a call by, which counts only calls of CUDA's runtime: that of the function
/// through which a program of that runtime would do the same. The driver's function, CUDA's or the emulated device's, stands
/// beside it.
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
        // What the host does in place of a library, and what stands for the library's kernels.
        "launch" | "host_work" => "cudaLaunchKernel",
        "copy_to_device" | "copy_to_host" | "copy_device" | "copy_peer" | "copy_rows" => "cudaMemcpyAsync",
        "memset" => "cudaMemsetAsync",
        "graph_launch" => "cudaGraphLaunch",
        "stream_wait_event" => "cudaStreamWaitEvent",
        "event_record" => "cudaEventRecord",
        _ => return None,
    })
}

/// How names of copies begin.
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

/// What the whole trace says of itself, under the key `warpsmith`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Facts {
    about: BTreeMap<String, String>,
    loss: Loss,
    devices: BTreeMap<u32, Device>,
}
