//! Tests of kernels that require equal lengths. Every way to launch such a kernel must compare the lengths, and must
//! launch nothing on a mismatch.
//!
//! The kernel is hand-written, under the same conditions as those of `common`.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see above")]

use std::ffi::c_void;

use crate::common::*;
use gpu_spec::param::{Slice, SliceMut};
use gpu_spec::{Kernel, KernelSpec, Length, ParamKind, ParamSpec, SafeKernel, WrongLength};
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{DeviceBuffer, Error, Graph, Launch, LaunchConfig, LaunchError};

/// Kernel `#[kernel(same_len(x, y, launch))] fn same(x: &[u32], y: DisjointMut<u32>) {}`.
struct Same;

unsafe fn nothing(_: *const *const c_void) {}

unsafe fn lengths(args: *const *const c_void, extent: Option<[u64; 3]>) -> Result<(), WrongLength> {
    let length = |name, index| {
        let len = unsafe { (*args.add(index)).cast::<u64>().read() };
        Some(Length { name: Some(name), sides: [len, 1, 1], items: 1 })
    };
    Length::all_agree(&[
        length("x", 1),
        length("y", 3),
        extent.map(|sides| Length { name: None, sides, items: 1 }),
    ])
}

unsafe impl Kernel for Same {
    type Params = (Slice<u32>, SliceMut<u32>);

    fn spec() -> &'static KernelSpec {
        const fn param(name: &'static str, kind: ParamKind) -> ParamSpec {
            ParamSpec { name, kind, type_name: "", size: 4, align: 4, signature: 0 }
        }
        const PARAMS: &[ParamSpec] = &[param("x", ParamKind::Slice), param("y", ParamKind::SliceMut)];
        static SPEC: KernelSpec = {
            let mut spec = KernelSpec::new("test-kernels", "0.0.0", "same", PARAMS, nothing);
            spec.lengths = Some(lengths);
            spec
        };
        &SPEC
    }
}
unsafe impl SafeKernel for Same {}

/// Asserts that the launch failed because of lengths that the error names.
fn refused<T>(result: Result<T, Error>, words: [&str; 2]) {
    let error = result.err().expect("the lengths differ");
    assert!(matches!(error, Error::Launch(LaunchError::WrongLengths { .. })), "{error}");
    let text = error.to_string();
    assert!(text.contains("kernel `same`") && words.iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn every_launch_compares_lengths() {
    let (driver, device, stream, kernel) = kernel_fixture::<Same>();
    let x = DeviceBuffer::<u32>::zeros(&stream, 100).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 100).unwrap();
    stream.synchronize().unwrap();
    let before = driver.calls(Call::Launch);
    let (differ, short) = (["`x` has 100", "`y` has 50"], ["`x` has 100", "the launch is for 64"]);
    let [auto, explicit] = [Launch::auto(100), Launch::grid_block(4, 32)];

    for launch in [auto, explicit, Launch::linear(100, 32), Launch::auto(50), Launch::linear(0, 32)] {
        refused(kernel.launch(&stream, launch, (&x, y.slice_mut(..50))), differ);
    }
    for launch in [
        Launch::auto(64),
        Launch::linear(64, 32),
        Launch::for_occupancy(64),
        Launch::for_bandwidth(64, 8),
        Launch::cover(64),
    ] {
        refused(kernel.launch(&stream, launch, (&x, &mut y)), short);
    }
    refused(
        kernel.launch(&stream, Launch::cover((10, 10)), (x.slice(1..), &mut y)),
        ["`x` has 99", "`y` has 100"],
    );
    refused(unsafe { kernel.launch_unsafe(&stream, auto, (&x, y.slice_mut(..50))) }, differ);

    let prepared = kernel.prepare(auto).unwrap();
    refused(prepared.launch(&stream, (&x, y.slice_mut(..50))), differ);
    refused(unsafe { prepared.launch_unsafe(&stream, (&x, y.slice_mut(..50))) }, differ);
    refused(kernel.prepare(Launch::auto(64)).unwrap().launch(&stream, (&x, &mut y)), short);
    refused(kernel.prepare(explicit).unwrap().launch(&stream, (&x, y.slice_mut(..50))), differ);

    let mut graph = Graph::new(&device).unwrap();
    refused(graph.add_kernel(&kernel, auto, (&x, y.slice_mut(..50)), &[]), differ);
    refused(graph.add_kernel(&kernel, Launch::auto(64), (&x, &mut y), &[]), short);
    let node = graph.add_kernel(&kernel, auto, (&x, &mut y), &[]).unwrap();
    let mut exec = graph.instantiate().unwrap();
    refused(exec.set_kernel(&node, &kernel, auto, (&x, y.slice_mut(..50))), differ);
    let captured = Graph::capture(&stream, || kernel.launch(&stream, auto, (&x, y.slice_mut(..50))));
    refused(captured, differ);
    assert_eq!(driver.calls(Call::Launch), before, "nothing was launched");

    kernel.launch(&stream, auto, (&x, &mut y)).unwrap();
    kernel.launch(&stream, explicit, (x.slice(..7), y.slice_mut(..7))).unwrap();
    kernel.launch(&stream, Launch::cover((10, 10)), (&x, &mut y)).unwrap();
    kernel.launch(&stream, Launch::from(LaunchConfig::new([1; 3], [32, 1, 1], 0)), (&x, &mut y)).unwrap();
    prepared.launch(&stream, (&x, &mut y)).unwrap();
    assert_eq!(driver.calls(Call::Launch), before + 5);
}
