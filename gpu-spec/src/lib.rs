//! The plain data in which kernels and the host runtime meet.
//!
//! `#[kernel]` writes one [`KernelSpec`] for every instance of a kernel; the runtime, the emulator and the
//! tuner read it. Nothing here runs: the crate is `no_std`, depends on `bytemuck` alone, for its traits, and is compiled for
//! both the host and the GPU.
//!
//! | module | what it describes |
//! | --- | --- |
//! | [`kernel`] | a kernel instance: names, parameters, limits, its entry on the emulated device |
//! | [`device_copy`] | the types whose values can lie in device memory |
//! | [`extents`] | the extents of views in two and three dimensions, and the launches that their claims allow |
//! | `finding` | what `warpsmith check` finds |
//! | [`image`] | a GPU image: its parts, their code, and a record of every kernel |
//! | [`lengths`] | which lengths of a launch's arguments have to agree |
//! | [`limits`] | the launches that a kernel can have |
//! | [`param`] | the kinds of kernel parameter, as types, so that a launch is type checked |
//! | [`signature`](mod@signature) | numbers by which two compilers find out whether they mean the same type |
//! | [`shared`] | the length of a shared array that comes with a launch |
//! | [`tensor_map`] | a tensor in device memory, as tensor copies take it |
//! | [`mailbox`] | where a panicking kernel leaves its message for the host |
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
    AbiParam, BytesOfLaunch, ConstArgument, HostEntry, Instance, Kernel, KernelInfo, KernelSpec,
    MachineParam, ParamKind, ParamSpec, SafeKernel, TypeArgument,
};
pub use lengths::{CheckLengths, Length, WrongLength};
pub use limits::{LaunchBounds, LaunchLimits};
pub use mailbox::Mailbox;
pub use shared::SharedLen;
pub use signature::signature;
pub use tensor_map::{Swizzle, TensorMapData, TensorMapError, TensorMapSpec};
