//! Tests of code loaded at run time. The emulated driver accepts any code as a module that contains given kernels.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use gpu_spec::Kernel;
use warpsmith_runtime::emulated::{Call, EmulatedDriver, EmulatedDriverBuilder};
use warpsmith_runtime::launch::RawArguments;
use warpsmith_runtime::{
    Code, Device, DeviceBuffer, DevicePtr, Error, Function, Graph, Launch, LaunchError, LoadError, Stream,
};

const PTX: &str = ".version 7.0\n.target sm_80\n";

fn open(builder: EmulatedDriverBuilder) -> (Arc<EmulatedDriver>, Device) {
    let driver = builder.memory(1 << 28).code([Mix::spec(), Axpy::spec()]).build();
    let device = Device::with_driver(driver.clone(), 0).unwrap();
    (driver, device)
}

fn load(device: &Device) -> Code {
    // SAFETY: the driver accepts any text.
    unsafe { device.load_code(PTX) }.unwrap()
}

/// Computes `y = 31 * y + 17 * x + a` with a kernel of loaded code.
fn mix(kernel: &Function, stream: &Stream, a: u32, x: &DeviceBuffer<u32>, y: &mut DeviceBuffer<u32>) {
    let len = x.len();
    let args = RawArguments::new().value(a).read(x.as_slice()).value(len).write(y.as_mut_slice()).value(len);
    // SAFETY: the arguments match the kernel parameters of `Mix`.
    unsafe { kernel.launch_unchecked(stream, Launch::linear(len, 64), &args) }.unwrap();
}

/// Waits until the driver has unloaded this number of modules. A thread of the runtime unloads modules.
fn wait_for_unloads(driver: &EmulatedDriver, expected: u64) {
    let start = Instant::now();
    while driver.calls(Call::ModuleUnload) < expected && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(driver.calls(Call::ModuleUnload), expected);
}

#[test]
fn loaded_kernels_are_ordered_with_rust_kernels() {
    let (driver, device) = open(EmulatedDriver::builder().check_races());
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    let loaded = load(&device).kernel("mix__u32").unwrap();
    let rust = module(&device).kernel::<Mix>().unwrap();
    let input: Vec<u32> = (0..1000).collect();
    let x = DeviceBuffer::from_host(&streams[0], &input).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&streams[1], 1000).unwrap();
    let mut expected = vec![0u32; 1000];
    for round in 0..8u32 {
        let stream = &streams[round as usize % 2];
        if round % 3 == 0 {
            rust.launch(stream, Launch::linear(1000, 64), (round, &x, &mut y)).unwrap();
        } else {
            mix(&loaded, stream, round, &x, &mut y);
        }
        expected.iter_mut().zip(&input).for_each(|(y, x)| *y = mixed(round, *x, *y));
    }
    assert_eq!(y.to_host().unwrap(), expected);
    assert!(driver.take_races().is_empty());
}

#[test]
fn a_module_is_unloaded_after_its_work() {
    let (driver, device) = open(EmulatedDriver::builder());
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    let x = DeviceBuffer::from_host(&streams[0], &[1u32; 64]).unwrap();
    let mut ys: Vec<_> = streams.iter().map(|s| DeviceBuffer::<u32>::zeros(s, 64).unwrap()).collect();
    device.synchronize().unwrap();
    let code = load(&device);
    let [first, second] = [code.kernel("mix__u32").unwrap(), code.clone().kernel("mix__u32").unwrap()];
    let hold = driver.hold();
    mix(&first, &streams[0], 5, &x, &mut ys[0]);
    mix(&second, &streams[1], 6, &x, &mut ys[1]);
    drop(code);
    drop(first);
    assert_eq!(driver.calls(Call::ModuleUnload), 0, "a function has it");
    drop(second);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(driver.calls(Call::ModuleUnload), 0, "its kernels have not run");
    drop(hold);
    wait_for_unloads(&driver, 1);
    assert_eq!(ys[0].to_host().unwrap(), [22; 64]);
    assert_eq!(ys[1].to_host().unwrap(), [23; 64]);
    assert!(device.take_drop_error().is_none());
}

#[test]
fn raw_pointer_launches_keep_the_module_too() {
    let (driver, device) = open(EmulatedDriver::builder());
    let stream = Stream::new(&device).unwrap();
    let y = DeviceBuffer::from_host(&stream, &[1u32; 64]).unwrap();
    let x = DeviceBuffer::from_host(&stream, &[2u32; 64]).unwrap();
    let kernel = load(&device).kernel("mix__u32").unwrap();
    stream.synchronize().unwrap();
    let hold = driver.hold();
    let (a, len, px, py) = (3u32, 64usize, x.as_device_ptr(), y.as_device_ptr());
    let args = [
        (&raw const a).cast(),
        (&raw const px).cast(),
        (&raw const len).cast(),
        (&raw const py).cast(),
        (&raw const len).cast(),
    ];
    let config = kernel.configure(Launch::linear(64, 64)).unwrap().unwrap();
    // SAFETY: the arguments match the kernel parameters of `Mix`; both buffers belong to this stream.
    unsafe { kernel.launch_raw(&stream, config, &args) }.unwrap();
    drop(kernel);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(driver.calls(Call::ModuleUnload), 0);
    drop(hold);
    wait_for_unloads(&driver, 1);
    assert_eq!(y.to_host().unwrap(), [31 + 34 + 3; 64]);
}

#[test]
fn a_graph_keeps_its_modules() {
    let (driver, device) = open(EmulatedDriver::builder());
    let stream = Stream::new(&device).unwrap();
    let x = DeviceBuffer::from_host(&stream, &[1u32; 64]).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 64).unwrap();
    let kernel = load(&device).kernel("mix__u32").unwrap();
    let graph = Graph::capture(&stream, || {
        mix(&kernel, &stream, 1, &x, &mut y);
        drop(kernel);
        Ok::<_, Error>(())
    })
    .unwrap();
    let exec = graph.instantiate().unwrap();
    drop(graph);
    exec.launch(&stream).unwrap();
    assert_eq!(y.to_host().unwrap(), [18; 64]);
    let hold = driver.hold();
    exec.launch(&stream).unwrap();
    drop(exec);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(driver.calls(Call::ModuleUnload), 0, "a launch of the graph has not run");
    drop(hold);
    wait_for_unloads(&driver, 1);
    assert_eq!(y.to_host().unwrap(), [31 * 18 + 18; 64]);
}

#[test]
fn a_module_dropped_in_host_functions_is_unloaded() {
    let (driver, device) = open(EmulatedDriver::builder());
    let stream = Stream::new(&device).unwrap();
    let code = load(&device);
    stream.host_function(move || drop(code)).unwrap();
    stream.synchronize().unwrap();
    wait_for_unloads(&driver, 1);
    assert!(!device.is_lost());
}

#[test]
fn unloading_that_fails_to_wait_leaves_the_module() {
    let (driver, device) = open(EmulatedDriver::builder());
    let code = load(&device);
    driver.fail_call(Call::HostFunction, 0);
    drop(code);
    wait_for_unloads(&driver, 1);
    assert!(device.take_drop_error().is_some());
    let code = load(&device);
    driver.fail_call(Call::EventSynchronize, 0);
    drop(code);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(driver.calls(Call::ModuleUnload), 1, "it is not known whether its work has run");
    assert!(!device.is_lost());
}

#[test]
fn code_that_is_not_loaded_says_why() {
    let (driver, device) = open(EmulatedDriver::builder());
    // SAFETY: the text is not code, so the call fails.
    let error = unsafe { device.load_code("no code") }.unwrap_err();
    assert!(matches!(error, Error::Load(LoadError::NotCode { .. })), "{error}");
    // SAFETY: as above.
    let error = unsafe { device.load_code_file("no/such\nfile.ptx") }.unwrap_err();
    assert!(matches!(error, Error::Load(LoadError::File { .. })), "{error}");
    assert!(error.to_string().contains("cannot read no/such\\nfile.ptx"), "{error}");
    driver.fail_call(Call::ModuleLoad, 0);
    // SAFETY: the driver accepts any text.
    let error = unsafe { device.load_code(PTX) }.unwrap_err();
    assert!(matches!(error, Error::Load(LoadError::Rejected { .. })), "{error}");
    let error = load(&device).kernel("sgemm").unwrap_err();
    let Error::Load(LoadError::NoKernel { kernel, .. }) = &error else { panic!("{error}") };
    assert_eq!(kernel, "sgemm");
    let error = load(&device).kernel("a\0b").unwrap_err();
    assert!(matches!(error, Error::Load(LoadError::NoKernel { .. })), "{error}");

    let path = std::env::temp_dir().join(format!("warpsmith-empty-{}.ptx", std::process::id()));
    std::fs::write(&path, "").unwrap();
    // SAFETY: as above.
    let error = unsafe { device.load_code_file(&path) }.unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert!(error.to_string().contains("it is empty"), "{error}");
}

#[test]
fn emulated_devices_run_no_machine_code() {
    let (_, device) = device();
    // SAFETY: the call fails, so the code never runs.
    let error = unsafe { device.load_code(PTX) }.unwrap_err();
    assert!(matches!(error, Error::Load(LoadError::Emulated { .. })), "{error}");
    assert!(error.to_string().contains("runs only on a GPU"), "{error}");
    assert_eq!(device.memory().allocated(), 0);
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let (driver, device) = open(EmulatedDriver::builder());
    let stream = Stream::new(&device).unwrap();
    let loaded = load(&device).kernel("mix__u32").unwrap();
    let rust = module(&device).function(Mix::spec()).unwrap();
    let launch = |kernel: &Function, args: RawArguments<'_>| {
        // SAFETY: the call fails without accessing the memory.
        unsafe { kernel.launch_unchecked(&stream, Launch::linear(1, 32), &args) }.unwrap_err()
    };
    let many = || (0..4096).fold(RawArguments::new(), |args, n: u64| args.value(n));
    assert_eq!((many().len(), many().bytes()), (4096, 32 << 10));
    for kernel in [&loaded, &rust] {
        let error = launch(kernel, many());
        let Error::Launch(LaunchError::ArgumentBytes { bytes: 32_768, limit: 32_764, .. }) = error else {
            panic!("{error}")
        };
        assert!(error.to_string().contains("`mix__u32`: 32768 bytes"), "{error}");
    }
    // The parameters of Rust kernels are known.
    let null = DevicePtr::NULL;
    let error = launch(&rust, RawArguments::new().value(1u32));
    assert!(
        matches!(error, Error::Launch(LaunchError::ArgumentCount { expected: 5, got: 1, .. })),
        "{error}"
    );
    let error =
        launch(&rust, RawArguments::new().value(1u32).pointer(null).value(0u32).pointer(null).value(0usize));
    let Error::Launch(LaunchError::ArgumentSize { argument: 3, expected: 8, got: 4, .. }) = error else {
        panic!("{error}")
    };
    let other = crate::common::device().1;
    let far = DeviceBuffer::<u32>::zeros(&other.default_stream(), 3).unwrap();
    let error = launch(&loaded, RawArguments::new().read(far.as_slice()));
    assert!(matches!(error, Error::DifferentDevices { .. }), "{error}");
    assert_eq!(driver.calls(Call::Launch), 0);
}

#[test]
fn arguments_are_laid_out_as_c_does() {
    let args = RawArguments::new().value(1u8).value(2u64).value(3u16).value([4u32; 3]);
    assert_eq!((args.len(), args.bytes(), args.is_empty()), (4, 32, false));
}

#[test]
fn a_fault_names_a_loaded_kernel() {
    let (driver, device) = open(EmulatedDriver::builder().idle());
    let stream = Stream::new(&device).unwrap();
    let kernel = load(&device).kernel("axpy__f32").unwrap();
    // SAFETY: the launch does not run.
    unsafe { kernel.launch_unchecked(&stream, Launch::linear(77, 32), &RawArguments::new()) }.unwrap();
    const ILLEGAL_ADDRESS: u32 = 700;
    driver.fail_call_with(Call::StreamSynchronize, 0, ILLEGAL_ADDRESS);
    let text = stream.synchronize().unwrap_err().to_string();
    assert!(text.contains("`axpy__f32` stopped") && text.contains("grid [3, 1, 1]"), "{text}");
    drop(kernel);
    assert!(device.take_drop_error().is_none());
}

#[test]
fn globals_have_address_and_size() {
    let (driver, device) = open(EmulatedDriver::builder());
    let code = load(&device);
    let (address, bytes) = code.global("module_memory").unwrap();
    assert!(address != DevicePtr::NULL && bytes == 256);
    for name in ["weights", "module_memory\0"] {
        let error = code.global(name).unwrap_err();
        assert!(
            matches!(&error, Error::Load(LoadError::NoGlobal { global, .. }) if global == name),
            "{error}"
        );
    }
    driver.fail_call_with(Call::ModuleGlobal, 0, 999);
    assert_eq!(code.global("module_memory").unwrap_err().driver_code(), Some(999));
}

#[test]
fn linked_code_is_loaded() {
    let (driver, device) = open(EmulatedDriver::builder());
    // SAFETY: the driver accepts any text.
    let link = |parts: &[&str]| unsafe { device.link_code(parts) };
    let cubin = link(&[PTX, PTX]).unwrap();
    // SAFETY: as above.
    unsafe { device.load_code(cubin) }.unwrap().kernel("mix__u32").unwrap();
    let text = link(&[PTX, "no code"]).unwrap_err().to_string();
    assert!(text.contains("part 2 of the code is not a PTX, cubin or fatbin"), "{text}");
    let text = link(&[]).unwrap_err().to_string();
    assert!(text.contains("nothing to link"), "{text}");
    driver.fail_call_with(Call::Link, 0, 218);
    assert!(matches!(link(&[PTX]).unwrap_err(), Error::Load(LoadError::Rejected { .. })));
    // SAFETY: as above.
    let error = unsafe { Device::emulated(0).unwrap().link_code(&[PTX]) }.unwrap_err();
    assert!(matches!(error, Error::Load(LoadError::Emulated { .. })), "{error}");
}
