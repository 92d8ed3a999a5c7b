//! Device library: the API that Rust kernels call.
//!
//! Every function has two bodies. The version compiled for `nvptx64` emits GPU instructions. The version compiled for
//! the host calls the emulated device, so that the same kernel runs in `cargo test` on any machine. The host side needs
//! only stable Rust; `warpsmith-builder` compiles the GPU side.
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
//! | module | contents |
//! | --- | --- |
//! | [`thread`], [`block`] | thread indices, barriers, memory fences; block-wide reductions and scans |
//! | [`cluster`] | thread block clusters, distributed shared memory |
//! | [`grid`] | the whole grid: barrier for cooperative launches, programmatic dependent launch |
//! | [`warp`] | warp shuffles, votes, matches and reductions |
//! | [`tile`] | the operations of `warp`, and scans, for sub-warp groups of lanes |
//! | [`group`] | grid, cluster, block and tile as types, for generic code |
//! | [`radix`] | stable ranks of the digits in a block, for sorting |
//! | [`look_back`] | single-pass scans over all blocks by decoupled look-back, bit-identical in every run |
//! | [`mod@scan`] | scans of whole arrays, with any associative operator |
//! | [`disjoint`] | mutable views that assign each thread its own elements |
//! | [`view`] | read-only 2-D and 3-D views |
//! | [`shared`] | block-shared arrays: [`Shared`], [`DoubleBuffer`]; [`shared_array!`] for unsafe code |
//! | [`tensor`] | tensor-core matrix products (`mma`, `wgmma`) and TMA copies |
//! | [`atomic`] | atomic operations with an ordering and a scope |
//! | [`graph`] | conditions of conditional graph nodes |
//! | [`mod@elementwise`], [`mod@reduction`] | elementwise functions and reduction operators as kernels over arrays |
//! | [`vector`] | vector loads and stores of up to 32 bytes |
//! | [`vectorized`] | vectorized distribution of an array over the threads of a launch |
//! | [`scalar`] | numeric traits for kernels: conversions, NaN-propagating minimum and maximum, accumulator types |
//! | [`clock`] | cycle and nanosecond counters |
//! | [`math`] | `exp`, `sin`, `erf` and others, in accurate and fast versions |
//! | [`random`] | Philox random numbers, uniform and normal |
//! | [`mod@printf`] | text output from a kernel |
//! | [`element`], [`checked`] | types that a kernel can take as parameters; `bool` and enums in buffers |
//! | [`per_block`], [`per_tile`] | mutable views that assign each block or tile its own elements |
//! | `registry` | all kernels of the program (host only) |
//!
//! A panic in a kernel, such as a failed `assert!` or an index out of range, stops the launch. The host receives an
//! error that contains the message, file and line, kernel, block and thread.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(asm_experimental_arch, core_intrinsics, link_llvm_intrinsics, portable_simd),
    allow(internal_features)
)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate self as gpu_std;

/// Evaluates the first expression on the GPU and the second on the emulated device.
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
pub mod element;
pub mod elementwise;
#[cfg(not(target_arch = "nvptx64"))]
#[doc(hidden)]
pub mod family;
pub mod graph;
pub mod grid;
pub mod group;
#[cfg(not(target_arch = "nvptx64"))]
mod host;
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
pub use disjoint::{Chunks, DisjointMut, DisjointMut2, DisjointMut3, Elements};
pub use element::{KernelType, KernelValue, SliceElement};
#[cfg(feature = "glam")]
pub use glam;
/// Derives [`KernelType`](trait@KernelType) and [`KernelValue`](trait@KernelValue) for a struct, and the bytemuck
/// traits that they require.
///
/// The struct must be `#[repr(C)]` or `#[repr(transparent)]` and must not have padding; declare any padding as a field.
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
/// Each instance of a generic struct is checked where a kernel uses it:
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
/// A struct without a fixed layout does not compile:
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
/// Derives [`KernelValue`](trait@KernelValue) for a struct or a fieldless enum, so that a kernel can take it by value.
///
/// A struct must be `#[repr(C)]` or `#[repr(transparent)]`; padding is allowed. An enum must have an integer `repr`.
/// The enum can be stored in buffers as [`Checked`].
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
/// Places a static in the block's shared memory.
///
/// Declare the static as `MaybeUninit`; it becomes a [`shared::SharedStatic`]. Its
/// [`as_mut_ptr`](shared::SharedStatic::as_mut_ptr) returns the address in the calling block's shared memory.
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
pub use per_block::PerBlock;
pub use per_tile::PerTile;
#[cfg(not(target_arch = "nvptx64"))]
pub use shape::Shape;

/// Turns a function into a kernel that the host can launch.
///
/// # Parameters
///
/// | type | meaning | argument of a launch |
/// | --- | --- | --- |
/// | `T` | a plain value (see [`KernelValue`](trait@KernelValue)) | the value |
/// | `&[T]` | a slice that all threads read | a borrowed buffer |
/// | `&[Atomic<T>]` | a slice that all threads read and update atomically | a mutably borrowed buffer of `T` |
/// | `DisjointMut<T, M>` | a mutable view that assigns each thread its own elements | a mutably borrowed buffer |
/// | `Slice2<T>`, `Slice3<T>` | a 2-D or 3-D view that all threads read | `buffer.as_2d(rows, columns)?`, `as_3d` |
/// | `DisjointMut2<T, M>`, `DisjointMut3<T>` | a mutable 2-D or 3-D view that assigns each thread its own elements | `buffer.as_2d_mut(rows, columns)?`, `as_3d_mut` |
/// | `Slice2<Atomic<T>>`, `Slice3<Atomic<T>>` | a view that all threads read and update atomically | `buffer.as_2d_mut(rows, columns)?`, `as_3d_mut` |
/// | `Option` of one of these, such as `Option<&[T]>` or `Option<DisjointMut2<T, M>>` | an optional slice or view | `Some` of the corresponding argument, or `None::<&DeviceBuffer<T>>`, `None::<DeviceSliceMut2<T>>` |
/// | [`Shared<[T; N]>`](Shared), [`DoubleBuffer<[T; N]>`](DoubleBuffer) | an array in the block's shared memory | no argument, because the array is not a parameter of the launch |
/// | `Shared<[T]>`, `DoubleBuffer<[T]>` | an array of launch-time length in the block's dynamic shared memory | [`SharedLen(length)`](SharedLen) |
/// | [`&TensorMap<T, RANK>`](TensorMap) | a tensor that TMA copies in boxes | a tensor map of a buffer |
/// | `*const T`, `*mut T` | a pointer, only in an `unsafe fn` | a buffer or device pointer |
///
/// A kernel is a free function without a return value. A kernel that is a safe function can be launched from safe code.
///
/// The mutable views of a kernel limit the dimensions of its launches. If all mutable views are `DisjointMut`, launches
/// must be one-dimensional. If a kernel has a `DisjointMut2`, launches can have up to two dimensions. A kernel without
/// mutable views can be launched in any number of dimensions.
///
/// # Options
///
/// - `types(T = f32, f64; U = u8)`, `consts(ITEMS = 1, 2, 4)`: the values of the generic parameters. The kernel is
///   compiled for each combination. For example, `axpy<f32, 4>` has the symbol `axpy__f32_4`.
/// - `launch_bounds(max_threads)` or `launch_bounds(max_threads, min_blocks)`: promises that blocks have at most
///   `max_threads` threads, and limits registers so that `min_blocks` blocks fit on a multiprocessor (SM).
/// - `block(x)`, `block(x, y)` or `block(x, y, z)`: every launch uses blocks of exactly this size. A launch that does
///   not specify the block size (such as `Launch::cover((width, height))`) uses this size. Launching with any other
///   block size is an error. Inside the kernel the block size is a compile-time constant.
/// - `cluster(x)`, `cluster(x, y)` or `cluster(x, y, z)`: every launch groups its blocks into clusters of this size
///   (see [`cluster`]). The option implies `arch = 90`.
///
///   The arguments of these three options can be constants, including those of `consts(…)`: `consts(TILE = 16, 32),
///   block(TILE, TILE)`.
/// - `arch = 90`: the kernel requires compute capability 9.0 and is left out of images for lower compute capabilities.
///   `arch = "90a"`: the kernel uses instructions that only GPUs with compute capability 9.0 support ([`tensor`]), and
///   is compiled only for `sm_90a`.
/// - `stack = 16384`: the stack size per thread, in bytes. Specify it only for kernels whose stack use the compiler
///   cannot compute: kernels that recurse, call through pointers or `dyn`, or format with `core::fmt`.
/// - `cooperative`: the blocks of the kernel wait for each other with [`grid::sync`]. Every launch is then cooperative,
///   so all blocks are resident at the same time. If the grid is too large to be resident, the launch fails with an
///   error that states the maximum size.
/// - `dependent`: programmatic dependent launch (PDL), on compute capability 9.0 and later. The launch may start before
///   the preceding launch on the stream has completed, once the preceding launch calls [`grid::launch_dependents`]. The
///   overlap hides most of the launch overhead. A safe kernel calls [`grid::dependency_wait`] automatically at its
///   start, so it waits until the preceding launch has completed. An `unsafe fn` must make this call itself, in every
///   thread, before it accesses memory that earlier launches use. Before the call, it can do independent work, such as
///   loading constants or clearing shared memory. On other devices the option has no effect.
/// - `no_panic`: a panic that remains in the GPU code is a build error with file and line. Such panics come from bounds
///   checks and assertions that the compiler cannot prove to hold. `warpsmith kernels -p .` shows how many panics
///   remain in each kernel, and where. The option has no effect on the emulated device.
/// - `same_len(x, y)`: a launch is an error if the named slices or views differ in length. The error states their names
///   and lengths. The host checks the lengths before the launch, including for prepared launches and graphs. 2-D and
///   3-D views must agree in all sides, and a view and a slice must agree in the number of elements. `launch`
///   represents the number of threads that `Launch::auto`, `Launch::linear` or `Launch::cover` specifies. With
///   `same_len(x, y, launch)`, the check also ensures that no element is left out. If a mutable view of the group has
///   the mapping [`Chunks<N>`](Chunks), the launch must have one thread per `N` elements. Separate independent groups
///   with `;`: `same_len(x, y; a, b)`.
/// - `bytes = x.bytes() + 2 * y.bytes()`: the number of bytes that a launch reads and writes in device memory. Count a
///   byte once for each time it must be transferred. Traces and their tables then show the kernel's bandwidth and its
///   fraction of the device's peak. The host computes this integer expression from the launch arguments while a
///   profiler records. In the expression, a slice or view is a `Shape`, with `len()`, `bytes()`, `planes()`, `rows()`
///   and `columns()`. Values and pointers are used as they are, and generic parameters have the values of the instance:
///   `bytes = n as usize * size_of::<T>()`. If the expression panics, the bytes of that launch are unknown.
///
/// - `crate = path::to::gpu_std`: the path of gpu-std, for use in a crate that re-exports it. The macros emit `unsafe`
///   code that relies on gpu-std. If you name a different crate, or a crate that replaces parts of gpu-std, you
///   guarantee that it is equivalent.
///
/// # Generated items
/// The macro leaves the function itself unchanged (except for `#[inline(always)]` if it has no `#[inline]` attribute),
/// so that other kernels can call it. The macro adds a type with the same name and generic parameters. The type
/// implements [`Kernel`], and [`Instance`] for each listed combination of generic arguments. Launches name this type.
/// On the host the macro also adds an entry to the `registry`.
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
/// Host code that is generic over the kernel's type parameters needs the bound `scale<T, 4>: Instance`, in addition to
/// the kernel's own bounds. The launch arguments follow from the function's parameters.
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

/// Turns a scalar function into an elementwise kernel over arrays: `out[i] = f(x[i], y[i], …)`.
///
/// The function takes up to four elements by value and returns one element. Elements can be of any kernel type. The
/// kernel uses vectorized accesses at any alignment. The kernel has instances with 1 and with 4 accesses in flight per
/// thread.
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
/// To launch it, call `warpsmith::ops::map::<scaled_relu>(&stream, &KERNELS, (&x, &y, &mut out))`. The call is safe,
/// checks the lengths, and uses the tuned configuration, or the default configuration if the kernel has not been tuned.
/// The kernel's name is `scaled_relu<ITEMS, VECTOR>`. A direct launch processes as many elements as the shortest array
/// contains.
///
/// # Options
///
/// - `types(T = f32, bf16)`: the values of the generic parameters, as for [`#[kernel]`](macro@kernel).
/// - `scalars(a, b)`: each of these parameters is one value for all elements, not an array.
/// - `updates(y)`: the last parameter is both an input and the output.
/// - `consts(ITEMS = 1, 4; VECTOR = 16)`: the constants of the instances. `ITEMS` is the number of accesses in flight
///   per thread, and `VECTOR` is the number of bytes per access to the array with the largest elements. The values
///   shown are the defaults.
/// - `launch_bounds(512)`, `arch = 90`, `no_panic`: as for [`#[kernel]`](macro@kernel). `launch_bounds(512)` is the
///   default.
pub use gpu_macros::elementwise;

/// Turns an associative and commutative operator into a kernel that reduces an array to one value.
///
/// The operator combines two values of a kernel type without padding. A value can have at most 256 bytes.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// The largest element.
/// #[reduction(identity = f32::NEG_INFINITY)]
/// pub fn largest(a: f32, b: f32) -> f32 { a.max(b) }
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
///     fold = |best, p: [f32; 2], index| farthest(best, Far { distance: p[0] * p[0] + p[1] * p[1], index: index as u32
///     }), finish = |best| -> u32 { best.index } )] pub fn farthest(a: Far, b: Far) -> Far { if b.distance > a.distance
///     || (b.distance == a.distance && b.index < a.index) { b } else { a } }
/// ```
///
/// `warpsmith::ops::reduce::<largest>(&stream, &KERNELS, &x)` launches the kernel and returns the value.
/// `ops::reduce_into` leaves the value on the device. Both are safe. The result is bit-identical in all runs of the
/// same configuration. [`reduction`](mod@reduction) describes the order in which values are combined.
///
/// # Options
///
/// - `identity = value` (required): the identity element of the operator, which is also the result for an empty array.
/// - `fold = |value, x: X| …` or `|value, x: X, index| …`: accumulates an element `x` of type `X` into a value. The
///   closure is required if elements and values have different types. `index` is a `u64` that increases with each call
///   for the same value.
/// - `finish = |value| -> R { … }`: converts the final value to the result.
/// - `types(T = f32, bf16)`, `consts(ITEMS = 4; VECTOR = 16)`, `launch_bounds(512, 1)`, `arch = 90`, `no_panic`: as for
///   [`#[elementwise]`](macro@elementwise). The values shown are the defaults.
pub use gpu_macros::reduction;

/// Turns an associative operator into a kernel that scans an array. Each result combines all elements up to and
/// including its own position (inclusive), or before it (exclusive).
///
/// The operator combines two values of a kernel type without padding, in the order of their elements. The operator need
/// not be commutative.
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
/// `warpsmith::ops::inclusive_scan::<product>(&stream, &KERNELS, &x, &mut out)` launches the kernel.
/// `ops::exclusive_scan` also takes an initial value. Both are safe. The result is bit-identical in all runs of the
/// same configuration, as [`scan`](mod@scan) explains.
///
/// # Options
///
/// - `identity = value` (required): combining it with any value must result in the bit-identical value.
/// - `types(T = f32, f64)`, `consts(ITEMS = 5; VECTOR = 16)`, `launch_bounds(256, 2)`, `arch = 90`, `no_panic`: as for
///   [`#[elementwise]`](macro@elementwise). The values shown are the defaults.
pub use gpu_macros::scan;

/// Prints from a kernel, using a C format string that is checked at compile time.
///
/// | conversion | argument |
/// | --- | --- |
/// | `%d` `%i` | any integer or `bool`, as a signed number |
/// | `%u` `%x` `%X` `%o` | any integer or `bool`, as an unsigned number of the same size |
/// | `%f` `%e` `%g` `%a` | `f32`, `f64`, `f16`, `bf16` |
/// | `%c` | a `char` or `u8` |
/// | `%s` | a `&CStr`, such as `c"text"` |
/// | `%p` | a pointer or reference |
/// | `%%` | no argument; prints a percent sign |
///
/// Flags, width and precision work as in C, except that `*` is not supported. Length modifiers such as `l` are not
/// needed. On a GPU, the output appears when the host waits for the stream. If the buffer is full, the oldest output is
/// lost.
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

/// Returns the compute capability for which the running code was compiled, as `10 * major + minor` (such as 80 or 90),
/// or 0 on the emulated device.
///
/// The result is a compile-time constant, so the optimizer removes the test in `if arch() >= 90 { … }`.
#[inline(always)]
pub fn arch() -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        // SAFETY: the name is a NUL-terminated constant string. The pointer must be produced by casts only, because the
        // LLVM pass that resolves the call runs before inlining.
        unsafe { nvvm::__nvvm_reflect(b"__CUDA_ARCH\0" as *const [u8; 12] as *const u8) as u32 / 10 }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        0
    }
}
