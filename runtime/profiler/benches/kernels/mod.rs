//! A kernel that does nothing and one that waits, for GPUs and the emulated device.

use gpu_spec::image::{
    CodeForm, CodeKind, Compilers, ImagePart, ImageSpec, KernelAbi, KernelRecord, Package, Packed, StackUse,
};
use gpu_spec::param::Value;
use gpu_spec::{AbiParam, Kernel, KernelSpec, ParamKind, ParamSpec, SafeKernel};
use warpsmith_runtime::GpuImage;

const PTX: &[u8] = b".version 7.0
.target sm_80
.address_size 64
.visible .entry none() { ret; }
.visible .entry spin(.param .u32 ns) {
    .reg .u64 %now, %end;
    .reg .u32 %ns;
    .reg .pred %early;
    ld.param.u32 %ns, [ns];
    cvt.u64.u32 %end, %ns;
    mov.u64 %now, %globaltimer;
    add.u64 %end, %end, %now;
again:
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %early, %now, %end;
    @%early bra again;
    ret;
}
";
const PACKAGE: Package = Package { name: "profiler-bench", version: "0.0.0" };
const NS: ParamSpec = ParamSpec { name: "ns", kind: ParamKind::Value, type_name: "u32", size: 4, align: 4 };

const fn record(symbol: &'static str, params: &'static [AbiParam]) -> KernelRecord {
    let abi = Some(KernelAbi { package: PACKAGE, params });
    let (stack, requested_stack) = (StackUse::Known(0), 0);
    KernelRecord {
        symbol,
        part: 0,
        abi,
        stack,
        requested_stack,
        block: None,
        cluster: None,
        resources: &[],
        panics: &[],
    }
}

const CODE: CodeForm = CodeForm {
    arch: 80,
    is_arch_specific: false,
    kind: CodeKind::Ptx(70),
    code: Packed::Plain(PTX),
    hash: 1,
};

// SAFETY: the records are of the PTX above, whose kernels do nothing, or wait.
pub static IMAGE: GpuImage = unsafe {
    GpuImage::new(ImageSpec {
        package: PACKAGE,
        dependencies: &[],
        missing: None,
        compilers: Compilers { device: "", host: "" },
        parts: &[ImagePart { name: "profiler-bench", is_linked: false, forms: &[CODE] }],
        kernels: &[record("none", &[]), record("spin", &[NS.abi()])],
        device_runtime: None,
    })
};

unsafe fn nothing(_: *const *const std::ffi::c_void) {}

/// It does nothing.
pub struct Empty;
// SAFETY: it has no parameters, as the spec says, and does nothing.
unsafe impl Kernel for Empty {
    type Params = ();
    fn spec() -> &'static KernelSpec {
        static SPEC: KernelSpec = KernelSpec::new(PACKAGE.name, PACKAGE.version, "none", &[], nothing);
        &SPEC
    }
}
// SAFETY: it does nothing.
unsafe impl SafeKernel for Empty {}

/// It waits for the nanoseconds that it is given; on the emulated device it does nothing.
pub struct Spin;
// SAFETY: the parameter is that of the spec, and the kernel only waits.
unsafe impl Kernel for Spin {
    type Params = (Value<u32>,);
    fn spec() -> &'static KernelSpec {
        static SPEC: KernelSpec = KernelSpec::new(PACKAGE.name, PACKAGE.version, "spin", &[NS], nothing);
        &SPEC
    }
}
// SAFETY: it only waits.
unsafe impl SafeKernel for Spin {}
