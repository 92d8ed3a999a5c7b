//! [`CommunicatorOptions`].

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Backend that moves a communicator's data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendChoice {
    /// The best backend for the devices of all ranks. GPUs use [`Self::Nccl`], and [`Self::Peer`] where it is faster
    /// and the ranks can access each other's memory. Emulated devices use [`Self::Host`].
    #[default]
    Auto,
    /// NVIDIA's NCCL library, version 2.18 or newer. It is searched for on first use: see
    /// [`nccl_library`](crate::nccl_library).
    ///
    /// - Every rank needs its own thread. The first exchange between ranks connects them; the call blocks until the
    ///   other ranks make it too, at most for the operation's timeout.
    /// - Operations can be captured into graphs if each device has its own process. In a graph they have no deadline,
    ///   but a lost rank still ends them. The [`Work`](crate::Work) of a captured operation is done once it is
    ///   captured.
    /// - Sums over several ranks may differ from those of [`Self::Host`] in the last bits, as NCCL chooses the order of
    ///   the additions. All ranks get the same bits.
    /// - NCCL's environment variables apply. `NCCL_SOCKET_IFNAME=lo` keeps the ranks of one host off the network, where
    ///   others could connect to them. `NCCL_LAUNCH_ORDER_IMPLICIT=1` lets a device with several communicators run
    ///   their operations in call order. `NCCL_DEBUG=INFO` logs NCCL's activity. `NCCL_COMM_BLOCKING` must not be set:
    ///   calls would block without a deadline.
    Nccl,
    /// Kernels that access the memory of the other ranks over the links between the devices (peer-to-peer). For up to 8
    /// ranks on one host, as threads or processes, whose devices have peer access. The kernels are written in Rust,
    /// like those of programs.
    ///
    /// - Supports all operations except `send` and `recv`, and reductions of all types except 8-bit floating point. The
    ///   exceptions, and groups that contain one, use [`Self::Nccl`] on GPUs, if NCCL is available, and [`Self::Host`]
    ///   on emulated devices.
    /// - Reductions are bit-identical to [`Self::Host`], on any devices.
    /// - Operations can be captured into graphs, with their deadlines, also by several ranks of one process.
    /// - Every rank needs a stream that runs concurrently with those of the others, as streams of different devices do.
    Peer,
    /// Host threads, through memory and sockets; for emulated devices.
    Host,
}

/// Options of a communicator. All ranks pass the same values, except for the address and the folder.
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
    pub(crate) recorded: usize,
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
            recorded: 1024,
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

    /// Sets the communicator's name in errors and in the store: `world` by default. Communicators that are created
    /// concurrently through one store need distinct names.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the timeout of each operation, counted from when its stream reaches it: 5 minutes by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the timeout of the rendezvous of all ranks: 5 minutes by default.
    pub fn init_timeout(mut self, timeout: Duration) -> Self {
        self.init_timeout = timeout;
        self
    }

    /// Sets the backend that moves the data.
    pub fn backend(mut self, backend: BackendChoice) -> Self {
        self.backend = backend;
        self
    }

    /// Sets whether ranks compare each collective operation before its data moves. This costs one message to each rank
    /// per operation. Otherwise they compare when mismatched data arrives, and at a timeout; so they do for `send` and
    /// `recv`.
    pub fn checked(mut self, is_checked: bool) -> Self {
        self.is_checked = is_checked;
        self
    }

    /// Sets the address of this host at which processes of other ranks reach this one. By default it is 127.0.0.1 if
    /// all ranks share the host; otherwise the address of the interface that reaches the store's server. It must be set
    /// where ranks of several hosts meet in a [`FileStore`](crate::store::FileStore).
    pub fn address(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Allows several ranks to use one GPU: only with [`BackendChoice::Peer`], for tests on a single-GPU machine.
    /// Kernels of two ranks wait for each other, so they must be co-resident. `send`, `recv` and other operations
    /// without a Peer kernel are refused.
    pub fn shared_gpu(mut self, is_allowed: bool) -> Self {
        self.shares_gpu = is_allowed;
        self
    }

    /// Sets the number of operations that the flight recorder keeps: 1024 by default.
    pub fn recorded(mut self, operations: usize) -> Self {
        self.recorded = operations;
        self
    }

    /// Sets a folder into which each rank writes its flight record (`NAME-rankN.json`) when an operation fails. None by
    /// default.
    pub fn dump_to(mut self, folder: impl Into<PathBuf>) -> Self {
        self.dump_to = Some(folder.into());
        self
    }
}
