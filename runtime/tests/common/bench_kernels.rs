//! Kernels that do nothing, and one that waits, for GPUs and the emulated device.
#![allow(dead_code, reason = "each program launches some of them")]

use gpu_spec::image::{
    CodeForm, CodeKind, Compilers, ImageModule, ImageSpec, KernelAbi, KernelRecord, Package, Packed, StackUse,
};
use gpu_spec::param::{Pointer, PointerMut, Value};
use gpu_spec::{AbiParam, Kernel, KernelSpec, ParamKind, ParamSpec, SafeKernel};
use warpsmith_runtime::GpuImage;

/// PTX of the kernels.
pub const PTX: &[u8] = b".version 7.0
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
.visible .entry two(.param .u64 a, .param .u64 b) { ret; }
.visible .entry eight(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d,
                      .param .u64 e, .param .u64 f, .param .u64 g, .param .u64 h) { ret; }
";
const PACKAGE: Package = Package { name: "bench-kernels", version: "0.0.0" };

const READ: AbiParam = param(ParamKind::Pointer).abi();
const WRITTEN: AbiParam = param(ParamKind::PointerMut).abi();

const fn record(symbol: &'static str, params: &'static [AbiParam]) -> KernelRecord {
    let abi = Some(KernelAbi { package: PACKAGE, module: "", params });
    let (stack, requested_stack) = (StackUse::Known(0), 0);
    KernelRecord {
        symbol,
        module_index: 0,
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

// SAFETY: the records describe the PTX above, whose kernels do nothing or wait.
pub static IMAGE: GpuImage = unsafe {
    GpuImage::new(ImageSpec {
        package: PACKAGE,
        dependencies: &[],
        sources: &[],
        missing: None,
        compilers: Compilers { device: "", host: "" },
        modules: &[ImageModule { name: "bench-kernels", is_linked: false, forms: &[CODE] }],
        kernels: &[
            record("eight", &[READ, READ, READ, READ, READ, READ, READ, WRITTEN]),
            record("none", &[]),
            record("spin", &[param(ParamKind::Value).abi()]),
            record("two", &[READ, WRITTEN]),
        ],
        device_runtime: None,
    })
};

unsafe fn nothing(_: *const *const std::ffi::c_void) {}

const fn param(kind: ParamKind) -> ParamSpec {
    ParamSpec { name: "p", kind, type_name: "u32", size: 4, align: 4, signature: 0 }
}

macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident, $symbol:literal, ($($marker:ident),*)) => {
        $(#[$doc])*
        pub struct $name;
        // SAFETY: the parameters match the spec, and the kernel does nothing with them or waits.
        unsafe impl Kernel for $name {
            type Params = ($($marker<u32>,)*);
            fn spec() -> &'static KernelSpec {
                const PARAMS: &[ParamSpec] = &[$(param(ParamKind::$marker)),*];
                static SPEC: KernelSpec = KernelSpec::new(PACKAGE.name, PACKAGE.version, $symbol, PARAMS, nothing);
                &SPEC
            }
        }
        // SAFETY: the kernel does nothing or waits.
        unsafe impl SafeKernel for $name {}
    };
}

kernel!(
    /// Does nothing.
    Empty, "none", ()
);
kernel!(
    /// Waits for the given number of nanoseconds; does nothing on the emulated device.
    Spin, "spin", (Value)
);
kernel!(
    /// Does nothing with two buffers.
    TwoArguments, "two", (Pointer, PointerMut)
);
kernel!(
    /// Does nothing with eight buffers.
    EightArguments, "eight", (Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, PointerMut)
);
