//! [`CommunicatorOptions`].

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What moves a communicator's data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendChoice {
    /// The best for the devices of all ranks: for GPUs [`Self::Nccl`], and [`Self::Peer`] for what it does faster where the ranks
    /// reach each other's memory; [`Self::Host`] for emulated devices.
    #[default]
    Auto,
    /// NVIDIA's library, of version 2.18 or newer, which is searched for when a program asks for it: see
    /// [`nccl_library`](crate::nccl_library).
    ///
    /// - Every rank needs a thread of its own: the first exchange between ranks connects them, and the call waits until the
    ///   other ranks make it too, at most for the operation's time.
    /// - Operations are captured in graphs where each device has a process of its own. In a graph they have no deadline; a rank
    ///   that is lost ends them nevertheless. The [`Work`](crate::Work) of a captured operation is done when it is captured.
    /// - Sums of several ranks may differ from those of [`Self::Host`] in the last bits, as NCCL chooses the order of the
    ///   additions. All ranks get the same bits.
    /// - NCCL's environment variables hold. `NCCL_SOCKET_IFNAME=lo` keeps the ranks of one host off the network, where others
    ///   could connect to them; `NCCL_LAUNCH_ORDER_IMPLICIT=1` lets a device with several communicators run their operations
    ///   in the order of the calls; `NCCL_DEBUG=INFO` shows what NCCL does. `NCCL_COMM_BLOCKING` must not be set: calls
    ///   would wait without a deadline.
    Nccl,
    /// Kernels that read the memory of the other ranks over the links between the devices: for up to 8 ranks of one host, whose
    /// devices reach each other's memory, as threads or as processes. The kernels are Rust, like those of programs.
    ///
    /// - It does all operations but `send` and `recv`, and reductions of all types but those of floating point of 8 bits. These, and
    ///   groups that have one of them, are left to [`Self::Nccl`] on GPUs, if there is NCCL, and to [`Self::Host`] on emulated
    ///   devices.
    /// - Reductions have the bits of [`Self::Host`], on any devices.
    /// - Operations are captured in graphs, with their deadlines, also by several ranks of one process.
    /// - Every rank needs a stream that runs beside those of the others, as those of different devices do.
    Peer,
    /// Threads of the host, in memory and over sockets; for emulated devices.
    Host,
}

/// How a communicator is made and works. All ranks pass the same, but for the address and the folder.
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
    /// In place of the library, on emulated devices.
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
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The communicator's name in errors and in the store: `world` by default. Communicators of one store that are made at
    /// the same time need names of their own.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The time of each operation from when its stream comes to it: 5 minutes by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The time in which all ranks must meet: 5 minutes by default.
    pub fn init_timeout(mut self, timeout: Duration) -> Self {
        self.init_timeout = timeout;
        self
    }

    /// What moves the data.
    pub fn backend(mut self, backend: BackendChoice) -> Self {
        self.backend = backend;
        self
    }

    /// Whether ranks compare each operation before its data moves. Without, they compare when data that does not fit arrives,
    /// and at a timeout. It costs a message to each rank for each operation.
    pub fn checked(mut self, is_checked: bool) -> Self {
        self.is_checked = is_checked;
        self
    }

    /// The address of this host by which processes of other ranks reach this one. By default it is 127.0.0.1 if all ranks
    /// share the host; else that on the network by which this host reaches the server of the store. Where ranks of several
    /// hosts meet in a [`FileStore`](crate::store::FileStore), it must be set.
    pub fn address(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Whether several ranks may use one GPU: with [`BackendChoice::Peer`] alone, for tests on a machine with one. Kernels of two ranks
    /// wait for each other, so they must fit on the GPU together; `send`, `recv` and what else Peer has no kernel for are refused.
    pub fn shared_gpu(mut self, is_allowed: bool) -> Self {
        self.shares_gpu = is_allowed;
        self
    }

    /// How many operations the flight recorder keeps: 1024 by default.
    pub fn recorded(mut self, operations: usize) -> Self {
        self.recorded = operations;
        self
    }

    /// A folder into which each rank writes its flight record when an operation fails: `NAME-rankN.json`. None by default.
    pub fn dump_to(mut self, folder: impl Into<PathBuf>) -> Self {
        self.dump_to = Some(folder.into());
        self
    }
}
