//! NCCL's types, status codes and the table of the NCCL functions that this crate uses.
//!
//! The codes are plain integers, so that values defined only by newer libraries are valid.

use std::ffi::{c_char, c_int, c_void};

use libloading::Library;

use crate::element::{ElementType, ReduceOp};

/// `ncclResult_t`.
pub(crate) type Status = c_int;
/// `ncclComm_t`.
pub(crate) type Comm = *mut c_void;
/// `cudaStream_t`.
pub(crate) type CudaStream = *mut c_void;

/// Codes of [`Status`].
pub(crate) mod status {
    use super::Status;

    pub const SUCCESS: Status = 0;
    pub const CUDA: Status = 1;
    pub const SYSTEM: Status = 2;
    pub const INTERNAL: Status = 3;
    pub const INVALID_ARGUMENT: Status = 4;
    pub const INVALID_USAGE: Status = 5;
    pub const REMOTE: Status = 6;
    pub const IN_PROGRESS: Status = 7;
    /// Since version 2.30.
    pub const TIMEOUT: Status = 8;
}

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId(pub [u8; 128]);

/// `ncclUint8`, used for elements that are only copied.
pub(super) const BYTES: c_int = 1;
/// `ncclSum`.
pub(super) const SUM: c_int = 0;

/// Returns the `ncclDataType_t` of an element type.
pub(super) fn data_type(element: ElementType) -> c_int {
    match element {
        ElementType::I8 => 0,
        ElementType::U8 => 1,
        ElementType::I32 => 2,
        ElementType::U32 => 3,
        ElementType::I64 => 4,
        ElementType::U64 => 5,
        ElementType::F16 => 6,
        ElementType::F32 => 7,
        ElementType::F64 => 8,
        ElementType::Bf16 => 9,
        ElementType::F8E4M3 => 10,
        ElementType::F8E5M2 => 11,
    }
}

/// Returns the reason why a library of this version does not reduce elements of this type on GPUs of this compute
/// capability, or `None` if it does.
pub(super) fn unsupported(
    element: ElementType,
    version: c_int,
    capability: Option<(u32, u32)>,
) -> Option<String> {
    if !element.is_f8() {
        return None;
    }
    let name = element.name();
    if version < 22_400 {
        let version = super::version_text(version);
        return Some(format!(
            "NCCL {version} cannot reduce {name}; install 2.24 or newer, or convert to bf16"
        ));
    }
    let (major, minor) = capability.filter(|capability| *capability < (9, 0))?;
    Some(format!(
        "NCCL reduces {name} only on GPUs of compute capability 9.0 or higher, but this GPU has {major}.{minor}; \
         convert to bf16"
    ))
}

/// Returns the `ncclRedOp_t` of an operator.
pub(super) fn operator(operator: ReduceOp) -> c_int {
    match operator {
        ReduceOp::Sum => SUM,
        ReduceOp::Prod => 1,
        ReduceOp::Max => 2,
        ReduceOp::Min => 3,
        ReduceOp::Avg => 4,
    }
}

/// `NCCL_CONFIG_UNDEF_INT`: the library or the environment selects the value.
const UNSET: c_int = c_int::MIN;

/// `ncclConfig_t` of version 2.28.9. An older library reads only the fields that `size` covers. A newer library uses
/// defaults for later fields, according to `version`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Config {
    pub size: usize,
    pub magic: u32,
    pub version: u32,
    pub blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    pub split_share: c_int,
    traffic_class: c_int,
    pub comm_name: *const c_char,
    collnet_enable: c_int,
    cta_policy: c_int,
    shrink_share: c_int,
    nvls_ctas: c_int,
    channels_per_net_peer: c_int,
    nvlink_centric_sched: c_int,
}

impl Config {
    /// Returns the configuration of a communicator that shares its resources with the communicators split from it.
    /// `name` must live as long as the communicator.
    pub fn new(name: *const c_char, is_blocking: bool) -> Self {
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: 22_809,
            blocking: is_blocking.into(),
            cga_cluster_size: UNSET,
            min_ctas: UNSET,
            max_ctas: UNSET,
            net_name: std::ptr::null(),
            split_share: 1,
            traffic_class: UNSET,
            comm_name: name,
            collnet_enable: UNSET,
            cta_policy: UNSET,
            shrink_share: UNSET,
            nvls_ctas: UNSET,
            channels_per_net_peer: UNSET,
            nvlink_centric_sched: UNSET,
        }
    }
}

macro_rules! table {
    ($($name:ident = $symbol:literal fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Table of the NCCL functions that this crate uses. The NCCL documentation defines the contract of each
        /// function.
        #[derive(Debug, Clone)]
        pub(crate) struct Nccl {
            /// Version code returned by `ncclGetVersion`; 22809 means 2.28.9.
            pub version: c_int,
            $(pub $name: unsafe extern "C" fn($($argument),*) -> table!(@ $($result)?),)*
        }

        impl Nccl {
            /// Loads the functions from a library. If a function is missing, fails with its name. The library must stay
            /// loaded.
            pub(super) fn of(library: &Library) -> Result<Self, &'static str> {
                // SAFETY: the NCCL functions with these names have these signatures.
                unsafe {
                    Ok(Self {
                        version: 0,
                        $($name: *library.get($symbol.as_bytes()).map_err(|_| $symbol)?,)*
                    })
                }
            }
        }
    };
    (@ $result:ty) => { $result };
    (@) => { Status };
}

table! {
    get_version = "ncclGetVersion" fn(*mut c_int);
    get_unique_id = "ncclGetUniqueId" fn(*mut UniqueId);
    init_rank_config = "ncclCommInitRankConfig" fn(*mut Comm, c_int, UniqueId, c_int, *mut Config);
    split = "ncclCommSplit" fn(Comm, c_int, c_int, *mut Comm, *mut Config);
    destroy = "ncclCommDestroy" fn(Comm);
    abort = "ncclCommAbort" fn(Comm);
    get_async_error = "ncclCommGetAsyncError" fn(Comm, *mut Status);
    get_error_string = "ncclGetErrorString" fn(Status) -> *const c_char;
    get_last_error = "ncclGetLastError" fn(Comm) -> *const c_char;
    group_start = "ncclGroupStart" fn();
    group_end = "ncclGroupEnd" fn();
    all_reduce = "ncclAllReduce" fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, CudaStream);
    reduce = "ncclReduce" fn(*const c_void, *mut c_void, usize, c_int, c_int, c_int, Comm, CudaStream);
    broadcast = "ncclBroadcast" fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, CudaStream);
    all_gather = "ncclAllGather" fn(*const c_void, *mut c_void, usize, c_int, Comm, CudaStream);
    reduce_scatter = "ncclReduceScatter" fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, CudaStream);
    send = "ncclSend" fn(*const c_void, usize, c_int, c_int, Comm, CudaStream);
    recv = "ncclRecv" fn(*mut c_void, usize, c_int, c_int, Comm, CudaStream);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f8_needs_a_new_library_and_hopper() {
        assert_eq!(unsupported(ElementType::F8E4M3, 22_809, Some((9, 0))), None);
        assert_eq!(unsupported(ElementType::F8E5M2, 22_400, None), None);
        assert_eq!(unsupported(ElementType::Bf16, 21_800, Some((8, 0))), None);
        assert_eq!(
            unsupported(ElementType::F8E5M2, 22_105, Some((9, 0))).as_deref(),
            Some("NCCL 2.21.5 cannot reduce F8E5M2; install 2.24 or newer, or convert to bf16")
        );
        let old = "NCCL reduces F8E4M3 only on GPUs of compute capability 9.0 or higher, but this GPU has 8.9; convert to bf16";
        assert_eq!(unsupported(ElementType::F8E4M3, 22_809, Some((8, 9))).as_deref(), Some(old));
    }
}
