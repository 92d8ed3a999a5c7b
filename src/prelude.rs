//! What a program that uses devices needs: `use warpsmith::prelude::*;`.

pub use warpsmith_runtime::{
    Device, DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSliceMut, Event, Launch, Module, Stream, TypedKernel,
};
