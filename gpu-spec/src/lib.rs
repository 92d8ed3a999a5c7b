//! ABI metadata shared by kernels and the host runtime.
//!
//! `#[kernel]` emits one [`KernelSpec`] for every kernel instance. The runtime, the emulator and the tuner read it. The
//! crate contains only data types. It is `no_std`, depends only on `bytemuck` (for its traits), and compiles for both
//! the host and the GPU.
//!
//! | module | contents |
//! | --- | --- |
//! | [`kernel`] | kernel instances: names, parameters, limits, entry point on the emulated device |
//! | [`device_copy`] | types whose values can be stored in device memory |
//! | [`extents`] | extents of 2-D and 3-D views, and the launch shapes that their claims allow |
//! | `finding` | findings of `warpsmith check` |
//! | [`image`] | GPU images: their parts, the code of the parts, and a record of every kernel |
//! | [`lengths`] | length requirements on a launch's arguments |
//! | [`limits`] | launch limits of a kernel |
//! | [`param`] | kinds of kernel parameters as types, so that launches are type-checked |
//! | [`signature`](mod@signature) | type signatures, which show whether two compilers refer to the same type |
//! | [`shared`] | lengths of arrays in dynamic shared memory |
//! | [`tensor_map`] | tensors in device memory, for TMA copies |
//! | [`mailbox`] | mailbox for the message of a kernel that panics |
#![no_std]
#![deny(missing_docs)]

#[cfg(not(target_arch = "nvptx64"))]
extern crate alloc;

pub mod device_copy;
pub mod extents;
#[cfg(not(target_arch = "nvptx64"))]
pub mod finding;
pub mod image;
pub mod kernel;
pub mod lengths;
pub mod limits;
pub mod mailbox;
pub mod param;
pub mod shared;
pub mod signature;
pub mod tensor_map;

pub use device_copy::DeviceCopy;
pub use extents::{Claims, Extents2, Extents3};
pub use kernel::{
    AbiParam, BytesOfLaunch, ConstArgument, HostEntry, Instance, Kernel, KernelInfo, KernelSpec, ParamKind,
    ParamSpec, PtxParam, SafeKernel, TypeArgument,
};
pub use lengths::{CheckLengths, Length, WrongLength};
pub use limits::{LaunchBounds, LaunchLimits};
pub use mailbox::Mailbox;
pub use shared::SharedLen;
pub use signature::signature;
pub use tensor_map::{Swizzle, TensorMapData, TensorMapError, TensorMapSpec};
