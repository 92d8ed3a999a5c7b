//! [`KernelInfo`]: one kernel instance as data, [`KernelSpec`]: with its code for the emulated device, and [`Kernel`]: the same as a type.

use core::ffi::c_void;

use crate::extents::{Claims, Extents2, Extents3};
use crate::lengths::CheckLengths;
use crate::limits::LaunchBounds;
use crate::tensor_map::TensorMapData;

/// Runs one GPU thread of a kernel on the CPU.
///
/// `args` points to one pointer per machine parameter, in order, exactly as `cuLaunchKernel` takes them: a
/// by-value parameter is one machine parameter; a slice or a disjoint view is two, a pointer and a `usize`
/// length, or a pointer and [`Extents2`] or [`Extents3`]; a raw pointer is one, and so is the `usize` length of a shared
/// array; a tensor map is its 128 bytes.
pub type HostEntry = unsafe fn(args: *const *const c_void);

/// The bytes of device memory that a launch with these arguments reads and writes, as `#[kernel(bytes = …)]` says. `args` are
/// those of a [`HostEntry`]; memory behind them is not read.
pub type BytesOfLaunch = unsafe fn(args: *const *const c_void) -> u64;

/// One instance of a kernel: what to load, what to pass, and what it may not exceed.
#[derive(Debug, Clone, Copy)]
pub struct KernelInfo {
    /// The kernel's name as written in the source, for example `axpy`.
    pub name: &'static str,
    /// The symbol of this instance in the GPU image, for example `axpy__f32_4_16`. Where several kernels have that name, the
    /// image adds their modules: [`qualified`](crate::image::qualified).
    pub symbol: &'static str,
    /// The package that defines the kernel, for example `gpu-kernels`.
    pub package: &'static str,
    /// The version of that package.
    pub version: &'static str,
    /// The path of the Rust module that defines it, the crate first; empty for one written by hand.
    pub module: &'static str,
    /// The hash of the path of that package's folder, as [`Source`](crate::image::Source) has it; 0 where it is not known.
    pub folder: u64,
    /// The type arguments of this instance, in declaration order; empty for a kernel without any.
    pub types: &'static [TypeArgument],
    /// The const arguments of this instance, in declaration order.
    pub consts: &'static [ConstArgument],
    /// The parameters, as written in the source.
    pub params: &'static [ParamSpec],
    /// Limits promised with `launch_bounds`; `None` when the kernel promises nothing.
    pub launch_bounds: Option<LaunchBounds>,
    /// The block that every launch must have, as `block(16, 16)` says.
    pub block: Option<[u32; 3]>,
    /// The cluster that every launch must have, as `cluster(2, 1)` says.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of shared memory that its parameters `Shared<[T; N]>` and `DoubleBuffer<[T; N]>` take of a block, whatever the
    /// launch; `shared_array!` in its body takes more. What its parameters `Shared<[T]>` take comes with the launch:
    /// [`Self::has_dynamic_shared`].
    pub static_shared: u32,
    /// The shapes in which the indices of its mutable views belong to one thread each.
    pub claims: Claims,
    /// Bytes of stack that each thread needs, as `stack = BYTES` says; `None` leaves it to what the builder finds.
    pub stack: Option<u32>,
    /// The least compute capability that has this kernel, as `10 * major + minor`; 0 means any.
    pub min_arch: u32,
    /// Whether no other compute capability has it, as `arch = "90a"` says.
    pub is_arch_specific: bool,
    /// Whether the kernel is a safe function.
    pub is_safe: bool,
    /// Whether its blocks wait for each other, so that all of them have to be on the device at once.
    pub cooperative: bool,
    /// Whether it may be started before the kernel ahead of it on the stream is done: it waits for that one explicitly.
    pub dependent: bool,
}

/// One instance of a kernel that the program launches, on a GPU or on the emulated device.
///
/// Apart from [`KernelInfo`], of which a program lists all kernels of its crates, so that the code for the emulated
/// device is linked for those only that it launches.
#[derive(Debug)]
pub struct KernelSpec {
    /// The instance; its fields are fields of this too.
    pub info: KernelInfo,
    /// The entry that the emulated device calls.
    pub entry: HostEntry,
    /// The bytes that a launch moves, for its bandwidth in traces; `None` when the kernel does not say.
    pub bytes: Option<BytesOfLaunch>,
    /// What the kernel requires of the lengths of its arguments; `None` when it requires nothing.
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
    /// A kernel written by hand, of [`KernelInfo::new`].
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
    /// A kernel written by hand: a safe function named as its symbol, with no type or const arguments, that promises and
    /// requests nothing.
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
            stack: None,
            min_arch: 0,
            is_arch_specific: false,
            is_safe: true,
            cooperative: false,
            dependent: false,
        }
    }

    /// Whether it has arrays in shared memory whose lengths come with the launch, `Shared<[T]>` or `DoubleBuffer<[T]>`.
    pub fn has_dynamic_shared(&self) -> bool {
        self.params.iter().any(|param| param.kind == ParamKind::Shared)
    }

    /// The type argument of parameter `parameter`, for example `"T"`, by its short name (`"f32"`).
    pub fn type_argument(&self, parameter: &str) -> Option<&'static str> {
        self.types.iter().find(|t| t.parameter == parameter).map(|t| t.name)
    }

    /// The value of const parameter `parameter`, for example `"ITEMS"`.
    pub fn const_argument(&self, parameter: &str) -> Option<i64> {
        self.consts.iter().find(|c| c.parameter == parameter).map(|c| c.value)
    }
}

/// `T = f32` of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeArgument {
    /// The parameter's name.
    pub parameter: &'static str,
    /// The last segment of the type's path, for example `f32` or `bf16`.
    pub name: &'static str,
}

/// `ITEMS = 4` of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConstArgument {
    /// The parameter's name.
    pub parameter: &'static str,
    /// Its value; booleans are 0 and 1.
    pub value: i64,
}

/// One parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamSpec {
    /// The parameter's name in the source.
    pub name: &'static str,
    /// How it is passed.
    pub kind: ParamKind,
    /// The type as written in the source, for messages.
    pub type_name: &'static str,
    /// Size in bytes of the value, or of one element behind a slice, view or pointer.
    pub size: usize,
    /// Alignment in bytes of the same.
    pub align: usize,
    /// What else has to be the same in both compilers, as a [`signature`](crate::signature()).
    pub signature: u32,
}

impl ParamSpec {
    /// The record that the device compiler has to make for this parameter.
    pub const fn abi(&self) -> AbiParam {
        AbiParam::new(self.kind, self.size, self.align, self.signature)
    }

    /// Its machine parameters, in order.
    pub fn machine(&self) -> impl Iterator<Item = MachineParam> + use<> {
        let (first, second) = self.kind.machine(self.size, self.align);
        core::iter::once(first).chain(second)
    }
}

/// One parameter of a kernel as a compiler understood it: kind, size, alignment and signature.
///
/// The host compiler writes it into [`KernelInfo::params`]. The device compiler writes it into the GPU code: beside
/// the entry with symbol `S` stands a constant `[AbiParam; N]` with the symbol `__warpsmith_abi.S`, one element for
/// each parameter in the source's order; a kernel without parameters has an array of length 0. In LLVM IR that is an
/// array of bytes, every number little-endian, or `zeroinitializer`. The builder compares the constants with the
/// entries' machine parameters; nothing refers to them, so none is left in the PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct AbiParam {
    /// The [`ParamKind`] as a number.
    pub kind: u32,
    /// Size in bytes of the value, or of one element behind a slice, view or pointer.
    pub size: u32,
    /// Alignment in bytes of the same.
    pub align: u32,
    /// The type's name and content (of an enum its variants and their numbers), the mapping of a view or the dimensions of a tensor, whether it is
    /// optional, and what the kernel promises of itself, as a [`signature`](crate::signature()).
    pub signature: u32,
}

impl AbiParam {
    /// Before the symbol of a kernel: the symbol of its record.
    pub const PREFIX: &str = "__warpsmith_abi.";

    /// The record of a parameter. Sizes of 4 GiB and more become `u32::MAX`.
    pub const fn new(kind: ParamKind, size: usize, align: usize, signature: u32) -> Self {
        const fn clamp(bytes: usize) -> u32 {
            if bytes > u32::MAX as usize { u32::MAX } else { bytes as u32 }
        }
        Self { kind: kind as u32, size: clamp(size), align: clamp(align), signature }
    }

    /// Bytes that the machine parameters of `params` take: each lies at the next multiple of its alignment.
    pub const fn machine_bytes(params: &[Self]) -> usize {
        let mut bytes = 0usize;
        let mut i = 0;
        while i < params.len() {
            let (first, second) = params[i].machine();
            bytes = bytes.next_multiple_of(first.align) + first.size;
            if let Some(second) = second {
                bytes = bytes.next_multiple_of(second.align) + second.size;
            }
            i += 1;
        }
        bytes
    }

    /// The machine parameters of this parameter, one or two.
    pub const fn machine(self) -> (MachineParam, Option<MachineParam>) {
        let mut known = 0;
        while known < ParamKind::ALL.len() {
            if ParamKind::ALL[known] as u32 == self.kind {
                return ParamKind::ALL[known].machine(self.size as usize, self.align as usize);
            }
            known += 1;
        }
        ParamKind::Value.machine(self.size as usize, self.align as usize)
    }
}

/// How a parameter is passed. The numbers are part of the format of GPU images: they never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ParamKind {
    /// `T`: the bytes of the value.
    Value = 0,
    /// `&[T]`: a device pointer and a length in elements.
    Slice = 1,
    /// A disjoint mutable view: a device pointer and a length in elements.
    SliceMut = 2,
    /// `*const T`.
    Pointer = 3,
    /// `*mut T`.
    PointerMut = 4,
    /// A view in two dimensions: a device pointer and [`Extents2`].
    Slice2 = 5,
    /// A disjoint mutable view in two dimensions: a device pointer and [`Extents2`].
    SliceMut2 = 6,
    /// A view in three dimensions: a device pointer and [`Extents3`].
    Slice3 = 7,
    /// A disjoint mutable view in three dimensions: a device pointer and [`Extents3`].
    SliceMut3 = 8,
    /// An array in dynamic shared memory: a length in elements, see [`SharedLen`](crate::SharedLen).
    Shared = 9,
    /// A tensor map: [`TensorMapData`], in the parameter itself.
    TensorMap = 10,
}

/// Size and alignment in bytes of what a launch passes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineParam {
    /// Its size.
    pub size: usize,
    /// Its alignment.
    pub align: usize,
}

impl MachineParam {
    const fn of<T>() -> Self {
        Self { size: size_of::<T>(), align: align_of::<T>() }
    }
}

impl ParamKind {
    /// All kinds, by their numbers.
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

    /// The number of machine parameters.
    pub const fn machine_params(self) -> usize {
        match self.machine(0, 1).1 {
            Some(_) => 2,
            None => 1,
        }
    }

    /// Whether the kernel writes through it.
    pub const fn is_mutable_view(self) -> bool {
        matches!(self, Self::SliceMut | Self::SliceMut2 | Self::SliceMut3)
    }

    /// The machine parameters for a value or elements of this size and alignment.
    pub const fn machine(self, size: usize, align: usize) -> (MachineParam, Option<MachineParam>) {
        let word = MachineParam::of::<u64>();
        let second = match self {
            Self::Value => return (MachineParam { size, align }, None),
            Self::TensorMap => return (MachineParam::of::<TensorMapData>(), None),
            Self::Pointer | Self::PointerMut | Self::Shared => None,
            Self::Slice | Self::SliceMut => Some(word),
            Self::Slice2 | Self::SliceMut2 => Some(MachineParam::of::<Extents2>()),
            Self::Slice3 | Self::SliceMut3 => Some(MachineParam::of::<Extents3>()),
        };
        (word, second)
    }
}

/// A kernel with arguments that it lists: `axpy<f32, 4, 16>` is an instance if `#[kernel(types(…), consts(…))]` names
/// these. A kernel without generic parameters is its only one.
///
/// Host code that is generic over a kernel's types asks for it:
///
/// ```ignore
/// fn run<T: Scalar + DeviceCopy>(device: &Device, x: &DeviceBuffer<T>) -> Result<()>
/// where
///     scale<T>: Instance,
/// ```
///
/// # Safety
///
/// Only `#[kernel]` implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an instance of the kernel",
    label = "the kernel does not list these arguments",
    note = "list them at the kernel, `#[kernel(types(T = f32, f64), consts(N = 1, 2))]`; in generic code, add `where {Self}: Instance`"
)]
pub unsafe trait Instance: 'static {
    /// The instance as data.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn of_host() -> &'static KernelSpec;

    /// The address of the instance's code.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    fn of_gpu() -> *const c_void;
}

/// A kernel instance as a type: `axpy<f32, 4, 16>`. Every [`Instance`] is one.
///
/// # Safety
///
/// Only `#[kernel]` implements it: `Params` must list, in order, the markers of [`crate::param`] that match
/// the machine parameters of `spec().entry` and of the symbol in the GPU image, whose address `code()` is there.
pub unsafe trait Kernel: 'static {
    /// A tuple of [`crate::param`] markers.
    type Params;

    /// The instance as data.
    #[cfg(not(target_arch = "nvptx64"))]
    fn spec() -> &'static KernelSpec;

    /// The address of the instance's code, by which a kernel on the GPU launches it.
    #[cfg(target_arch = "nvptx64")]
    fn code() -> *const c_void;
}

/// A kernel that is a safe function: any launch with arguments of the right types, of any shape within the
/// limits of the device and of its [`KernelInfo`], has defined behaviour.
///
/// # Safety
///
/// Only `#[kernel]` implements it, for functions not marked `unsafe`.
#[diagnostic::on_unimplemented(
    message = "safe code cannot launch `{Self}`",
    label = "an unsafe kernel, or no instance of one",
    note = "an unsafe kernel is launched by `launch_unsafe`, in an `unsafe` block that says why its conditions hold",
    note = "a generic kernel lists its instances, `#[kernel(types(T = f32, f64))]`; generic code adds `where {Self}: Instance`"
)]
pub unsafe trait SafeKernel: Kernel {}
