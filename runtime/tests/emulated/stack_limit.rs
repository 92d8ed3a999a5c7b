//! Tests of a device's stack limit, and of kernels that require more stack than the limit, on the emulated driver.

use crate::common::*;
use gpu_spec::image::{
    CodeForm, CodeKind, Compilers, ImageModule, ImageSpec, KernelAbi, KernelRecord, Package, Packed, StackUse,
};
use gpu_spec::{Kernel, KernelInfo, KernelSpec};
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::error::code;
use warpsmith_runtime::{Device, DeviceBuffer, Error, GpuImage, Graph, Launch, StackError, Stream};

/// `Iota` with a declared stack of 40 000 bytes.
struct Declared;

// SAFETY: all items except the declared stack equal those of `Iota`.
unsafe impl Kernel for Declared {
    type Params = <Iota as Kernel>::Params;

    fn spec() -> &'static KernelSpec {
        static SPEC: std::sync::OnceLock<KernelSpec> = std::sync::OnceLock::new();
        let iota = Iota::spec();
        SPEC.get_or_init(|| KernelSpec {
            info: KernelInfo { symbol: "declared", stack: Some(40_000), ..iota.info },
            entry: iota.entry,
            bytes: None,
            lengths: None,
        })
    }
}
// SAFETY: same as for `Iota`.
unsafe impl gpu_spec::SafeKernel for Declared {}

/// Returns an image in which the stack of `Iota` is unknown.
fn unknown_stack() -> &'static GpuImage {
    let form = CodeForm {
        arch: 80,
        is_arch_specific: false,
        kind: CodeKind::Ptx(74),
        code: Packed::Plain(b""),
        hash: 0,
    };
    let package = Package { name: "test-kernels", version: "0.0.0" };
    let params: Vec<_> = Iota::spec().params.iter().map(|param| param.abi()).collect();
    let record = KernelRecord {
        symbol: Iota::spec().symbol,
        module_index: 0,
        abi: Some(KernelAbi { package, module: "", params: params.leak() }),
        stack: StackUse::Unknown,
        requested_stack: 0,
        block: None,
        cluster: None,
        resources: &[],
        panics: &[],
    };
    let spec = ImageSpec {
        package,
        dependencies: &[],
        sources: &[],
        missing: None,
        compilers: Compilers { device: "", host: "" },
        modules: vec![ImageModule { name: "test", is_linked: false, forms: vec![form].leak() }].leak(),
        kernels: vec![record].leak(),
        device_runtime: None,
    };
    // SAFETY: the emulated device does not run the image's code.
    Box::leak(Box::new(unsafe { GpuImage::new(spec) }))
}

fn too_low(error: &Error) -> Option<(usize, usize)> {
    match error {
        Error::Stack(StackError::TooLow { needs, limit, .. }) => Some((*needs, *limit)),
        _ => None,
    }
}

#[test]
fn the_limit_is_set_and_read() {
    let (driver, device) = device();
    assert_eq!(device.stack_limit().unwrap(), 1024);
    device.set_stack_limit(5000).unwrap();
    assert_eq!(device.stack_limit().unwrap(), 5000);
    let error = device.set_stack_limit(1 << 30).unwrap_err();
    assert!(matches!(error, Error::Stack(StackError::Refused { bytes, .. }) if bytes == 1 << 30), "{error}");
    assert!(error.to_string().contains("exceeds the maximum per thread"), "{error}");
    driver.fail_call_with(Call::ContextSetStackLimit, 0, code::OUT_OF_MEMORY);
    let error = device.set_stack_limit(6000).unwrap_err();
    assert!(matches!(error, Error::Stack(StackError::Refused { .. })), "{error}");
    driver.fail_call(Call::ContextStackLimit, 0);
    assert!(matches!(device.stack_limit().unwrap_err(), Error::Driver(_)));
    assert_eq!(device.stack_limit().unwrap(), 5000);
}

#[test]
fn a_look_up_raises_the_limit_once() {
    let (driver, device) = device();
    let module = module(&device);
    module.kernel::<Iota>().unwrap();
    assert_eq!(driver.calls(Call::ContextSetStackLimit), 0, "nothing is known to need it");
    let kernel = module.kernel::<Declared>().unwrap();
    assert_eq!(device.stack_limit().unwrap(), 40_000);
    module.kernel::<Declared>().unwrap();
    assert_eq!(driver.calls(Call::ContextSetStackLimit), 1);

    let unknown = device.load(unknown_stack()).unwrap().kernel::<Iota>().unwrap();
    assert_eq!(device.stack_limit().unwrap(), 40_000, "it is never lowered");
    let stream = Stream::new(&device).unwrap();
    let mut out = DeviceBuffer::zeros(&stream, 9).unwrap();
    kernel.launch(&stream, Launch::linear(9, 32), (&mut out,)).unwrap();
    unknown.launch(&stream, Launch::linear(9, 32), (&mut out,)).unwrap();
    assert_eq!(out.to_host().unwrap(), (0..9).collect::<Vec<u32>>());
}

#[test]
fn an_unknown_stack_gets_16_kib() {
    let (_, device) = device();
    device.load(unknown_stack()).unwrap().kernel::<Iota>().unwrap();
    assert_eq!(device.stack_limit().unwrap(), 16 << 10);
}

#[test]
fn launches_below_the_needed_stack_are_refused() {
    let (driver, device, stream) = fixture();
    let mut out = DeviceBuffer::zeros(&stream, 9).unwrap();
    let declared = module(&device).kernel::<Declared>().unwrap();
    let unknown = device.load(unknown_stack()).unwrap().kernel::<Iota>().unwrap();
    let prepared = declared.prepare(Launch::linear(9, 32)).unwrap();
    device.set_stack_limit(1024).unwrap();
    driver.reset_calls();
    let error = declared.launch(&stream, Launch::linear(9, 32), (&mut out,)).unwrap_err();
    assert_eq!(too_low(&error), Some((40_000, 1024)), "{error}");
    assert!(error.to_string().contains("`declared` needs 40000 bytes"), "{error}");
    let error = prepared.launch(&stream, (&mut out,)).unwrap_err();
    assert_eq!(too_low(&error), Some((40_000, 1024)), "{error}");
    let error = unknown.launch(&stream, Launch::linear(9, 32), (&mut out,)).unwrap_err();
    assert_eq!(too_low(&error), Some((16 << 10, 1024)), "{error}");
    let mut graph = Graph::new(&device).unwrap();
    let error = graph.add_kernel(&declared, Launch::linear(9, 32), (&mut out,), &[]).unwrap_err();
    assert_eq!(too_low(&error), Some((40_000, 1024)), "{error}");
    assert_eq!(driver.calls(Call::Launch) + driver.calls(Call::GraphAdd), 0);
    device.set_stack_limit(40_000).unwrap();
    declared.launch(&stream, Launch::linear(9, 32), (&mut out,)).unwrap();
    assert_eq!(out.to_host().unwrap()[8], 8);
}

#[test]
fn a_graph_that_runs_with_less_stack_faults() {
    let (_, device, stream) = fixture();
    let mut out = DeviceBuffer::zeros(&stream, 9).unwrap();
    let declared = module(&device).kernel::<Declared>().unwrap();
    let graph =
        Graph::capture(&stream, || declared.launch(&stream, Launch::linear(9, 32), (&mut out,))).unwrap();
    let exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(out.to_host().unwrap()[8], 8);
    device.set_stack_limit(1024).unwrap();
    exec.launch(&stream).unwrap();
    let error = stream.synchronize().unwrap_err();
    let text = error.to_string();
    assert!(["`declared`", "40000 bytes", "limit is 1024"].iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn the_limit_stays_during_a_capture() {
    let (_, device, stream) = fixture();
    let mut out = DeviceBuffer::<u32>::zeros(&stream, 9).unwrap();
    let module = module(&device);
    let graph = Graph::capture(&stream, || {
        let error = module.kernel::<Declared>().unwrap_err();
        assert!(matches!(error, Error::Stack(StackError::Capturing { bytes: 40_000, .. })), "{error}");
        assert!(error.to_string().contains("before the capture starts"), "{error}");
        stream.memset(&mut out, 0)
    });
    graph.unwrap().instantiate().unwrap().launch(&stream).unwrap();
    module.kernel::<Declared>().unwrap();
    assert_eq!(device.stack_limit().unwrap(), 40_000);
}

#[test]
fn a_fault_names_the_likely_stack_limit() {
    const ILLEGAL_ADDRESS: u32 = 700;
    for is_unknown in [false, true] {
        let driver = EmulatedDriver::builder().idle().build();
        let device = Device::with_driver(driver.clone(), 0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let mut out = DeviceBuffer::zeros(&stream, 9).unwrap();
        stream.synchronize().unwrap();
        let image = if is_unknown { unknown_stack() } else { &IMAGE };
        let kernel = device.load(image).unwrap().kernel::<Iota>().unwrap();
        kernel.launch(&stream, Launch::linear(9, 32), (&mut out,)).unwrap();
        driver.fail_call_with(Call::StreamSynchronize, 0, ILLEGAL_ADDRESS);
        let text = stream.synchronize().unwrap_err().to_string();
        assert!(text.contains("`iota__u32` stopped"), "{text}");
        let names_it = text.contains("`iota__u32`, whose stack size is unknown")
            && text.contains("stack limit of 16384 bytes")
            && text.contains("Device::set_stack_limit");
        assert_eq!(names_it, is_unknown, "{text}");
    }
}
