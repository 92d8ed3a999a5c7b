//! The device library: what a kernel written in Rust can call.
//!
//! Every function has two bodies. Compiled for `nvptx64`, it is an instruction of the GPU; compiled for the
//! host, it calls the emulated device, so that the same kernel runs in `cargo test` on any machine. The host
//! side needs stable Rust only; the GPU side is compiled by `warpsmith-builder`.
//!
//! ```
//! use gpu_std::prelude::*;
//!
//! /// `y[i] += a * x[i]`.
//! #[kernel]
//! pub fn saxpy(a: f32, x: &[f32], mut y: DisjointMut<f32>) {
//!     for i in thread::grid_stride(x.len()) {
//!         if let Some(y) = y.get_mut(i) {
//!             *y += a * x[i.get()];
//!         }
//!     }
//! }
//! ```
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`thread`], [`block`] | indices of a thread, barriers, memory fences; reductions and scans of a block |
//! | [`cluster`] | blocks that reach each other's shared memory |
//! | [`grid`] | all blocks: a barrier in cooperative launches, and the order between launches |
//! | [`warp`] | shuffles, votes, matches and reductions among 32 threads |
//! | [`tile`] | the same, and scans, in parts of a warp |
//! | [`group`] | grid, cluster, block and tile as types, for generic code |
//! | [`exchange`] | items of a block's threads in blocked and striped order: loads, stores, and from one to the other |
//! | [`radix`] | stable ranks of a block's digits, for sorting |
//! | [`look_back`] | scans over all blocks in one launch: decoupled look-back, with the same bits every run |
//! | [`mod@scan`] | scans of whole arrays, of any operation |
//! | [`disjoint`] | mutable views of which each thread gets its own elements |
//! | [`view`] | views of rows and columns that all threads read |
//! | [`shared`] | arrays that a block shares: [`Shared`], [`DoubleBuffer`]; [`shared_array!`] for unsafe code |
//! | [`tensor`] | copies of tensors and matrix products of compute capability 9.0 |
//! | [`atomic`] | atomic operations with an ordering and a scope |
//! | [`dynamic`] | launching kernels from kernels |
//! | [`graph`] | setting the conditions of a graph |
//! | [`mod@elementwise`], [`mod@reduction`] | functions of elements and operators as kernels over arrays |
//! | [`vector`] | loads and stores of up to 32 bytes at once |
//! | [`vectorized`] | how the threads of a launch share an array, in vectors |
//! | [`scalar`] | numbers as kernels need them: conversions, NaN-propagating minimum, what to accumulate in |
//! | [`clock`] | cycles and nanoseconds |
//! | [`math`] | `exp`, `sin`, `erf`…: accurate, and fast |
//! | [`random`] | random numbers: Philox, uniform and normal |
//! | [`mod@printf`] | text from a kernel |
//! | [`element`], [`checked`] | which types can be passed to a kernel; `bool` and enums in buffers |
//! | [`indexed`] | a key and its index: which element has the greatest |
//! | [`per_block`], [`per_tile`] | views of which each block, or part of a warp, gets its own elements |
//! | `registry` | all kernels of the program (host only) |
//!
//! A panic in a kernel (a failed `assert!`, an index out of range) stops the launch and comes back to the host
//! as an error with its text, file and line, kernel, block and thread.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(asm_experimental_arch, core_intrinsics, link_llvm_intrinsics, portable_simd),
    allow(internal_features)
)]
#![deny(missing_docs)]

extern crate self as gpu_std;

/// The first expression on the GPU, the second on the emulated device.
macro_rules! gpu_or_host {
    ($gpu:expr, $host:expr) => {{
        #[cfg(target_arch = "nvptx64")]
        {
            $gpu
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            $host
        }
    }};
}

#[doc(hidden)]
#[path = "entry.rs"]
pub mod __private;
pub mod atomic;
pub mod block;
pub mod checked;
pub mod clock;
pub mod cluster;
pub mod disjoint;
pub mod dynamic;
pub mod element;
pub mod elementwise;
pub mod exchange;
#[cfg(not(target_arch = "nvptx64"))]
#[doc(hidden)]
pub mod family;
pub mod graph;
pub mod grid;
pub mod group;
#[cfg(not(target_arch = "nvptx64"))]
mod host;
pub mod indexed;
pub mod look_back;
pub mod math;
#[cfg(target_arch = "nvptx64")]
mod nvvm;
#[cfg(target_arch = "nvptx64")]
mod panic;
pub mod per_block;
pub mod per_tile;
pub mod prelude;
pub mod printf;
pub mod radix;
pub mod random;
pub mod reduction;
#[cfg(not(target_arch = "nvptx64"))]
pub mod registry;
pub mod scalar;
pub mod scan;
mod sealed;
#[cfg(not(target_arch = "nvptx64"))]
mod shape;
pub mod shared;
pub mod tensor;
pub mod thread;
pub mod tile;
pub mod vector;
pub mod vectorized;
pub mod view;
pub mod warp;
mod words;

pub use checked::Checked;
pub use disjoint::{Chunks, DisjointMut, DisjointMut2, DisjointMut3, Elements, Planes, SlicePlanes, Striped};
pub use element::{KernelType, KernelValue, SliceElement};
#[cfg(feature = "glam")]
pub use glam;
/// Derives [`KernelType`](trait@KernelType) and [`KernelValue`](trait@KernelValue) for a struct, with what it needs of
/// bytemuck.
///
/// The struct is `#[repr(C)]` or `#[repr(transparent)]` and has no padding: write a field for it.
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[derive(Debug, Clone, Copy, KernelType)]
/// #[repr(C)]
/// struct Body {
///     position: [f32; 3],
///     kind: u16,
///     _padding: [u8; 2],
/// }
/// ```
///
/// A generic struct is checked for each type that a kernel takes it with:
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[derive(Debug, Clone, Copy, KernelType)]
/// #[repr(C)]
/// struct Pair<T> {
///     key: u32,
///     value: T,
/// }
/// ```
///
/// Without a fixed layout it does not compile:
///
/// ```compile_fail
/// # use gpu_std::prelude::*;
/// #[derive(Clone, Copy, KernelType)]
/// struct Body {
///     mass: f64,
///     id: u64,
/// }
/// ```
pub use gpu_macros::KernelType;
/// Derives [`KernelValue`](trait@KernelValue) for a struct or an enum without fields, which a kernel then takes by value.
///
/// A struct is `#[repr(C)]` or `#[repr(transparent)]`; padding is of no concern. An enum has the type of its numbers, and
/// can lie in buffers as [`Checked`].
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[derive(Clone, Copy, PartialEq, KernelValue)]
/// #[repr(u8)]
/// enum Mode {
///     Add,
///     Multiply,
/// }
///
/// #[derive(Clone, Copy, KernelValue)]
/// #[repr(C)]
/// struct Settings {
///     mode: Mode,
///     saturate: bool,
///     factor: f32,
/// }
///
/// #[kernel]
/// fn apply(settings: Settings, mut data: DisjointMut<f32>) {
///     if let Some(x) = data.get_mut(thread::unique_index()) {
///         *x = match settings.mode {
///             Mode::Add => *x + settings.factor,
///             Mode::Multiply => *x * settings.factor,
///         };
///     }
/// }
/// ```
pub use gpu_macros::KernelValue;
/// Places a static in the shared memory of a block.
///
/// The static is written as `MaybeUninit`, and becomes a [`shared::SharedStatic`], whose
/// [`as_mut_ptr`](shared::SharedStatic::as_mut_ptr) gives the calling block's memory.
///
/// ```
/// use core::mem::MaybeUninit;
/// use gpu_std::prelude::*;
///
/// #[address_space(shared)]
/// static TILE: MaybeUninit<[f32; 256]> = MaybeUninit::uninit();
///
/// #[kernel(launch_bounds(256))]
/// fn clear() {
///     let tile: *mut f32 = TILE.as_mut_ptr().cast();
///     // SAFETY: each thread has its own element.
///     unsafe { tile.add(thread::linear_in_block() as usize).write(0.0) };
/// }
/// ```
pub use gpu_macros::address_space;
pub use indexed::Indexed;
pub use per_block::PerBlock;
pub use per_tile::PerTile;
#[cfg(not(target_arch = "nvptx64"))]
pub use shape::Shape;

/// Makes a function a kernel, which a host can launch.
///
/// # Parameters
///
/// | type | what it is | what a launch passes |
/// | --- | --- | --- |
/// | `T` | a plain value, see [`KernelValue`](trait@KernelValue) | the value |
/// | `&[T]` | a slice that all threads read | a buffer, borrowed |
/// | `&[Atomic<T>]` | a slice that all threads read and change | a buffer of `T`, borrowed mutably |
/// | `DisjointMut<T, M>` | a view of which each thread gets its own elements | a buffer, borrowed mutably |
/// | `SlicePlanes<T, K>` | `K` planes of equal length that all threads read | a buffer, borrowed |
/// | `Slice2<T>`, `Slice3<T>` | a view of rows (and planes) that all threads read | `buffer.as_2d(width, height)?`, `as_3d` |
/// | `DisjointMut2<T, M>`, `DisjointMut3<T>` | the same, of which each thread gets its own elements | `buffer.as_2d_mut(width, height)?`, `as_3d_mut` |
/// | `Slice2<Atomic<T>>`, `Slice3<Atomic<T>>` | a view that all threads read and change | `buffer.as_2d_mut(width, height)?`, `as_3d_mut` |
/// | `Option` of one of these, such as `Option<&[T]>` or `Option<DisjointMut2<T, M>>` | a slice or view that need not be there | `Some` of what is passed for it, or `None::<&DeviceBuffer<T>>`, `None::<DeviceSliceMut2<T>>` |
/// | [`Shared<[T; N]>`](Shared), [`DoubleBuffer<[T; N]>`](DoubleBuffer) | an array in the block's shared memory | nothing: it is no parameter of the launch |
/// | `Shared<[T]>`, `DoubleBuffer<[T]>` | the same, of a length that comes with the launch | [`SharedLen(length)`](SharedLen) |
/// | [`&TensorMap<T, RANK>`](TensorMap) | a tensor, copied box by box | a tensor map of a buffer |
/// | `*const T`, `*mut T` | in an `unsafe fn` only | a buffer or device pointer |
///
/// A kernel returns nothing, and is a free function. If it is a safe function, it can be launched from safe
/// code.
///
/// The mutable views of a kernel decide in how many dimensions it can be launched: a kernel whose views are all
/// `DisjointMut` in one, one with a `DisjointMut2` in up to two. A kernel that has none of them can be launched in any.
///
/// # Options
///
/// - `types(T = f32, f64; U = u8)`, `consts(ITEMS = 1, 2, 4)`: what the generic parameters stand for. A kernel is
///   compiled for each combination; `axpy<f32, 4>` has the symbol `axpy__f32_4`.
/// - `launch_bounds(max_threads)` or `launch_bounds(max_threads, min_blocks)`: promises that no block has more
///   threads, and limits registers so that `min_blocks` blocks fit on a multiprocessor.
/// - `block(x)`, `block(x, y)` or `block(x, y, z)`: every launch has blocks of exactly these threads. A launch that
///   leaves the block open gets it (`Launch::cover((width, height))`), one of another block is an error; inside the
///   kernel the block's size is a constant to the compiler.
/// - `cluster(x)`, `cluster(x, y)` or `cluster(x, y, z)`: every launch groups its blocks in clusters of this size, for
///   [`cluster`]. It implies `arch = 90`.
///
///   The numbers of these three may be constants, and use the constants of `consts(…)`:
///   `consts(TILE = 16, 32), block(TILE, TILE)`.
/// - `arch = 90`: the kernel needs compute capability 9.0, and is left out of images for less. `arch = "90a"`: it uses
///   instructions that GPUs of 9.0 alone have ([`tensor`]), and is in the code for `sm_90a` only.
/// - `stack = 16384`: each thread needs this many bytes of stack. Only for kernels that recurse, call through
///   pointers or `dyn`, or format with `core::fmt`, whose need the compiler does not know.
/// - `cooperative`: its blocks wait for each other, by [`grid::sync`]. Every launch is cooperative then, so that all
///   blocks are on the device at once; a grid too large for that is an error that says how large it may be.
/// - `dependent`: on compute capability 9.0 and later its launch may begin before the one ahead of it on the stream
///   has ended, as soon as that one calls [`grid::launch_dependents`]. That hides most of what a launch costs. A safe
///   kernel waits for the end of the launch ahead before it does anything, by [`grid::dependency_wait`]. An `unsafe
///   fn` does not: it has to call that itself, in every thread, before it touches memory that earlier launches
///   use, and can do before what needs none of it (load constants, clear shared memory). Elsewhere it changes
///   nothing.
/// - `no_panic`: it is a build error, with file and line, when a panic is left in the GPU code: a bounds check or an
///   assertion that the compiler cannot rule out. `warpsmith kernels` shows how many are left in any kernel, and where.
///   On the emulated device it changes nothing.
/// - `same_len(x, y)`: a launch whose slices or views of these names differ in length is an error that names them and their
///   lengths; the host checks it before the launch, in prepared launches and in graphs too. Views in two and three dimensions
///   agree in all sides, with a slice in the number of elements; of planes, one counts. `launch` among the names stands for
///   the threads that `Launch::auto`, `Launch::linear` or `Launch::cover` names, so that none of the elements is left out:
///   `same_len(x, y, launch)`. Groups that differ are separated by `;`: `same_len(x, y; a, b)`. Launches from kernels
///   ([`dynamic`]) are not checked.
/// - `bytes = x.bytes() + 2 * y.bytes()`: the bytes that a launch reads and writes in device memory, each as often as it
///   has to be moved. Traces and their tables then have the kernel's bandwidth, and its share of the device's peak. The
///   host computes the expression, an integer, from the arguments of a launch while a profiler records: a slice or view is
///   a `Shape` there, with `len()`, `bytes()`, `width()`, `height()` and `depth()`; values and pointers are what they are,
///   and generic parameters those of the instance: `bytes = n as usize * size_of::<T>()`. If it panics, the bytes of that
///   launch are unknown.
///
/// - `crate = path::to::gpu_std`: where gpu-std is, for a crate that re-exports it. The macros write `unsafe` code that relies on
///   it: whoever names another crate, or one that replaces parts of gpu-std, vouches for it.
///
/// # What it makes
///
/// The function stays as it is (with `#[inline(always)]` if it has no `#[inline]` of its own), so that other
/// kernels can call it. Beside it there is a type of the same name and generic parameters that is a
/// [`Kernel`] with the arguments of each [`Instance`], by which a launch names it, from the host or in [`dynamic`]; and, on the host, an
/// entry in the `registry`.
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[kernel(types(T = f32, f64), consts(ITEMS = 1, 4), launch_bounds(256))]
/// pub fn scale<T: Float, const ITEMS: usize>(a: T, mut x: DisjointMut<T, Chunks<ITEMS>>) {
///     if let Some(items) = x.get_mut(thread::unique_index()) {
///         for item in items {
///             *item = *item * a;
///         }
///     }
/// }
///
/// use gpu_std::Kernel;
/// assert_eq!(scale::<f64, 4>::spec().symbol, "scale__f64_4");
/// ```
///
/// # In generic code
///
/// Host code that is generic over the kernel's types asks for an instance, `scale<T, 4>: Instance`, besides the kernel's
/// own bounds; what a launch takes follows from the function's parameters.
///
/// ```
/// # use gpu_std::prelude::*;
/// # #[kernel(types(T = f32, f64))]
/// # pub fn scale<T: Float>(a: T, mut x: DisjointMut<T>) {}
/// use gpu_std::{Instance, Kernel, SafeKernel};
///
/// fn symbol<T: Float>() -> &'static str
/// where
///     scale<T>: Instance,
/// {
///     fn launchable<K: SafeKernel>() -> &'static str {
///         K::spec().symbol
///     }
///     launchable::<scale<T>>()
/// }
/// assert_eq!(symbol::<f64>(), "scale__f64");
/// ```
pub use gpu_macros::kernel;

/// Makes a function of elements a kernel over arrays: `out[i] = f(x[i], y[i], …)`.
///
/// The function takes up to four elements by value and returns one, of any types that kernels take. The kernel has
/// vectorised accesses at any alignment, and instances with 1 and 4 of them in flight in each thread.
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[elementwise]
/// pub fn scaled_relu(x: f32, y: f32) -> f32 { x.max(0.0) * y }
///
/// /// Whether `x` is above `limit`, as 0 or 1. The limit is one number for all.
/// #[elementwise(types(T = f32, bf16), scalars(limit))]
/// pub fn is_above<T: Float>(x: T, limit: T) -> u8 {
///     (x > limit) as u8
/// }
///
/// /// `momentum * y + x`, in the place of `y`.
/// #[elementwise(scalars(momentum), updates(y))]
/// pub fn accumulate(momentum: f32, x: f32, y: f32) -> f32 {
///     momentum * y + x
/// }
///
/// use gpu_std::Kernel;
/// assert_eq!(is_above::<bf16, 4, 16>::spec().symbol, "is_above__bf16_4_16");
/// assert_eq!(scaled_relu(2.0, 3.0), 6.0);
/// ```
///
/// `warpsmith::ops::map::<scaled_relu>(&stream, &KERNELS, (&x, &y, &mut out))` launches it: safe, with the lengths
/// checked, in the configuration that was tuned or else the default. As a kernel of its own it is
/// `scaled_relu<ITEMS, VECTOR>`, and the shortest array counts.
///
/// # Options
///
/// - `types(T = f32, bf16)`: what the generic parameters stand for, as for [`#[kernel]`](macro@kernel).
/// - `scalars(a, b)`: these parameters are one value for all elements, and not an array.
/// - `updates(y)`: the last parameter is also the output.
/// - `consts(ITEMS = 1, 4; VECTOR = 16)`: the instances, by accesses in flight in each thread and bytes of an access to the
///   array of the largest elements. These are the default.
/// - `launch_bounds(512)`, `arch = 90`, `no_panic`: as for [`#[kernel]`](macro@kernel). The first is the default.
pub use gpu_macros::elementwise;

/// Makes an associative and commutative operator a kernel that reduces an array to one value.
///
/// The operator combines two values of a type that kernels take, of at most 256 bytes without padding.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// The greatest element.
/// #[reduction(identity = f32::NEG_INFINITY)]
/// pub fn greatest(a: f32, b: f32) -> f32 { a.max(b) }
///
/// /// The sum of squares, in f32 also of bf16.
/// #[reduction(types(T = f32, bf16), identity = T::Accumulator::ZERO, fold = |sum, x: T| sum + x.to_acc() * x.to_acc())]
/// pub fn sum_of_squares<T: Float>(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator { a + b }
///
/// /// A point, and how far it is from the origin.
/// #[derive(Debug, Clone, Copy, PartialEq, KernelType)]
/// #[repr(C)]
/// pub struct Far {
///     pub distance: f32,
///     pub index: u32,
/// }
///
/// /// The farthest point; of two as far the first.
/// #[reduction(
///     identity = Far { distance: -1.0, index: u32::MAX },
///     fold = |best, p: [f32; 2], index| farthest(best, Far { distance: p[0] * p[0] + p[1] * p[1], index: index as u32 }),
///     finish = |best| -> u32 { best.index }
/// )]
/// pub fn farthest(a: Far, b: Far) -> Far {
///     if b.distance > a.distance || (b.distance == a.distance && b.index < a.index) { b } else { a }
/// }
/// ```
///
/// `warpsmith::ops::reduce::<greatest>(&stream, &KERNELS, &x)` launches it and gives the value; `ops::reduce_into` leaves it
/// on the device. Both are safe. The result has the same bits in every run of the same configuration. In which order the
/// values are combined is described in [`reduction`](mod@reduction).
///
/// # Options
///
/// - `identity = value`, required: the value of no elements; combined with another it gives the other.
/// - `fold = |value, x: X| …` or `|value, x: X, index| …`: how an element is taken in, when elements are of another type
///   than values. The type of `x` is that of the elements; `index` is a `u64` that increases from call to call on one value.
/// - `finish = |value| -> R { … }`: what the result is made of, in the end.
/// - `types(T = f32, bf16)`, `consts(ITEMS = 4; VECTOR = 16)`, `launch_bounds(512, 1)`, `arch = 90`, `no_panic`: as for
///   [`#[elementwise]`](macro@elementwise). These constants and bounds are the default.
pub use gpu_macros::reduction;

/// Makes an associative operator a kernel that scans an array: each result is that of all elements up to its own, or before
/// it.
///
/// The operator combines two values of a type that kernels take, without padding, in the order of their elements. It need
/// not commute.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// The product modulo a prime.
/// #[scan(identity = 1)]
/// pub fn product(a: u64, b: u64) -> u64 { a * b % 1_000_003 }
///
/// /// `x -> factor * x + offset`.
/// #[derive(Debug, Clone, Copy, PartialEq, KernelType)]
/// #[repr(C)]
/// pub struct Affine {
///     pub factor: f32,
///     pub offset: f32,
/// }
///
/// /// One function after the other: a linear recurrence.
/// #[scan(identity = Affine { factor: 1.0, offset: 0.0 })]
/// pub fn then(a: Affine, b: Affine) -> Affine {
///     Affine { factor: a.factor * b.factor, offset: a.offset * b.factor + b.offset }
/// }
/// ```
///
/// `warpsmith::ops::inclusive_scan::<product>(&stream, &KERNELS, &x, &mut out)` launches it, `ops::exclusive_scan` with a
/// value to begin with. Both are safe. The result has the same bits in every run of the same configuration, as
/// [`scan`](mod@scan) describes.
///
/// # Options
///
/// - `identity = value`, required: combined with another it gives the other, every bit of it.
/// - `types(T = f32, f64)`, `consts(ITEMS = 4; VECTOR = 16)`, `launch_bounds(256)`, `arch = 90`, `no_panic`: as for
///   [`#[elementwise]`](macro@elementwise). These constants and bounds are the default.
pub use gpu_macros::scan;

/// Prints from a kernel, with a C format that is checked when the kernel is compiled.
///
/// | conversion | argument |
/// | --- | --- |
/// | `%d` `%i` | any integer or `bool`, as a signed number |
/// | `%u` `%x` `%X` `%o` | any integer or `bool`, as an unsigned number of its size |
/// | `%f` `%e` `%g` `%a` | `f32`, `f64`, `f16`, `bf16` |
/// | `%c` | a `char` or `u8` |
/// | `%s` | a `&CStr`, such as `c"text"` |
/// | `%p` | a pointer or reference |
/// | `%%` | none: a percent sign |
///
/// Flags, width and precision are as in C, except `*`. Lengths such as `l` are not needed. On a GPU the text
/// appears when the host waits for the stream; a full buffer loses the oldest text.
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[kernel]
/// fn greet(x: &[f32]) {
///     let i = thread::index_1d();
///     printf!("thread %u has %.3f\n", i, x[i as usize]);
/// }
/// ```
pub use gpu_macros::printf;
pub use gpu_spec::{
    Claims, ConstArgument, Extents2, Extents3, Instance, Kernel, KernelInfo, KernelSpec, LaunchBounds,
    ParamKind, ParamSpec, SafeKernel, SharedLen, TypeArgument, param,
};
pub use half::{self, bf16, f16};
pub use shared::{DoubleBuffer, Padded, Shared};
pub use tensor::TensorMap;
pub use vector::Vector;
pub use view::{Slice2, Slice3};

/// The compute capability that the running code was compiled for, as `10 * major + minor`: 80, 90; 0 on the
/// emulated device.
///
/// A constant to the optimiser: `if arch() >= 90 { … }` leaves nothing of itself in the code.
#[inline(always)]
pub fn arch() -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        // SAFETY: the name is a constant string with a NUL. Casts alone lead to it, since the pass that answers
        // the call runs before any function is inlined.
        unsafe { nvvm::__nvvm_reflect(b"__CUDA_ARCH\0" as *const [u8; 12] as *const u8) as u32 / 10 }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        0
    }
}
