//! GEMM with quantized weights (weight-only): int4 and FP4 (W4A16), int8 and FP8 (W8A16).

use gpu_std::Kernel;
use gpu_std::tensor::F8E4M3;
use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceBuffer, DeviceCopy, DeviceSlice, Launch, Result, Stream};
use warpsmith_tensor_kernels::dequantize::THREADS;
use warpsmith_tensor_kernels::skinny::{FP4, FP4_K, FP8, GROUP_K, INT4, INT4_ZEROS, INT8};

use crate::IMAGE;
use crate::epilogue::Epilogue;
use crate::error::TensorError;
use crate::matmul::{GemmElement, Path, run as run_dequantized};
use crate::matrix::{Matrix, MatrixMut, Stored, check_rows};
use crate::mixed::Quantized;
use crate::skinny::{Dequantize, Element4, check_device};

/// Maximum number of rows of `a` for which the skinny kernel reads the weights once.
const SKINNY_ROWS: usize = 16;
/// Maximum number of rows of `a` for which the mixed-input kernel is faster than dequantization.
const MIXED_ROWS: usize = 128;
/// Maximum number of bytes of dequantized weights at a time.
const DEQUANTIZED_BYTES: usize = 256 << 20;
/// Columns are dequantized in multiples of the widest tiles of C.
const DEQUANTIZED_COLUMNS: usize = 256;

/// Packed int4 weights, `k` x `n`. Each column is divided into groups of 32, 64 or 128 consecutive codes, or is one
/// group. Code `c` represents `scale * (c - zero)`, where `scale` and `zero` are the scale and zero point of its group.
/// The number of scales determines the group size.
///
/// [`Int4Host`](crate::Int4Host) converts published formats: GPTQ, AWQ, and GGUF's q4_0 and q4_K.
#[derive(Debug, Clone, Copy)]
pub struct Int4Weights<'a, T: DeviceCopy> {
    /// Codes: n columns of k codes. Each byte contains two codes, the first in the lower four bits. The slice must have
    /// n * k / 2 bytes, and its address must be a multiple of 16 bytes.
    pub codes: DeviceSlice<'a, u8>,
    /// Scales of the groups: n columns, each with one scale per group. Their address must be a multiple of 8 bytes.
    pub scales: DeviceSlice<'a, T>,
    /// Zero point of each group, which can be a fraction. Their address must be a multiple of 8 bytes. `None` means a
    /// zero point of 8 for all groups.
    pub zeros: Option<DeviceSlice<'a, T>>,
}

/// Symmetric int8 weights, `k` x `n`. Each column is divided into groups of 32, 64 or 128 consecutive codes, or is one
/// group (a scale per channel). Code `c` represents `scale * c`. The number of scales determines the group size.
///
/// [`Int8Host`](crate::Int8Host) converts GGUF's q8_0.
#[derive(Debug, Clone, Copy)]
pub struct Int8Weights<'a, T: DeviceCopy> {
    /// Codes: n columns of k codes. Their address must be a multiple of 16 bytes.
    pub codes: DeviceSlice<'a, i8>,
    /// Scales of the groups: n columns, each with one scale per group. Their address must be a multiple of 8 bytes.
    pub scales: DeviceSlice<'a, T>,
}

/// FP8 weights, `k` x `n`, as in `quant_method` `fp8` checkpoints. Each column is divided into groups of 32, 64 or 128
/// consecutive numbers, or is one group (a scale per channel). Number `x` represents `scale * x`. The number of scales
/// determines the group size. Scales of blocks of 128 x 128 are repeated for each column of the block.
///
/// See the example of [`matmul_8bit()`].
#[derive(Debug, Clone, Copy)]
pub struct Fp8Weights<'a, T: DeviceCopy> {
    /// Numbers: n columns of k numbers. Their address must be a multiple of 16 bytes.
    pub numbers: DeviceSlice<'a, F8E4M3>,
    /// Scales of the groups: n columns, each with one scale per group. Their address must be a multiple of 8 bytes.
    pub scales: DeviceSlice<'a, T>,
}

/// MXFP4 weights (OCP Microscaling), `k` x `n`, as in the checkpoints of gpt-oss: E2M1 numbers, in groups of 32
/// consecutive numbers of a column. Number `x` represents `scale * x`.
///
/// The buffers contain the bytes of a checkpoint: of a tensor `blocks` and a tensor `scales`, each with n rows. See the
/// example of [`matmul_4bit()`].
#[derive(Debug, Clone, Copy)]
pub struct Mxfp4Weights<'a> {
    /// Numbers: n columns of k numbers. Each byte contains two numbers, the first in the lower four bits. The slice
    /// must have n * k / 2 bytes, and its address must be a multiple of 16 bytes.
    pub codes: DeviceSlice<'a, u8>,
    /// Scales of the groups: n columns of k / 32 E8M0 numbers, which represent 2 to the power of `scale - 127`, or NaN
    /// for 255. Their address must be a multiple of 8 bytes.
    pub scales: DeviceSlice<'a, u8>,
}

/// NVFP4 weights, `k` x `n`, as in the checkpoints of NVIDIA's ModelOpt: E2M1 numbers, in groups of 16 consecutive
/// numbers of a column. Number `x` represents `scale * tensor_scale * x`.
///
/// The buffers contain the bytes of a checkpoint: of the tensors `weight` and `weight_scale`, each with n rows. See the
/// example of [`matmul_4bit()`].
#[derive(Debug, Clone, Copy)]
pub struct Nvfp4Weights<'a> {
    /// Numbers: n columns of k numbers. Each byte contains two numbers, the first in the lower four bits. The slice
    /// must have n * k / 2 bytes, and its address must be a multiple of 16 bytes.
    pub codes: DeviceSlice<'a, u8>,
    /// Scales of the groups: n columns of k / 16 numbers. Their address must be a multiple of 8 bytes.
    pub scales: DeviceSlice<'a, F8E4M3>,
    /// Scale of all weights: `weight_scale_2` of ModelOpt, or the reciprocal of `weight_global_scale` of
    /// compressed-tensors. It is applied to the `f32` sums, like the epilogue's scale.
    pub tensor_scale: f32,
}

/// Weights of [`matmul_4bit()`]. See its example, which converts references to all kinds of weights.
#[derive(Debug, Clone, Copy)]
pub enum Weights4Bit<'a, T: DeviceCopy> {
    /// Integers.
    Int4(Int4Weights<'a, T>),
    /// E2M1 numbers with E8M0 scales.
    Mxfp4(Mxfp4Weights<'a>),
    /// E2M1 numbers with E4M3 scales.
    Nvfp4(Nvfp4Weights<'a>),
}

impl<'a, T: DeviceCopy> From<&Int4Weights<'a, T>> for Weights4Bit<'a, T> {
    fn from(weights: &Int4Weights<'a, T>) -> Self {
        Self::Int4(*weights)
    }
}

impl<'a, T: DeviceCopy> From<&Mxfp4Weights<'a>> for Weights4Bit<'a, T> {
    fn from(weights: &Mxfp4Weights<'a>) -> Self {
        Self::Mxfp4(*weights)
    }
}

impl<'a, T: DeviceCopy> From<&Nvfp4Weights<'a>> for Weights4Bit<'a, T> {
    fn from(weights: &Nvfp4Weights<'a>) -> Self {
        Self::Nvfp4(*weights)
    }
}

/// Weights of [`matmul_8bit()`]. See its example, which converts references to both kinds of weights.
#[derive(Debug, Clone, Copy)]
pub enum Weights8Bit<'a, T: DeviceCopy> {
    /// Integers.
    Int8(Int8Weights<'a, T>),
    /// E4M3 numbers.
    Fp8(Fp8Weights<'a, T>),
}

impl<'a, T: DeviceCopy> From<&Int8Weights<'a, T>> for Weights8Bit<'a, T> {
    fn from(weights: &Int8Weights<'a, T>) -> Self {
        Self::Int8(*weights)
    }
}

impl<'a, T: DeviceCopy> From<&Fp8Weights<'a, T>> for Weights8Bit<'a, T> {
    fn from(weights: &Fp8Weights<'a, T>) -> Self {
        Self::Fp8(*weights)
    }
}

/// Weight-only int4 and FP4 GEMM (W4A16): `c = activation(scale * a * weights + bias)`, with `a` m×k, the weights k×n
/// and `c` m×n. The result is rounded once. The order of the additions depends only on the sizes and the number of SMs.
///
/// For up to 16 rows, and for more rows if the epilogue has a `norm`, the kernel is memory-bound: it reads the weights
/// once per 16 rows. It converts int4 codes to the type of `a` without applying zero points and scales. Zero points are
/// then applied to the `f32` sum of each group, by the sum of the elements of `a`, and the result is multiplied by the
/// group's scale. An infinite element of `a` therefore makes its row of `c` NaN.
///
/// For more rows, `scale * (code - zero)` is rounded to the type of `a`, and if the zero point is a fraction, `code -
/// zero` can be rounded too. With `f16`, the scales must be below 1024. From 17 to 128 rows, and if the epilogue has
/// SwiGLU or `accumulate`, the kernel computes these numbers in registers. Otherwise, the weights are first dequantized
/// to temporary memory of up to 256 MiB, and [`matmul_fused()`](crate::matmul_fused()) computes the product.
///
/// FP4 weights, multiplied by the scales of their groups, are converted to the type of `a` for any number of rows. The
/// conversion of NVFP4 is exact. MXFP4 weights are exact multiples of 2^-69 with `bf16`, and of 2^-17 with `f16`;
/// others can be rounded to them. Scales above 2^65 or 2^8, respectively, can be infinite.
///
/// # Errors
/// Returns [`TensorError::Shape`] if the sizes do not match, k is not a multiple of 128 (FP4: 64) or the number of
/// scales belongs to no group size; [`TensorError::Layout`] for a transposed `a`; [`TensorError::Alignment`] if the
/// address of the codes, or the address or row stride of `a`, is not a multiple of 16 bytes, or the address of the
/// scales or zero points not one of 8 bytes; [`TensorError::Device`] for a compute capability below 8.0; [enqueue
/// errors](warpsmith_runtime::Error#enqueue-errors).
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{Epilogue, F8E4M3, Int4Weights, Mxfp4Weights, Nvfp4Weights, matmul_4bit};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let a = DeviceBuffer::from_host(&stream, &[bf16::ONE; 2 * 128])?;
/// // 3 columns of 128 codes, which are 9: of 0.5 * (9 - 8).
/// let codes = DeviceBuffer::from_host(&stream, &[0x99; 3 * 64])?;
/// let scales = DeviceBuffer::from_host(&stream, &[bf16::from_f32(0.5); 3])?;
/// let weights = Int4Weights { codes: codes.as_slice(), scales: scales.as_slice(), zeros: None };
/// let mut c = DeviceBuffer::<bf16>::zeros(&stream, 2 * 3)?;
/// matmul_4bit(&stream, &Epilogue::default(), a.as_2d(2, 128)?, &weights, c.as_2d_mut(2, 3)?)?;
/// assert_eq!(c.to_host()?, [bf16::from_f32(64.0); 6]);
///
/// // The E2M1 number 9 is -0.5, and the scale 128 is 2.
/// let scales = DeviceBuffer::from_host(&stream, &[128; 3 * 4])?;
/// let weights = Mxfp4Weights { codes: codes.as_slice(), scales: scales.as_slice() };
/// matmul_4bit(&stream, &Epilogue::default(), a.as_2d(2, 128)?, &weights, c.as_2d_mut(2, 3)?)?;
/// assert_eq!(c.to_host()?, [bf16::from_f32(-128.0); 6]);
///
/// let scales = DeviceBuffer::from_host(&stream, &[F8E4M3::from_f32(3.0); 3 * 8])?;
/// let weights = Nvfp4Weights { codes: codes.as_slice(), scales: scales.as_slice(), tensor_scale: 0.25 };
/// matmul_4bit(&stream, &Epilogue::default(), a.as_2d(2, 128)?, &weights, c.as_2d_mut(2, 3)?)?;
/// assert_eq!(c.to_host()?, [bf16::from_f32(-48.0); 6]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn matmul_4bit<'a, 'b, 'c, T: Element4 + GemmElement<Output = T>>(
    stream: &Stream,
    epilogue: &Epilogue<'_, T>,
    a: impl Into<Matrix<'a, T>>,
    weights: impl Into<Weights4Bit<'b, T>>,
    c: impl Into<MatrixMut<'c, T>>,
) -> Result<()> {
    let _site = site();
    let (operation, mut epilogue, a, c) = ("matmul_4bit", *epilogue, a.into(), c.into());
    let (codes_kind, group, codes, scales, zeros) = match weights.into() {
        Weights4Bit::Int4(Int4Weights { codes, scales, zeros }) => {
            (if zeros.is_some() { INT4_ZEROS } else { INT4 }, 0, codes, scales.cast()?, zeros)
        }
        Weights4Bit::Mxfp4(Mxfp4Weights { codes, scales }) => (FP4, 32, codes, scales, None),
        Weights4Bit::Nvfp4(Nvfp4Weights { codes, scales, tensor_scale }) => {
            epilogue.scale *= tensor_scale;
            (FP4, 16, codes, scales.cast()?, None)
        }
    };
    run(Quantized { operation, stream, epilogue, a, codes_kind, group, codes, scales, zeros, c })
}

/// Weight-only int8 and FP8 GEMM (W8A16): like [`matmul_4bit()`], but with other weights. The low bits and sign bits of
/// [`Int8Weights`] are multiplied separately, and [`Fp8Weights`] are converted to the type of `a`.
///
/// # Errors
/// Returns the same errors as [`matmul_4bit()`].
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{Epilogue, F8E4M3, Fp8Weights, Int8Weights, matmul_8bit};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let a = DeviceBuffer::from_host(&stream, &[bf16::ONE; 2 * 128])?;
/// // 3 columns of 128 codes, which are -3, with groups of 32.
/// let codes = DeviceBuffer::from_host(&stream, &[-3i8; 3 * 128])?;
/// let scales = DeviceBuffer::from_host(&stream, &[bf16::from_f32(0.5); 3 * 4])?;
/// let weights = Int8Weights { codes: codes.as_slice(), scales: scales.as_slice() };
/// let mut c = DeviceBuffer::<bf16>::zeros(&stream, 2 * 3)?;
/// matmul_8bit(&stream, &Epilogue::default(), a.as_2d(2, 128)?, &weights, c.as_2d_mut(2, 3)?)?;
/// assert_eq!(c.to_host()?, [bf16::from_f32(-192.0); 6]);
///
/// // The numbers are 1.5, with a scale per column.
/// let numbers = DeviceBuffer::filled(&stream, 3 * 128, F8E4M3::from_f32(1.5))?;
/// let weights = Fp8Weights { numbers: numbers.as_slice(), scales: scales.slice(..3) };
/// matmul_8bit(&stream, &Epilogue::default(), a.as_2d(2, 128)?, &weights, c.as_2d_mut(2, 3)?)?;
/// assert_eq!(c.to_host()?, [bf16::from_f32(96.0); 6]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn matmul_8bit<'a, 'b, 'c, T: Element4 + GemmElement<Output = T>>(
    stream: &Stream,
    epilogue: &Epilogue<'_, T>,
    a: impl Into<Matrix<'a, T>>,
    weights: impl Into<Weights8Bit<'b, T>>,
    c: impl Into<MatrixMut<'c, T>>,
) -> Result<()> {
    let _site = site();
    let (codes_kind, codes, scales) = match weights.into() {
        Weights8Bit::Int8(Int8Weights { codes, scales }) => (INT8, codes.cast()?, scales.cast()?),
        Weights8Bit::Fp8(Fp8Weights { numbers, scales }) => (FP8, numbers.cast()?, scales.cast()?),
    };
    let (operation, epilogue, a, c) = ("matmul_8bit", *epilogue, a.into(), c.into());
    run(Quantized { operation, stream, epilogue, a, codes_kind, group: 0, codes, scales, zeros: None, c })
}

/// Checks the sizes and addresses, and launches the kernel.
fn run<T: Element4 + GemmElement<Output = T>>(mut product: Quantized<'_, '_, T>) -> Result<()> {
    let Quantized { operation, stream, epilogue, a, codes, scales, zeros, ref c, .. } = product;
    let (bits, scale_bytes) = (product.bits(), product.scale_bytes());
    let (m, k) = (c.rows(), a.columns());
    let n = epilogue.columns_of_b(c.columns());
    let shape = |what| Err(TensorError::Shape { operation, what }.into());
    if a.planes() != 1 || c.planes() != 1 {
        return shape(format!(
            "a is a batch of {} matrices and c of {}; a GEMM with quantized weights takes single matrices",
            a.planes(),
            c.planes()
        ));
    }
    if a.rows() != m {
        return shape(format!("a is {} x {k}, c is {m} x {}", a.rows(), c.columns()));
    }
    let multiple = if product.codes_kind == FP4 { FP4_K } else { GROUP_K };
    if !k.is_multiple_of(multiple as usize) {
        return shape(format!(
            "k is {k}, but must be a multiple of {multiple}: pad a and the weights with zeros"
        ));
    }
    let (scale_count, groups) = (scales.len() / scale_bytes, |group: usize| n * (k / group.max(1)));
    let sizes = if product.group > 0 { &[product.group as usize][..] } else { &[128, 64, 32, k] };
    let Some(&group) = sizes.iter().find(|&&group| scale_count == groups(group)) else {
        let of_sizes = if product.group > 0 {
            format!("groups of {} codes require {}", product.group, groups(product.group as usize))
        } else {
            let [few, some, many] = [groups(32), groups(64), groups(128)];
            format!("groups of 32, 64, 128 or {k} codes require {few}, {some}, {many} or {n}")
        };
        return shape(format!("there are {scale_count} scales for weights of {k} x {n}, but {of_sizes}"));
    };
    let lengths = [
        ("bytes of codes", Some(codes.len()), n * k * bits as usize / 8),
        ("zeros", zeros.map(|zeros| zeros.len()), scale_count),
        ("elements of the bias", epilogue.bias.map(|bias| bias.len()), n),
    ];
    for (name, len, expected) in lengths {
        if let Some(len) = len
            && len != expected
        {
            return shape(format!(
                "there are {len} {name} for weights of {k} x {n}, which require {expected}"
            ));
        }
    }
    epilogue.check_norm(operation, k)?;
    if a.is_transposed {
        let element = std::any::type_name::<T>();
        return Err(TensorError::Layout { operation, matrix: "a", element }.into());
    }
    check_device(operation, stream.device())?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    check_rows(operation, "a", a.elements, a.stored)?;
    let starts = [
        ("codes", Some(codes.as_device_ptr()), 16, k * bits as usize / 8),
        ("scales", Some(scales.as_device_ptr()), 8, k / group.max(1) * scale_bytes),
        ("zeros", zeros.map(|zeros| zeros.as_device_ptr()), 8, k / group.max(1) * size_of::<T>()),
    ];
    for (matrix, start, needed, bytes) in starts {
        if let Some(start) = start
            && !start.0.is_multiple_of(needed)
        {
            return Err(TensorError::Alignment { operation, matrix, bytes, address: start.0 }.into());
        }
    }
    product.group = group as u32;
    let is_skinny = m <= SKINNY_ROWS || k == 0 || epilogue.norm.is_some();
    if is_skinny || m <= MIXED_ROWS || epilogue.needs_skinny() {
        if product.codes_kind == FP4 {
            product.epilogue.scale *= T::FP4_SUM;
        }
        return if is_skinny { T::launch_quantized(product) } else { T::launch_mixed(product) };
    }
    match product.codes_kind {
        INT8 => dequantized::<T, T::DequantizeInt8>(product),
        FP8 => dequantized::<T, T::DequantizeFp8>(product),
        FP4 => dequantized::<T, T::DequantizeFp4>(product),
        _ => dequantized::<T, T::DequantizeInt4>(product),
    }
}

/// Dequantizes some columns at a time to temporary memory, and multiplies by them.
fn dequantized<T: Element4 + GemmElement<Output = T>, K: Kernel<Params = Dequantize<T>>>(
    product: Quantized<'_, '_, T>,
) -> Result<()> {
    let (bits, scale_bytes) = (product.bits(), product.scale_bytes());
    let Quantized { stream, epilogue, a, group, codes, scales, zeros, mut c, .. } = product;
    let (n, k, group) = (c.columns(), a.columns(), group as usize);
    let bytes_of_codes = k * bits as usize / 8;
    let Stored { rows, row_stride, .. } = c.stored;
    let most = DEQUANTIZED_BYTES / (k * size_of::<T>()) / DEQUANTIZED_COLUMNS * DEQUANTIZED_COLUMNS;
    let most = most.max(DEQUANTIZED_COLUMNS).min(n);
    let mut weights = DeviceBuffer::<T>::uninit(stream, most * k)?;
    let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
    let shift = if group == k { 31 } else { group.trailing_zeros() };
    for first in (0..n).step_by(most) {
        let columns = most.min(n - first);
        let of_groups = first * (k / group)..(first + columns) * (k / group);
        let arguments = (
            codes.slice(first * bytes_of_codes..(first + columns) * bytes_of_codes),
            scales.slice(of_groups.start * scale_bytes..of_groups.end * scale_bytes),
            zeros.map(|zeros| zeros.slice(of_groups)),
            weights.slice_mut(..columns * k),
            k as u32,
            shift,
        );
        // SAFETY: k is a multiple of 64, and the lengths and the address of the codes have been checked. Each block
        // converts one column, and `weights` is borrowed exclusively.
        unsafe { kernel.launch_unsafe(stream, Launch::grid_block(columns as u32, THREADS), arguments)? };
        let stored =
            Stored { planes: 1, rows: columns, columns: k, plane_stride: columns * k, row_stride: k };
        let b = Matrix { elements: weights.slice(..columns * k), stored, is_transposed: true };
        let epilogue =
            Epilogue { bias: epilogue.bias.map(|bias| bias.slice(first..first + columns)), ..epilogue };
        let elements = c.elements.slice_mut(first..first + (rows - 1) * row_stride + columns);
        let c = MatrixMut { elements, stored: Stored { columns, ..c.stored } };
        run_dequantized(stream, Path::Default, &epilogue, a, b, c)?;
    }
    Ok(())
}
