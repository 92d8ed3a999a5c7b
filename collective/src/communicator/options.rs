//! [`CommunicatorOptions`]: options of a communicator. [`BackendChoice`]: the selection of its backend.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Backend that transfers a communicator's data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendChoice {
    /// Selects the best backend for the devices of all ranks. GPUs use [`Self::Nccl`]; if the ranks can access each
    /// other's memory, operations that are faster with [`Self::Peer`] use that backend. Emulated devices use
    /// [`Self::Host`].
    #[default]
    Auto,
    /// NVIDIA's NCCL library, version 2.18 or later. The library is located on first use; see
    /// [`nccl_library`](crate::nccl_library).
    ///
    /// - Every rank requires its own thread. The first exchange between two ranks establishes the connection between
    ///   them. It blocks until the other ranks also make the call, but no longer than the timeout of the operation.
    /// - Operations can be captured into graphs if each device belongs to a different process. In a graph, operations
    ///   have no deadline, but the loss of a rank still ends them. The [`Work`](crate::Work) of a captured operation is
    ///   complete as soon as the operation has been captured.
    /// - Sums over several ranks can differ from the sums that [`Self::Host`] computes in the last bits, because NCCL
    ///   selects the order of the additions. The results are bit-identical on all ranks.
    /// - NCCL's environment variables apply. `NCCL_SOCKET_IFNAME=lo` restricts the ranks of one host to the loopback
    ///   interface, so that processes on the network cannot connect to them. `NCCL_LAUNCH_ORDER_IMPLICIT=1` lets a
    ///   device with several communicators run their operations in call order. `NCCL_DEBUG=INFO` logs NCCL's activity.
    ///   `NCCL_COMM_BLOCKING` and `NCCL_COMM_SPLIT_SHARE_RESOURCES` must not be set, because calls could then block
    ///   past their deadlines.
    Nccl,
    /// Kernels that access the memory of other ranks directly, over the links between the devices (peer-to-peer). This
    /// backend supports up to 8 ranks on one host, in threads or processes, if their devices have peer access.
    ///
    /// - It supports all operations except `send` and `recv`, and reductions of all types except 8-bit floating point.
    ///   Unsupported operations, and groups that contain one, run on [`Self::Nccl`] on GPUs (if NCCL is available) and
    ///   on [`Self::Host`] on emulated devices.
    /// - Reductions are bit-identical to [`Self::Host`] on all devices.
    /// - Operations can be captured into graphs and keep their deadlines there, even if several ranks share a process.
    /// - The streams of all ranks must be able to run concurrently, as streams of different devices do.
    Peer,
    /// Threads on the host that transfer data through memory and sockets; only for emulated devices.
    Host,
}

/// Options of a communicator. All ranks must pass the same values, except for the address and the folder of the flight
/// records.
///
/// ```
/// use std::time::Duration;
/// use warpsmith_collective::CommunicatorOptions;
///
/// let options = CommunicatorOptions::new().name("model").timeout(Duration::from_secs(30)).checked(true);
/// ```
#[derive(Debug, Clone)]
pub struct CommunicatorOptions {
    pub(crate) name: String,
    pub(crate) timeout: Duration,
    pub(crate) init_timeout: Duration,
    pub(crate) backend: BackendChoice,
    pub(crate) is_checked: bool,
    pub(crate) address: Option<IpAddr>,
    pub(crate) dump_to: Option<PathBuf>,
    pub(crate) shares_gpu: bool,
    /// Replacement for the NCCL library on emulated devices.
    #[cfg(test)]
    pub(crate) nccl: Option<&'static crate::nccl::Nccl>,
}

impl Default for CommunicatorOptions {
    fn default() -> Self {
        Self {
            name: "world".to_owned(),
            timeout: Duration::from_secs(300),
            init_timeout: Duration::from_secs(300),
            backend: BackendChoice::Auto,
            is_checked: false,
            address: None,
            dump_to: None,
            shares_gpu: false,
            #[cfg(test)]
            nccl: None,
        }
    }
}

impl CommunicatorOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the communicator's name in errors and in the store; the default is `world`. Communicators that are created
    /// concurrently through the same store must have distinct names.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the timeout of each operation; it starts when the rank's stream reaches the operation. The default is 5
    /// minutes.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the timeout for the rendezvous of all ranks. The default is 5 minutes.
    pub fn init_timeout(mut self, timeout: Duration) -> Self {
        self.init_timeout = timeout;
        self
    }

    /// Sets the backend that transfers the data.
    pub fn backend(mut self, backend: BackendChoice) -> Self {
        self.backend = backend;
        self
    }

    /// Sets whether the ranks compare each collective operation before its data moves. The comparison costs one message
    /// to each other rank per operation. Otherwise, ranks compare operations only when mismatched data arrives and when
    /// an operation times out. `send` and `recv` are compared only in these two cases, regardless of this setting.
    pub fn checked(mut self, is_checked: bool) -> Self {
        self.is_checked = is_checked;
        self
    }

    /// Sets the address at which other ranks can reach this process. The default is 127.0.0.1 if all ranks share the
    /// host; otherwise it is the address of the interface that routes to the store's server.
    pub fn address(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Allows several ranks to share one GPU, for tests on a single-GPU machine. Requires [`BackendChoice::Peer`] or
    /// [`BackendChoice::Nccl`].
    ///
    /// With Peer, the kernels of these ranks wait for each other, so they must all be resident at the same time;
    /// `send`, `recv` and other operations without a Peer kernel fail. With Nccl, each rank must be a process with its
    /// own value of the environment variable `NCCL_HOSTID`; NCCL then treats the ranks as ranks on different hosts.
    pub fn shared_gpu(mut self, is_allowed: bool) -> Self {
        self.shares_gpu = is_allowed;
        self
    }

    /// Sets a folder to which each rank writes its flight record (`NAME-rankN.json`) when an operation fails. By
    /// default, no flight record is written.
    pub fn dump_to(mut self, folder: impl Into<PathBuf>) -> Self {
        self.dump_to = Some(folder.into());
        self
    }
}
