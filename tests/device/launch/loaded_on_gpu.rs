//! Kernels from a CUDA C++ compiler, loaded as PTX at run time, together with kernels in Rust.

use crate::common::{Random, device, gpu, stream};
use test_kernels::IMAGE;
use test_kernels::train::relu_backward;
use warpsmith::graph::Graph;
use warpsmith::launch::{Function, RawArguments};
use warpsmith::prelude::*;
use warpsmith::{Code, Error, LaunchError, LoadError};

const PTX: &str = include_str!("saxpy.ptx");

/// Loads PTX on the device under test.
fn load(ptx: &str) -> Code {
    // SAFETY: ptxas accepts it, and it has no global state.
    unsafe { gpu().load_code(ptx) }.expect("the driver takes the PTX")
}

fn saxpy(kernel: &Function, stream: &Stream, a: f32, x: &DeviceBuffer<f32>, y: &mut DeviceBuffer<f32>) {
    let args = RawArguments::new().value(x.len() as u32).value(a).read(x.as_slice()).write(y.as_mut_slice());
    // SAFETY: the arguments match its parameters; it accesses only elements that both arrays have.
    unsafe { kernel.launch_unchecked(stream, Launch::linear(x.len(), 256), &args) }.unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn loaded_and_rust_kernels_share_buffers() {
    let code = load(PTX);
    let kernel = code.kernel("saxpy").unwrap();
    drop(code);
    let rust = device().load(&IMAGE).unwrap().kernel::<relu_backward>().unwrap();
    let mut random = Random::new();
    for len in [1usize, 31, 1025, 1_000_003] {
        let streams = [stream(), stream()];
        let values: Vec<f32> = (0..len).map(|_| random.below(1000) as f32 - 500.0).collect();
        let x = DeviceBuffer::from_host(&streams[0], &values).unwrap();
        let mut y = DeviceBuffer::<f32>::zeros(&streams[1], len).unwrap();
        let mut expected = vec![0.0f32; len];
        for round in 0..6 {
            saxpy(&kernel, &streams[round % 2], 2.0, &x, &mut y);
            expected.iter_mut().zip(&values).for_each(|(y, x)| *y += 2.0 * x);
            rust.launch(&streams[(round + 1) % 2], Launch::for_bandwidth(len, 12), (&x, &mut y)).unwrap();
            expected.iter_mut().zip(&values).for_each(|(y, x)| *y = if *x > 0.0 { *y } else { 0.0 });
        }
        assert_eq!(y.to_host().unwrap(), expected, "{len} elements, seed {}", random.seed);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_graph_launches_a_loaded_kernel() {
    let code = load(PTX);
    let stream = stream();
    let kernel = code.kernel("saxpy").unwrap();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 1000]).unwrap();
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 1000).unwrap();
    let graph = Graph::capture(&stream, || {
        saxpy(&kernel, &stream, 3.0, &x, &mut y);
        saxpy(&kernel, &stream, 4.0, &x, &mut y);
        Ok::<_, Error>(())
    })
    .unwrap();
    drop((kernel, code));
    let exec = graph.instantiate().unwrap();
    drop(graph);
    for _ in 0..5 {
        exec.launch(&stream).unwrap();
    }
    drop(exec);
    assert_eq!(y.to_host().unwrap(), [35.0; 1000]);
    device().synchronize().unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn modules_are_loaded_and_unloaded_beside_running_work() {
    // Clears an error of another test.
    let _ = device().take_drop_error();
    let streams = [stream(), stream()];
    let x = DeviceBuffer::from_host(&streams[0], &vec![1.0f32; 1 << 20]).unwrap();
    let mut y = DeviceBuffer::<f32>::zeros(&streams[0], 1 << 20).unwrap();
    for round in 0..50 {
        let code = load(PTX);
        let kernel = code.kernel("saxpy").unwrap();
        drop(code);
        (0..4).for_each(|_| saxpy(&kernel, &streams[round % 2], 0.5, &x, &mut y));
    }
    assert!(y.to_host().unwrap().iter().all(|y| *y == 100.0));
    assert!(device().take_drop_error().is_none());
}

/// Sum of the numbers below `N`, which are passed by value.
fn sum_by_value<const N: usize>(code: &Code) -> u32
where
    [u32; N]: DeviceCopy,
{
    let kernel = code.kernel("sum_of_many").unwrap();
    let mut out = DeviceBuffer::<u32>::zeros(&stream(), 1).unwrap();
    let many: [u32; N] = std::array::from_fn(|index| index as u32);
    let args = RawArguments::new().value(many).write(out.as_mut_slice());
    // SAFETY: the arguments match its parameters.
    unsafe { kernel.launch_unchecked(&stream(), Launch::linear(1, 1), &args) }.unwrap();
    out.to_host().unwrap()[0]
}

#[test]
#[ignore = "needs a GPU"]
fn large_values_are_passed_as_arguments() {
    let code = load(PTX);
    assert_eq!(sum_by_value::<1000>(&code), 999 * 500);
    if code.kernel("sum_of_many").unwrap().max_argument_bytes() > 4096 {
        let large = PTX.replace(".version 7.0", ".version 8.1").replace("[4000]", "[32000]");
        let code = load(&large.replace(", 1000;", ", 8000;"));
        assert_eq!(sum_by_value::<8000>(&code), 7999 * 4000);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn wrong_arguments_and_names_are_errors() {
    let code = load(PTX);
    let error = code.kernel("sgemm").unwrap_err().to_string();
    assert!(error.contains("has no kernel `sgemm`"), "{error}");
    let kernel = code.kernel("saxpy").unwrap();
    let mut y = DeviceBuffer::<f32>::zeros(&stream(), 4).unwrap();
    // The driver reports kernels and parameters from CUDA 12.4 on; the test checks this only for version 13.
    if device().properties().driver_version.starts_with("13.") {
        assert!(error.contains("`saxpy`, `sum_of_many`"), "{error}");
        for args in [
            RawArguments::new().value(4u32),
            RawArguments::new().value(4u64).value(1.0f32).read(y.as_slice()).read(y.as_slice()),
        ] {
            // SAFETY: the launch is rejected.
            let refused = unsafe { kernel.launch_unchecked(&stream(), Launch::linear(4, 32), &args) };
            assert!(matches!(refused, Err(Error::Launch(_))), "{refused:?}");
        }
    }
    let error = {
        let args =
            RawArguments::new().value(4u32).value(1.0f32).read(y.as_slice()).pointer(y.as_device_ptr());
        // SAFETY: the launch is rejected.
        unsafe { kernel.launch_unchecked(&stream(), Launch::linear(4, 2000), &args) }.unwrap_err()
    };
    assert!(matches!(error, Error::Launch(LaunchError::BlockTooLarge { .. })), "{error}");
    stream().memset(&mut y, 0).unwrap();

    // SAFETY: the code does not compile.
    let error = unsafe { device().load_code(PTX.replace("fma.rn", "fmb.rn")) }.unwrap_err();
    assert!(matches!(error, Error::Load(LoadError::Rejected { .. })), "{error}");
    assert!(error.to_string().contains("fmb"), "the compiler's log: {error}");
}

#[test]
#[ignore = "needs a GPU"]
fn files_of_code_are_linked() {
    const CALLER: &str = ".version 7.0\n.target sm_80\n.address_size 64\n.extern .func (.reg .b32 r) answer();\n\
        .visible .entry ask(.param .u64 out)\n{\n.reg .b32 %r;\n.reg .b64 %p;\ncall (%r), answer;\n\
        ld.param.u64 %p, [out];\nst.global.u32 [%p], %r;\nret;\n}\n";
    const CALLED: &str = ".version 7.0\n.target sm_80\n.address_size 64\n\
        .visible .func (.reg .b32 r) answer()\n{\nmov.b32 r, 42;\nret;\n}\n";
    // SAFETY: ptxas accepts both files, and the kernel writes one number.
    let code = unsafe { gpu().load_code(device().link_code(&[CALLER, CALLED]).unwrap()) }.unwrap();
    let mut out = DeviceBuffer::<u32>::zeros(&stream(), 1).unwrap();
    let args = RawArguments::new().write(out.as_mut_slice());
    // SAFETY: the arguments match its parameters.
    unsafe { code.kernel("ask").unwrap().launch_unchecked(&stream(), Launch::linear(1, 1), &args) }.unwrap();
    assert_eq!(out.to_host().unwrap(), [42]);
    // SAFETY: the code is not linked.
    let error = unsafe { device().link_code(&[CALLER]) }.unwrap_err().to_string();
    assert!(error.contains("answer"), "{error}");
}
