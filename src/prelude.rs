//! The items that most programs need: `use warpsmith::prelude::*;`.

pub use crate::ops::ReduceExt;
pub use gpu_std::{Instance, SharedLen};
pub use warpsmith_runtime::{
    Device, DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSliceMut, Error, Event, GpuImage, Graph, Launch,
    Module, PinnedBuffer, PreparedLaunch, Stream, TypedKernel,
};
