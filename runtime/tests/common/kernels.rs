//! Hand-written kernels, in the form that `#[kernel]` generates.
//!
//! Safety of all kernels: an entry reads the kernel parameters that its spec lists, and `Params` lists the same
//! parameters. Each thread writes only the elements at its own index.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use std::ffi::c_void;

use gpu_spec::param::{Pointer, PointerMut, Slice, SliceMut, Value};
use gpu_spec::{Kernel, KernelSpec, LaunchBounds, ParamKind, ParamSpec, SafeKernel};
use warpsmith_emulator::{collective, thread};

/// Returns the one-dimensional index of this GPU thread and the total number of threads.
fn index() -> (usize, usize) {
    let [block, ..] = thread::block_index();
    let [dim, ..] = thread::block_dim();
    let [grid, ..] = thread::grid_dim();
    let [x, ..] = thread::thread_index();
    (block as usize * dim as usize + x as usize, grid as usize * dim as usize)
}

unsafe fn value<T: Copy>(args: *const *const c_void, index: usize) -> T {
    unsafe { (*args.add(index)).cast::<T>().read() }
}

unsafe fn slice<'a, T>(args: *const *const c_void, index: usize) -> &'a [T] {
    unsafe { std::slice::from_raw_parts(value(args, index), value(args, index + 1)) }
}

unsafe fn view<T>(args: *const *const c_void, index: usize) -> (*mut T, usize) {
    unsafe { (value(args, index), value(args, index + 1)) }
}

const fn param<T>(name: &'static str, kind: ParamKind) -> ParamSpec {
    ParamSpec { name, kind, type_name: "", size: size_of::<T>(), align: align_of::<T>(), signature: 0 }
}

macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident, $symbol:literal, $params:ty, [$($param:expr),*], $entry:expr
     $(, bounds $bounds:literal)? $(, arch $arch:literal)?) => {
        $(#[$doc])*
        pub struct $name;
        unsafe impl Kernel for $name {
            type Params = $params;
            fn spec() -> &'static KernelSpec {
                const PARAMS: &[ParamSpec] = &[$($param),*];
                #[allow(unused_mut)]
                const fn build() -> KernelSpec {
                    let mut spec = KernelSpec::new("test-kernels", "0.0.0", $symbol, PARAMS, $entry);
                    $(spec.info.launch_bounds = Some(LaunchBounds { max_threads: $bounds, min_blocks: 0 });)?
                    $(spec.info.min_arch = $arch;)?
                    spec
                }
                static SPEC: KernelSpec = build();
                &SPEC
            }
        }
    };
}

kernel!(
    /// Computes `y = a * x + y`, one element per thread, in a grid-stride loop.
    Axpy, "axpy__f32", (Value<f32>, Slice<f32>, SliceMut<f32>),
    [
        param::<f32>("a", ParamKind::Value),
        param::<f32>("x", ParamKind::Slice),
        param::<f32>("y", ParamKind::SliceMut)
    ],
    axpy
);
unsafe impl SafeKernel for Axpy {}

unsafe fn axpy(args: *const *const c_void) {
    let (a, x, (y, len)) = unsafe { (value::<f32>(args, 0), slice::<f32>(args, 1), view::<f32>(args, 3)) };
    let (mut i, step) = index();
    while i < len.min(x.len()) {
        unsafe { *y.add(i) = a * x[i] + *y.add(i) };
        i += step;
    }
}

kernel!(
    /// Computes `y = 31 * y + 17 * x + a`, wrapping, so that the result depends on the order of all earlier operations.
    Mix, "mix__u32", (Value<u32>, Slice<u32>, SliceMut<u32>),
    [
        param::<u32>("a", ParamKind::Value),
        param::<u32>("x", ParamKind::Slice),
        param::<u32>("y", ParamKind::SliceMut)
    ],
    mix
);
unsafe impl SafeKernel for Mix {}

unsafe fn mix(args: *const *const c_void) {
    let (a, x, (y, len)) = unsafe { (value::<u32>(args, 0), slice::<u32>(args, 1), view::<u32>(args, 3)) };
    let (mut i, step) = index();
    while i < len.min(x.len()) {
        unsafe { *y.add(i) = mixed(a, x[i], *y.add(i)) };
        i += step;
    }
}

/// Returns the result of [`Mix`] for one element.
pub fn mixed(a: u32, x: u32, y: u32) -> u32 {
    y.wrapping_mul(31).wrapping_add(x.wrapping_mul(17)).wrapping_add(a)
}

kernel!(
    /// Writes every element's index, without a loop.
    Iota, "iota__u32", (SliceMut<u32>,), [param::<u32>("out", ParamKind::SliceMut)], iota
);
unsafe impl SafeKernel for Iota {}

unsafe fn iota(args: *const *const c_void) {
    let (out, len) = unsafe { view::<u32>(args, 0) };
    let (i, _) = index();
    if i < len {
        unsafe { *out.add(i) = i as u32 };
    }
}

/// A value with unusual size and alignment.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, align(32))]
pub struct Wide {
    pub bytes: [u8; 40],
}

kernel!(
    /// Writes the bytes of a value passed between a small value and another one.
    Values, "values", (Value<u8>, Value<Wide>, Value<u16>, SliceMut<u8>),
    [
        param::<u8>("a", ParamKind::Value),
        param::<Wide>("wide", ParamKind::Value),
        param::<u16>("b", ParamKind::Value),
        param::<u8>("out", ParamKind::SliceMut)
    ],
    values
);
unsafe impl SafeKernel for Values {}

unsafe fn values(args: *const *const c_void) {
    unsafe {
        let (a, wide, b) = (value::<u8>(args, 0), value::<Wide>(args, 1), value::<u16>(args, 2));
        let (out, len) = view::<u8>(args, 3);
        assert_eq!(len, 43);
        assert!((*args.add(1)).addr().is_multiple_of(align_of::<Wide>()));
        *out = a;
        out.add(1).copy_from_nonoverlapping(wide.bytes.as_ptr(), 40);
        out.add(41).copy_from_nonoverlapping(b.to_ne_bytes().as_ptr(), 2);
    }
}

kernel!(
    /// Copies through raw pointers.
    CopyRaw, "copy_raw", (Pointer<u32>, PointerMut<u32>, Value<u64>),
    [
        param::<u32>("from", ParamKind::Pointer),
        param::<u32>("to", ParamKind::PointerMut),
        param::<u64>("len", ParamKind::Value)
    ],
    copy_raw
);

unsafe fn copy_raw(args: *const *const c_void) {
    unsafe {
        let (from, to): (*const u32, *mut u32) = (value(args, 0), value(args, 1));
        let (i, _) = index();
        if i < value::<u64>(args, 2) as usize {
            *to.add(i) = *from.add(i);
        }
    }
}

kernel!(
    /// Panics in the thread whose index is the argument.
    PanicAt, "panic_at", (Value<u32>,), [param::<u32>("thread", ParamKind::Value)], panic_at
);
unsafe impl SafeKernel for PanicAt {}

unsafe fn panic_at(args: *const *const c_void) {
    let wanted = unsafe { value::<u32>(args, 0) } as usize;
    let (i, _) = index();
    assert!(i != wanted, "thread {i} was told to panic");
}

kernel!(
    /// Deadlocks because half of the first warp waits at a barrier while the other half waits for the whole warp.
    Deadlock, "deadlock", (), [], deadlock
);
unsafe impl SafeKernel for Deadlock {}

unsafe fn deadlock(_args: *const *const c_void) {
    if thread::lane() < 16 {
        collective::barrier(true);
    } else {
        collective::warp_exchange(u32::MAX, "shuffle", 0);
    }
}

kernel!(
    /// Sums a block's thread indices through dynamic shared memory.
    SharedSum, "shared_sum", (SliceMut<u32>,), [param::<u32>("out", ParamKind::SliceMut)], shared_sum
);
unsafe impl SafeKernel for SharedSum {}

unsafe fn shared_sum(args: *const *const c_void) {
    let (out, len) = unsafe { view::<u32>(args, 0) };
    let shared: *mut u32 = warpsmith_emulator::shared::dynamic_memory().cast();
    let ([x, ..], [dim, ..], [block, ..]) =
        (thread::thread_index(), thread::block_dim(), thread::block_index());
    unsafe { *shared.add(x as usize) = x };
    collective::barrier(true);
    if x == 0 && (block as usize) < len {
        unsafe { *out.add(block as usize) = (0..dim as usize).map(|i| *shared.add(i)).sum() };
    }
}

kernel!(
    /// Declares blocks of at most 100 threads and requires compute capability 9.0.
    Bounded, "bounded", (SliceMut<u32>,), [param::<u32>("out", ParamKind::SliceMut)], block_size, bounds 100, arch 90
);
unsafe impl SafeKernel for Bounded {}

unsafe fn block_size(args: *const *const c_void) {
    let (out, len) = unsafe { view::<u32>(args, 0) };
    let (i, _) = index();
    if i < len {
        unsafe { *out.add(i) = thread::block_dim()[0] };
    }
}
