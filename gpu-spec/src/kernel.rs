//! One kernel instance. [`KernelInfo`] is its data, [`KernelSpec`] adds its code for the emulated device, and
//! [`Kernel`] represents the instance as a type.

use core::ffi::c_void;

use crate::extents::{Claims, Extents2, Extents3};
use crate::lengths::CheckLengths;
use crate::limits::LaunchBounds;
use crate::tensor_map::TensorMapData;

/// A function that runs one GPU thread of a kernel on the CPU.
///
/// `args` points to one pointer per kernel parameter (PTX `.param`), in the same format as for `cuLaunchKernel`. A
/// parameter that is passed by value is one kernel parameter. A slice or a disjoint view is passed as two kernel
/// parameters: a pointer and a `usize` length, or a pointer and [`Extents2`] or [`Extents3`]. A raw pointer is one
/// kernel parameter, and so is the `usize` length of a shared array. A tensor map is one kernel parameter of 128 bytes.
pub type HostEntry = unsafe fn(args: *const *const c_void);

/// A function that computes how many bytes of device memory a launch reads and writes, from `#[kernel(bytes = …)]`.
/// `args` has the same format as for a [`HostEntry`]. The function does not read the memory to which the arguments
/// point.
pub type BytesOfLaunch = unsafe fn(args: *const *const c_void) -> u64;

/// One kernel instance: its symbol, parameters and limits.
///
/// ```
/// /// Describes a kernel in one line.
/// fn line(kernel: &gpu_spec::KernelInfo) -> String {
///     format!("{} {}: {}", kernel.package, kernel.version, kernel.symbol)
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct KernelInfo {
    /// Name of the kernel in the source, such as `axpy`.
    pub name: &'static str,
    /// Symbol of this instance in the GPU image, such as `axpy__f32_4_16`. If several kernels have this symbol, the
    /// image appends their module paths (see [`qualified`](crate::image::qualified)).
    pub symbol: &'static str,
    /// Package that defines the kernel, such as `gpu-kernels`.
    pub package: &'static str,
    /// Version of that package.
    pub version: &'static str,
    /// Path of the Rust module that defines the kernel, starting with the crate. The path is empty for a handwritten
    /// kernel.
    pub module: &'static str,
    /// Hash of the path of that package's folder, as in [`Source`](crate::image::Source), or 0 if unknown.
    pub folder: u64,
    /// Type arguments of this instance, in declaration order. The list is empty if the kernel has no type parameters.
    pub types: &'static [TypeArgument],
    /// Const arguments of this instance, in declaration order.
    pub consts: &'static [ConstArgument],
    /// Parameters as written in the source.
    pub params: &'static [ParamSpec],
    /// Limits declared with `launch_bounds`, or `None` if no limits are declared.
    pub launch_bounds: Option<LaunchBounds>,
    /// Block size that every launch must have, from `block(16, 16)`.
    pub block: Option<[u32; 3]>,
    /// Cluster size that every launch must have, from `cluster(2, 1)`.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of static shared memory per block for the kernel's parameters `Shared<[T; N]>` and `DoubleBuffer<[T; N]>`.
    /// `shared_array!` in the kernel's body uses additional shared memory. The dynamic shared memory of parameters
    /// `Shared<[T]>` depends on the launch (see [`Self::has_dynamic_shared`]).
    pub static_shared: u32,
    /// Launch shapes in which each index of the kernel's mutable views belongs to one thread.
    pub claims: Claims,
    /// Number of elements that each claim owns, from a mapping such as `Chunks<N>`: the maximum over the kernel's
    /// mutable views. 1 for other mappings.
    pub items: usize,
    /// Stack size per thread, from `stack = BYTES`. If `None`, the builder's analysis determines the size.
    pub stack: Option<u32>,
    /// Minimum compute capability for this kernel, as `10 * major + minor`. 0 means any compute capability.
    pub min_arch: u32,
    /// True if only this exact compute capability can run the kernel, from `arch = "90a"`.
    pub is_arch_specific: bool,
    /// True if the kernel is a safe function.
    pub is_safe: bool,
    /// True if blocks of the kernel wait for each other, so that all of them must be resident at the same time.
    pub cooperative: bool,
    /// True if the kernel can start before the preceding kernel on the stream has completed (PDL). The kernel must wait
    /// for the preceding kernel explicitly.
    pub dependent: bool,
}

/// One kernel instance that the program launches, on a GPU or on the emulated device.
///
/// A program lists the [`KernelInfo`] of all kernels in its crates, but contains code for the emulated device only for
/// the kernels that it launches. Therefore, the two types are separate.
#[derive(Debug)]
pub struct KernelSpec {
    /// Data of the instance. Through `Deref`, its fields are also fields of this type.
    pub info: KernelInfo,
    /// Entry point that the emulated device calls.
    pub entry: HostEntry,
    /// Function that computes the bytes that a launch transfers, for the bandwidth in traces, or `None` if the kernel
    /// does not declare them.
    pub bytes: Option<BytesOfLaunch>,
    /// Function that checks the lengths of the arguments, or `None` if the kernel has no length requirements.
    pub lengths: Option<CheckLengths>,
}

impl core::ops::Deref for KernelSpec {
    type Target = KernelInfo;

    #[inline(always)]
    fn deref(&self) -> &KernelInfo {
        &self.info
    }
}

impl KernelSpec {
    /// Creates the spec of a handwritten kernel from the data that [`KernelInfo::new`] returns.
    pub const fn new(
        package: &'static str,
        version: &'static str,
        symbol: &'static str,
        params: &'static [ParamSpec],
        entry: HostEntry,
    ) -> Self {
        Self { info: KernelInfo::new(package, version, symbol, params), entry, bytes: None, lengths: None }
    }
}

impl KernelInfo {
    /// Creates the data of a handwritten kernel: a safe function whose name is its symbol and that has no type
    /// arguments, const arguments, limits or requirements.
    pub const fn new(
        package: &'static str,
        version: &'static str,
        symbol: &'static str,
        params: &'static [ParamSpec],
    ) -> Self {
        Self {
            name: symbol,
            symbol,
            package,
            version,
            module: "",
            folder: 0,
            types: &[],
            consts: &[],
            params,
            launch_bounds: None,
            block: None,
            cluster: None,
            static_shared: 0,
            claims: Claims::Any,
            items: 1,
            stack: None,
            min_arch: 0,
            is_arch_specific: false,
            is_safe: true,
            cooperative: false,
            dependent: false,
        }
    }

    /// Returns true if the kernel has arrays in dynamic shared memory (`Shared<[T]>` or `DoubleBuffer<[T]>`).
    pub fn has_dynamic_shared(&self) -> bool {
        self.params.iter().any(|param| param.kind == ParamKind::Shared)
    }

    /// Returns the short name (such as `"f32"`) of the type argument for the type parameter `parameter` (such as
    /// `"T"`).
    pub fn type_argument(&self, parameter: &str) -> Option<&'static str> {
        self.types.iter().find(|t| t.parameter == parameter).map(|t| t.name)
    }

    /// Returns the value of the const parameter `parameter` (such as `"ITEMS"`).
    pub fn const_argument(&self, parameter: &str) -> Option<i64> {
        self.consts.iter().find(|c| c.parameter == parameter).map(|c| c.value)
    }
}

/// A type argument of an instance, such as `T = f32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeArgument {
    /// Name of the parameter.
    pub parameter: &'static str,
    /// Last segment of the type's path, such as `f32` or `bf16`.
    pub name: &'static str,
}

/// A const argument of an instance, such as `ITEMS = 4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConstArgument {
    /// Name of the parameter.
    pub parameter: &'static str,
    /// The value, which is 0 or 1 for a boolean.
    pub value: i64,
}

/// One parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamSpec {
    /// Name of the parameter in the source.
    pub name: &'static str,
    /// Kind of the parameter, which determines how it is passed.
    pub kind: ParamKind,
    /// Type as written in the source, for error messages.
    pub type_name: &'static str,
    /// Size in bytes of the value, or of one element of a slice, view or pointer.
    pub size: usize,
    /// Alignment in bytes of the value or element.
    pub align: usize,
    /// Other properties on which both compilers must agree, as a [`signature`](crate::signature()).
    pub signature: u32,
}

impl ParamSpec {
    /// Returns the record that the device compiler must emit for this parameter.
    pub const fn abi(&self) -> AbiParam {
        AbiParam::new(self.kind, self.size, self.align, self.signature)
    }

    /// Returns the kernel parameters (PTX `.param`) that represent this parameter, in order.
    pub fn lower(&self) -> impl Iterator<Item = PtxParam> + use<> {
        let (first, second) = self.kind.lower(self.size, self.align);
        core::iter::once(first).chain(second)
    }
}

/// One kernel parameter, as a compiler sees it: its kind, size, alignment and signature.
///
/// The host compiler stores this record in [`KernelInfo::params`]. The device compiler stores it in the GPU code. Next
/// to the entry with symbol `S`, the GPU code contains a constant `[AbiParam; N]` with the symbol `__warpsmith_abi.S`.
/// The constant has one element per parameter, in source order. For a kernel without parameters, the length is 0. In
/// LLVM IR, the constant is an array of bytes with little-endian numbers, or `zeroinitializer`. The builder compares
/// these constants with the kernel parameters of the entries. No code refers to the constants, so they do not remain in
/// the PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct AbiParam {
    /// [`ParamKind`] as a number.
    pub kind: u32,
    /// Size in bytes of the value, or of one element of a slice, view or pointer.
    pub size: u32,
    /// Alignment in bytes of the value or element.
    pub align: u32,
    /// The [`signature`](crate::signature()) of the type's name and contents. For an enum, the contents are its
    /// variants and their numbers. The signature also covers the mapping of a view or the dimensions of a tensor,
    /// whether the parameter is optional, and the kernel's own declarations.
    pub signature: u32,
}

impl AbiParam {
    /// Symbol prefix of the record. The kernel's symbol follows the prefix.
    pub const PREFIX: &str = "__warpsmith_abi.";

    /// Creates the record of a parameter. Sizes of 4 GiB or more become `u32::MAX`.
    pub const fn new(kind: ParamKind, size: usize, align: usize, signature: u32) -> Self {
        const fn clamp(bytes: usize) -> u32 {
            if bytes > u32::MAX as usize { u32::MAX } else { bytes as u32 }
        }
        Self { kind: kind as u32, size: clamp(size), align: clamp(align), signature }
    }

    /// Returns the total size, in bytes, of the kernel parameters for `params`. Each parameter is stored at the next
    /// multiple of its alignment.
    pub const fn ptx_param_bytes(params: &[Self]) -> usize {
        let mut bytes = 0usize;
        let mut i = 0;
        while i < params.len() {
            let (first, second) = params[i].lower();
            bytes = bytes.next_multiple_of(first.align) + first.size;
            if let Some(second) = second {
                bytes = bytes.next_multiple_of(second.align) + second.size;
            }
            i += 1;
        }
        bytes
    }

    /// Returns the one or two kernel parameters that represent this parameter.
    pub const fn lower(self) -> (PtxParam, Option<PtxParam>) {
        let mut known = 0;
        while known < ParamKind::ALL.len() {
            if ParamKind::ALL[known] as u32 == self.kind {
                return ParamKind::ALL[known].lower(self.size as usize, self.align as usize);
            }
            known += 1;
        }
        ParamKind::Value.lower(self.size as usize, self.align as usize)
    }
}

/// The kind of a parameter, which determines how it is passed. The numbers are part of the GPU image format and must
/// never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ParamKind {
    /// `T`: the bytes of the value.
    Value = 0,
    /// `&[T]`: a device pointer and a length in elements.
    Slice = 1,
    /// A disjoint mutable view: a device pointer and a length in elements.
    SliceMut = 2,
    /// `*const T`: a device pointer.
    Pointer = 3,
    /// `*mut T`: a device pointer.
    PointerMut = 4,
    /// A read-only 2-D view: a device pointer and [`Extents2`].
    Slice2 = 5,
    /// A disjoint mutable 2-D view: a device pointer and [`Extents2`].
    SliceMut2 = 6,
    /// A read-only 3-D view: a device pointer and [`Extents3`].
    Slice3 = 7,
    /// A disjoint mutable 3-D view: a device pointer and [`Extents3`].
    SliceMut3 = 8,
    /// An array in dynamic shared memory, passed as its length in elements (see [`SharedLen`](crate::SharedLen)).
    Shared = 9,
    /// A tensor map, passed by value as [`TensorMapData`].
    TensorMap = 10,
}

/// The size and alignment of one kernel parameter (PTX `.param`), in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PtxParam {
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
}

impl PtxParam {
    const fn of<T>() -> Self {
        Self { size: size_of::<T>(), align: align_of::<T>() }
    }
}

impl ParamKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Value,
        Self::Slice,
        Self::SliceMut,
        Self::Pointer,
        Self::PointerMut,
        Self::Slice2,
        Self::SliceMut2,
        Self::Slice3,
        Self::SliceMut3,
        Self::Shared,
        Self::TensorMap,
    ];

    /// Returns the number of kernel parameters that represent a parameter of this kind.
    pub const fn ptx_param_count(self) -> usize {
        match self.lower(0, 1).1 {
            Some(_) => 2,
            None => 1,
        }
    }

    /// Returns true if the kernel writes through the parameter as a mutable view.
    pub const fn is_mutable_view(self) -> bool {
        matches!(self, Self::SliceMut | Self::SliceMut2 | Self::SliceMut3)
    }

    /// Returns the kernel parameters for a value, or for elements, of this size and alignment.
    pub const fn lower(self, size: usize, align: usize) -> (PtxParam, Option<PtxParam>) {
        let word = PtxParam::of::<u64>();
        let second = match self {
            Self::Value => return (PtxParam { size, align }, None),
            Self::TensorMap => return (PtxParam::of::<TensorMapData>(), None),
            Self::Pointer | Self::PointerMut | Self::Shared => None,
            Self::Slice | Self::SliceMut => Some(word),
            Self::Slice2 | Self::SliceMut2 => Some(PtxParam::of::<Extents2>()),
            Self::Slice3 | Self::SliceMut3 => Some(PtxParam::of::<Extents3>()),
        };
        (word, second)
    }
}

/// A kernel with generic arguments that its `#[kernel]` attribute lists. For example, `axpy<f32, 4, 16>` is an instance
/// if `#[kernel(types(…), consts(…))]` lists these arguments. A kernel without generic parameters has one instance,
/// which is the kernel itself.
///
/// Host code that is generic over a kernel's types uses this trait as a bound:
///
/// ```ignore
/// fn run<T: Scalar + DeviceCopy>(device: &Device, x: &DeviceBuffer<T>) -> Result<()>
/// where
///     scale<T>: Instance,
/// ```
///
/// # Safety
/// Only `#[kernel]` may implement this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an instance of the kernel",
    label = "the kernel does not list these arguments",
    note = "list them in the kernel's attribute, `#[kernel(types(T = f32, f64), consts(N = 1, 2))]`; in generic \
            code, add `where {Self}: Instance`"
)]
pub unsafe trait Instance: 'static {
    /// Returns the data of the instance.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn of_host() -> &'static KernelSpec;

    /// Returns the address of the instance's code.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    fn of_gpu() -> *const c_void;
}

/// A kernel instance as a type, such as `axpy<f32, 4, 16>`. The trait is implemented for every [`Instance`].
///
/// # Safety
/// Only `#[kernel]` may implement this trait. `Params` must list, in order, the markers of [`crate::param`] that match
/// the kernel parameters of both `spec().entry` and the symbol in the GPU image. On the GPU, `code()` must return the
/// address of that symbol.
pub unsafe trait Kernel: 'static {
    /// Tuple of [`crate::param`] markers.
    type Params;

    /// Returns the data of the instance.
    #[cfg(not(target_arch = "nvptx64"))]
    fn spec() -> &'static KernelSpec;

    /// Returns the address of the instance's code. A kernel on the GPU needs the address to launch the instance.
    #[cfg(target_arch = "nvptx64")]
    fn code() -> *const c_void;
}

/// A kernel that is a safe function. Any launch has defined behavior if its arguments have the correct types and its
/// shape is within the limits of the device and of the kernel's [`KernelInfo`].
///
/// # Safety
/// Only `#[kernel]` may implement this trait, for functions that are not marked `unsafe`.
#[diagnostic::on_unimplemented(
    message = "safe code cannot launch `{Self}`",
    label = "an unsafe kernel, or not an instance of a kernel",
    note = "launch an unsafe kernel with `launch_unsafe`, in an `unsafe` block that states why its conditions hold",
    note = "a generic kernel lists its instances, `#[kernel(types(T = f32, f64))]`; generic code adds `where {Self}: Instance`"
)]
pub unsafe trait SafeKernel: Kernel {}
