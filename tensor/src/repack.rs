//! Quantized weights in host memory: [`Int4Host`] and [`Int8Host`], converted from published formats, or quantized.

use std::ops::Range;

use gpu_std::scalar::{Float, Scalar};
use half::f16;
use warpsmith_runtime::{DeviceBuffer, DeviceCopy, Result, Stream};

use crate::error::TensorError;
use crate::quantized::{Int4Weights, Int8Weights};

/// Weights per block of GGUF's q4_0 and q8_0.
const BLOCK: usize = 32;
/// 4-bit codes per word of GPTQ and AWQ.
const CODES: usize = 8;
/// Weights per block of GGUF's q4_K.
const SUPER_BLOCK: usize = 256;
/// Zero point of symmetric formats.
const MIDDLE: u8 = 8;

/// Int4 weights in host memory, in the layout of [`Int4Weights`](crate::Int4Weights).
///
/// [`matmul_4bit()`](crate::matmul_4bit()) requires a k that is a multiple of 128, and groups of 32, 64, 128 or k
/// weights; conversions do not check this. The scales of the published formats are `f16`. If `T` is `bf16`, they are
/// rounded (relative error up to 2^-9).
///
/// ```
/// use half::{bf16, f16};
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{Epilogue, Int4Host, PackedWords, matmul_4bit};
///
/// // 128 x 8 weights in the format of GPTQ, each 0.5 * (9 - 8).
/// let scales = [f16::from_f32(0.5); 8];
/// let words = PackedWords { qweight: &[0x9999_9999; 128], qzeros: &[0x7777_7777], scales: &scales };
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let weights = Int4Host::<bf16>::from_gptq([128, 8], &words)?.to_device(&stream)?;
/// let a = DeviceBuffer::from_host(&stream, &[bf16::ONE; 128])?;
/// let mut c = DeviceBuffer::<bf16>::zeros(&stream, 8)?;
/// matmul_4bit(&stream, &Epilogue::default(), a.as_2d(1, 128)?, &weights.weights(), c.as_2d_mut(1, 8)?)?;
/// assert_eq!(c.to_host()?, [bf16::from_f32(64.0); 8]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Int4Host<T> {
    /// Codes: n columns of k codes, two per byte.
    pub codes: Vec<u8>,
    /// Scales: n columns, each with one scale per group.
    pub scales: Vec<T>,
    /// Zero points: n columns, each with one zero point per group. `None` if all are 8.
    pub zeros: Option<Vec<T>>,
}

/// Symmetric int8 weights in host memory, in the layout of [`Int8Weights`](crate::Int8Weights).
///
/// See the example of [`Self::from_q8_0()`].
#[derive(Debug, Clone, PartialEq)]
pub struct Int8Host<T> {
    /// Codes: n columns of k codes.
    pub codes: Vec<i8>,
    /// Scales: n columns, each with one scale per group.
    pub scales: Vec<T>,
}

/// Int4 weights in device memory. See the example of [`Int4Host`].
#[derive(Debug)]
pub struct Int4Buffer<T: DeviceCopy> {
    codes: DeviceBuffer<u8>,
    scales: DeviceBuffer<T>,
    zeros: Option<DeviceBuffer<T>>,
}

/// Int8 weights in device memory. See the example of [`Int8Host::quantize()`].
#[derive(Debug)]
pub struct Int8Buffer<T: DeviceCopy> {
    codes: DeviceBuffer<i8>,
    scales: DeviceBuffer<T>,
}

/// Tensors of a k x n matrix of 4-bit weights in a checkpoint of GPTQ or AWQ. All are row-major.
///
/// See the example of [`Int4Host`].
#[derive(Debug, Clone, Copy)]
pub struct PackedWords<'a> {
    /// Codes: k / 8 rows of n words (GPTQ), or k rows of n / 8 words (AWQ).
    pub qweight: &'a [u32],
    /// Zero points: a row of n / 8 words per group.
    pub qzeros: &'a [u32],
    /// Scales: a row of n numbers per group.
    pub scales: &'a [f16],
}

impl<T: Float> Int4Host<T> {
    /// Quantizes a k x n matrix by rounding to the nearest code (RTN). `weights` contains n columns of k weights, and
    /// `group` consecutive weights of a column share a scale. The code of the largest weight of a group is 8 ± 7. The
    /// threads of the host divide the groups.
    ///
    /// ```
    /// use half::bf16;
    /// use warpsmith_tensor::Int4Host;
    ///
    /// let weights = [3.5, -1.0, 0.2, 0.0].map(bf16::from_f32);
    /// let host = Int4Host::quantize([4, 1], 4, &weights)?;
    /// assert_eq!((host.codes, host.scales), (vec![0x6f, 0x88], vec![bf16::from_f32(0.5)]));
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TensorError::Weights`] if the number of weights does not match the sizes, or if k is not a multiple of
    /// the group size, which must be even.
    pub fn quantize([k, n]: [usize; 2], group: usize, weights: &[T]) -> Result<Self> {
        if !group.is_multiple_of(2) {
            let what = format!("groups have {group} weights, but the number must be even");
            return Err(TensorError::Weights { format: "int4", what }.into());
        }
        let (codes, scales) = round("int4", [k, n], group, weights, 7.0)?;
        let code = |code: i8| (code + MIDDLE as i8) as u8;
        let codes = codes.as_chunks().0.iter().map(|[low, high]| code(*low) | code(*high) << 4).collect();
        Ok(Self { codes, scales, zeros: None })
    }

    /// Appends the columns of a matrix with the same k and groups, such as the projection of k to the projection of q.
    ///
    /// ```
    /// use warpsmith_tensor::Int4Host;
    ///
    /// let mut host = Int4Host { codes: vec![0x98], scales: vec![1.0f32], zeros: None };
    /// host.append(Int4Host { codes: vec![0x21], scales: vec![2.0], zeros: Some(vec![1.0]) });
    /// assert_eq!((host.codes, host.scales, host.zeros), (vec![0x98, 0x21], vec![1.0, 2.0], Some(vec![8.0, 1.0])));
    /// ```
    pub fn append(&mut self, other: Self) {
        if self.zeros.is_some() || other.zeros.is_some() {
            let of =
                |zeros: Option<Vec<T>>, len| zeros.unwrap_or_else(|| vec![f32::from(MIDDLE).cast(); len]);
            let zeros = of(self.zeros.take(), self.scales.len());
            self.zeros = Some([zeros, of(other.zeros, other.scales.len())].concat());
        }
        self.codes.extend(other.codes);
        self.scales.extend(other.scales);
    }

    /// Returns a part of a matrix with columns of k weights, such as the part of one GPU in tensor parallelism: `rows`
    /// of its k weights, and a range of `columns`.
    ///
    /// ```
    /// use warpsmith_tensor::Int4Host;
    ///
    /// // Two columns of two groups with two weights.
    /// let host = Int4Host { codes: vec![1, 2, 3, 4], scales: vec![1.0f32, 2.0, 3.0, 4.0], zeros: None };
    /// let part = host.part(4, 2..4, 0..2)?;
    /// assert_eq!((part.codes, part.scales), (vec![2, 4], vec![2.0, 4.0]));
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TensorError::Weights`] if a range is not within the matrix, or if `rows` does not start and end
    /// between two groups.
    pub fn part(&self, k: usize, rows: Range<usize>, columns: Range<usize>) -> Result<Self> {
        let n = (2 * self.codes.len()).checked_div(k).unwrap_or(0);
        let groups = self.scales.len().checked_div(n).unwrap_or(0);
        let group = k.checked_div(groups).unwrap_or(0).max(1);
        let is_within =
            rows.start <= rows.end && rows.end <= k && columns.start <= columns.end && columns.end <= n;
        if !is_within || !rows.start.is_multiple_of(group) || !rows.end.is_multiple_of(group) {
            let what = format!("{k} x {n} weights in groups of {group} have no part {rows:?} x {columns:?}");
            return Err(TensorError::Weights { format: "int4", what }.into());
        }
        let of_groups = rows.start / group..rows.end / group;
        Ok(Self {
            codes: part(&self.codes, k / 2, rows.start / 2..rows.end / 2, &columns),
            scales: part(&self.scales, groups, of_groups.clone(), &columns),
            zeros: self.zeros.as_ref().map(|zeros| part(zeros, groups, of_groups, &columns)),
        })
    }

    /// Converts a k x n matrix from the format of GPTQ (`checkpoint_format: "gptq"`, `bits: 4`). The weights of a group
    /// must be consecutive, which requires `desc_act: false`.
    ///
    /// See the example of [`Int4Host`].
    ///
    /// # Errors
    /// Returns [`TensorError::Weights`] if a length does not match the sizes.
    pub fn from_gptq([k, n]: [usize; 2], words: &PackedWords<'_>) -> Result<Self> {
        words.check("GPTQ", [k, n])?;
        let mut codes = Vec::with_capacity(k * n / 2);
        for column in 0..n {
            // A word contains eight consecutive codes of the column.
            let column = words.qweight[column..].iter().step_by(n);
            codes.extend(column.flat_map(|word| word.to_le_bytes()));
        }
        // The files contain the zero points minus 1, modulo 16.
        Ok(words.with_groups(codes, n, |word, column| ((word >> (4 * (column % CODES))) + 1) & 15))
    }

    /// Converts a k x n matrix from the format of AWQ (`version: "gemm"`, `bits: 4`).
    ///
    /// ```
    /// use half::f16;
    /// use warpsmith_tensor::{Int4Host, PackedWords};
    ///
    /// // 128 x 8 weights. AWQ stores columns 0, 2, 4, 6, 1, 3, 5, 7 in the order of increasing bits of a word.
    /// let words = PackedWords { qweight: &[0x7531_6420; 128], qzeros: &[0x8888_8888], scales: &[f16::ONE; 8] };
    /// let host = Int4Host::<f16>::from_awq([128, 8], &words)?;
    /// assert_eq!((host.codes[0], host.codes[64], host.codes[7 * 64]), (0x00, 0x11, 0x77));
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TensorError::Weights`] if a length does not match the sizes.
    pub fn from_awq([k, n]: [usize; 2], words: &PackedWords<'_>) -> Result<Self> {
        words.check("AWQ", [k, n])?;
        /// Lower four bits of each byte.
        const LOW: u32 = 0x0f0f_0f0f;
        let pitch = n / CODES;
        let mut codes = vec![0; k * n / 2];
        for (word, columns) in codes.chunks_exact_mut(CODES * k / 2).enumerate() {
            for pair in 0..k / 2 {
                let [x, y] = [0, 1].map(|row| words.qweight[(2 * pair + row) * pitch + word]);
                let even = (x & LOW | (y & LOW) << 4).to_le_bytes();
                let odd = ((x >> 4) & LOW | y & !LOW).to_le_bytes();
                for (column, byte) in [0, 4, 1, 5, 2, 6, 3, 7].into_iter().zip(even.into_iter().chain(odd)) {
                    columns[column * k / 2 + pair] = byte;
                }
            }
        }
        let zero =
            |word: u32, column: usize| word >> (4 * (column % CODES / 2 + column % 2 * CODES / 2)) & 15;
        Ok(words.with_groups(codes, n, zero))
    }

    /// Converts a k x n matrix from GGUF's q4_0, which has groups of 32. `blocks` contains the blocks of all rows of
    /// the file's tensor. Each row, of k weights, becomes a column.
    ///
    /// ```
    /// use half::f16;
    /// use warpsmith_tensor::Int4Host;
    ///
    /// // A block: the scale 2, then codes 0 to 15 in the lower and codes 16 to 31 in the upper four bits.
    /// let mut block = [0x91; 18];
    /// block[..2].copy_from_slice(&f16::from_f32(2.0).to_le_bytes());
    /// let host = Int4Host::<f16>::from_q4_0([32, 1], &block)?;
    /// assert_eq!((host.codes[0], host.codes[15], host.scales[0]), (0x11, 0x99, f16::from_f32(2.0)));
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TensorError::Weights`] if the number of bytes does not match the sizes.
    pub fn from_q4_0([k, n]: [usize; 2], blocks: &[u8]) -> Result<Self> {
        const HALF: usize = BLOCK / 2;
        let blocks = of_blocks::<{ 2 + HALF }>("q4_0", [k, n], BLOCK, blocks)?;
        let mut codes = Vec::with_capacity(k * n / 2);
        for [_, _, pairs @ ..] in blocks {
            let pairs = pairs.as_chunks::<2>().0;
            codes.extend(pairs.iter().map(|[x, y]| x & 15 | y << 4));
            codes.extend(pairs.iter().map(|[x, y]| x >> 4 | y & 0xf0));
        }
        Ok(Self { codes, scales: blocks.iter().map(scale).collect(), zeros: None })
    }

    /// Converts a k x n matrix from GGUF's q4_K (as in files of the types Q4_K_S and Q4_K_M), which has groups of 32 in
    /// blocks of 256. `blocks` contains the blocks of all rows of the file's tensor. Each row, of k weights, becomes a
    /// column.
    ///
    /// A weight is `d * scale * code - dmin * minimum`. The product `d * scale` is rounded to `T`, and so is the zero
    /// point `dmin * minimum / (d * scale)`.
    ///
    /// ```
    /// use half::f16;
    /// use warpsmith_tensor::Int4Host;
    ///
    /// // A block: d = 2, dmin = 3, scales of 1 and minimums of 4 for the first four groups, and the codes.
    /// let mut block = [0x91; 144];
    /// block[..2].copy_from_slice(&f16::from_f32(2.0).to_le_bytes());
    /// block[2..4].copy_from_slice(&f16::from_f32(3.0).to_le_bytes());
    /// block[4..16].copy_from_slice(&[1, 1, 1, 1, 4, 4, 4, 4, 0, 0, 0, 0]);
    /// let host = Int4Host::<f16>::from_q4_k([256, 1], &block)?;
    /// // Weights of the first group are 2 * (1 - 6) = 2 * 1 - 3 * 4.
    /// assert_eq!((host.codes[0], host.codes[16], host.scales[0]), (0x11, 0x99, f16::from_f32(2.0)));
    /// assert_eq!(host.zeros.map(|zeros| zeros[0]), Some(f16::from_f32(6.0)));
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TensorError::Weights`] if the number of bytes does not match the sizes.
    pub fn from_q4_k([k, n]: [usize; 2], blocks: &[u8]) -> Result<Self> {
        let blocks = of_blocks::<{ 16 + SUPER_BLOCK / 2 }>("q4_K", [k, n], SUPER_BLOCK, blocks)?;
        let groups = blocks.len() * SUPER_BLOCK / BLOCK;
        let (mut codes, mut scales, mut zeros) =
            (Vec::with_capacity(k * n / 2), Vec::with_capacity(groups), Vec::with_capacity(groups));
        for [d0, d1, min0, min1, rest @ ..] in blocks {
            let [d, dmin] = [[*d0, *d1], [*min0, *min1]].map(|bytes| f16::from_le_bytes(bytes).to_f32());
            let (packed, pairs) = rest.split_first_chunk::<12>().expect("the block has 144 bytes");
            for (group, [scale, minimum]) in scales_of_q4_k(packed).into_iter().enumerate() {
                let minimum = dmin * f32::from(minimum);
                let mut scale: T = (d * f32::from(scale)).cast();
                let mut zero: T = (minimum / scale.cast::<f32>()).cast();
                // 32 bytes contain the codes of two groups.
                let shift = 4 * (group % 2);
                let pairs = pairs[group / 2 * BLOCK..][..BLOCK].as_chunks::<2>().0;
                let pairs = pairs.iter().map(|[x, y]| x >> shift & 15 | (y >> shift & 15) << 4);
                if zero.cast::<f32>().is_finite() {
                    codes.extend(pairs);
                } else {
                    // All weights are the minimum: the scale is 0, or too small for the zero point.
                    codes.extend([0; BLOCK / 2]);
                    (scale, zero) = (minimum.cast(), 1f32.cast());
                }
                scales.push(scale);
                zeros.push(zero);
            }
        }
        Ok(Self { codes, scales, zeros: Some(zeros) })
    }
}

impl<T: Float> Int8Host<T> {
    /// Quantizes a k x n matrix like [`Int4Host::quantize()`]. The code of the largest weight of a group is ±127.
    ///
    /// ```
    /// use half::bf16;
    /// use warpsmith_runtime::{Device, Stream};
    /// use warpsmith_tensor::Int8Host;
    ///
    /// let weights = [0.0, -127.0, 1.0, 0.5].map(bf16::from_f32);
    /// let host = Int8Host::quantize([2, 2], 2, &weights)?;
    /// assert_eq!((&host.codes[..3], host.scales[0]), (&[0, -127, 127][..], bf16::ONE));
    /// let stream = Stream::new(&Device::emulated(0)?)?;
    /// assert_eq!(host.to_device(&stream)?.weights().codes.to_host()?, host.codes);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TensorError::Weights`] if the number of weights does not match the sizes, or if k is not a multiple of
    /// the group size.
    pub fn quantize([k, n]: [usize; 2], group: usize, weights: &[T]) -> Result<Self> {
        let (codes, scales) = round("int8", [k, n], group, weights, 127.0)?;
        Ok(Self { codes, scales })
    }

    /// Converts a k x n matrix from GGUF's q8_0, which has groups of 32. `blocks` contains the blocks of all rows of
    /// the file's tensor. Each row, of k weights, becomes a column.
    ///
    /// ```
    /// use half::f16;
    /// use warpsmith_tensor::Int8Host;
    ///
    /// // A block: the scale 2, then 32 codes.
    /// let mut block = [3; 34];
    /// block[..2].copy_from_slice(&f16::from_f32(2.0).to_le_bytes());
    /// let host = Int8Host::<f16>::from_q8_0([32, 1], &block)?;
    /// assert_eq!((host.codes, host.scales), (vec![3; 32], vec![f16::from_f32(2.0)]));
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TensorError::Weights`] if the number of bytes does not match the sizes.
    pub fn from_q8_0([k, n]: [usize; 2], blocks: &[u8]) -> Result<Self> {
        let blocks = of_blocks::<{ 2 + BLOCK }>("q8_0", [k, n], BLOCK, blocks)?;
        let codes = blocks.iter().flat_map(|block| block[2..].iter().map(|byte| byte.cast_signed()));
        Ok(Self { codes: codes.collect(), scales: blocks.iter().map(scale).collect() })
    }
}

impl<T: DeviceCopy> Int4Host<T> {
    /// Copies the weights to a device.
    ///
    /// # Errors
    /// Returns the [enqueue errors](warpsmith_runtime::Error#enqueue-errors), including out-of-memory errors.
    #[track_caller]
    pub fn to_device(&self, stream: &Stream) -> Result<Int4Buffer<T>> {
        Ok(Int4Buffer {
            codes: DeviceBuffer::from_host(stream, &self.codes)?,
            scales: DeviceBuffer::from_host(stream, &self.scales)?,
            zeros: self.zeros.as_ref().map(|zeros| DeviceBuffer::from_host(stream, zeros)).transpose()?,
        })
    }
}

impl<T: DeviceCopy> Int8Host<T> {
    /// Copies the weights to a device.
    ///
    /// # Errors
    /// Returns the [enqueue errors](warpsmith_runtime::Error#enqueue-errors), including out-of-memory errors.
    #[track_caller]
    pub fn to_device(&self, stream: &Stream) -> Result<Int8Buffer<T>> {
        let codes = DeviceBuffer::from_host(stream, &self.codes)?;
        Ok(Int8Buffer { codes, scales: DeviceBuffer::from_host(stream, &self.scales)? })
    }
}

impl<T: DeviceCopy> Int4Buffer<T> {
    /// Views the weights as an operand of [`matmul_4bit()`](crate::matmul_4bit()).
    pub fn weights(&self) -> Int4Weights<'_, T> {
        let zeros = self.zeros.as_ref().map(|zeros| zeros.as_slice());
        Int4Weights { codes: self.codes.as_slice(), scales: self.scales.as_slice(), zeros }
    }
}

impl<T: DeviceCopy> Int8Buffer<T> {
    /// Views the weights as an operand of [`matmul_8bit()`](crate::matmul_8bit()).
    pub fn weights(&self) -> Int8Weights<'_, T> {
        Int8Weights { codes: self.codes.as_slice(), scales: self.scales.as_slice() }
    }
}

/// Rounds weights to integers. A group's largest weight becomes `most` or `-most` times the group's scale.
fn round<T: Float>(
    format: &'static str,
    [k, n]: [usize; 2],
    group: usize,
    weights: &[T],
    most: f32,
) -> Result<(Vec<i8>, Vec<T>)> {
    if group == 0 || !k.is_multiple_of(group) || k.checked_mul(n) != Some(weights.len()) {
        let len = weights.len();
        let what = format!("{len} weights are not {k} x {n} weights in groups of {group} of a column");
        return Err(TensorError::Weights { format, what }.into());
    }
    let (mut codes, mut scales) = (vec![0; weights.len()], vec![T::ZERO; weights.len() / group]);
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let part = scales.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts = weights.chunks(part * group).zip(codes.chunks_mut(part * group));
        for ((weights, codes), scales) in parts.zip(scales.chunks_mut(part)) {
            scope.spawn(move || {
                let groups = weights.chunks(group).zip(codes.chunks_mut(group));
                for ((weights, codes), scale) in groups.zip(scales) {
                    let number = |x: &T| -> f32 { x.cast() };
                    let largest = weights.iter().map(number).fold(0f32, |max, x| max.max(x.abs()));
                    *scale = (largest / most).cast();
                    let inverse = if number(scale) > 0.0 { number(scale).recip() } else { 0.0 };
                    for (code, x) in codes.iter_mut().zip(weights) {
                        *code = (number(x) * inverse).round().clamp(-most, most) as i8;
                    }
                }
            });
        }
    });
    Ok((codes, scales))
}

/// Returns a part of each of some columns, which have `len` elements.
fn part<T: Copy>(elements: &[T], len: usize, rows: Range<usize>, columns: &Range<usize>) -> Vec<T> {
    columns.clone().flat_map(|column| &elements[column * len..][rows.clone()]).copied().collect()
}

/// Returns the blocks of `BYTES` bytes, each with `block` weights, of a k x n matrix.
fn of_blocks<'a, const BYTES: usize>(
    format: &'static str,
    [k, n]: [usize; 2],
    block: usize,
    blocks: &'a [u8],
) -> Result<&'a [[u8; BYTES]]> {
    let (whole, rest) = blocks.as_chunks::<BYTES>();
    if k.is_multiple_of(block) && rest.is_empty() && (k / block).checked_mul(n) == Some(whole.len()) {
        return Ok(whole);
    }
    let len = blocks.len();
    let what = format!(
        "there are {len} bytes for {k} x {n} weights, which require n * k / {block} blocks of {BYTES} bytes"
    );
    Err(TensorError::Weights { format, what }.into())
}

/// Returns the 6-bit scale and minimum of each of the 8 groups of a super-block of q4_K, from their 12 bytes.
///
/// The low six bits of bytes 0 to 3 and 4 to 7 are the scales and minimums of groups 0 to 3. The other groups have
/// their low bits in bytes 8 to 11, and their high bits in the high bits of bytes 0 to 7.
fn scales_of_q4_k(bytes: &[u8; 12]) -> [[u8; 2]; 8] {
    std::array::from_fn(|group| {
        let [scale, minimum] = [bytes[group % 4], bytes[4 + group % 4]];
        if group < 4 {
            return [scale & 63, minimum & 63];
        }
        let low = bytes[4 + group];
        [low & 15 | scale >> 6 << 4, low >> 4 | minimum >> 6 << 4]
    })
}

/// Returns the scale at the start of a block.
fn scale<T: Float, const BYTES: usize>(block: &[u8; BYTES]) -> T {
    f16::from_le_bytes([block[0], block[1]]).cast()
}

impl PackedWords<'_> {
    fn check(&self, format: &'static str, [k, n]: [usize; 2]) -> Result<()> {
        let wrong = |what| Err(TensorError::Weights { format, what }.into());
        if k == 0 || n == 0 || !k.is_multiple_of(CODES) || !n.is_multiple_of(CODES) {
            return wrong(format!(
                "the matrix is {k} x {n}, but both sizes must be positive multiples of {CODES}"
            ));
        }
        let groups = self.scales.len() / n;
        if groups == 0 || !self.scales.len().is_multiple_of(n) || !k.is_multiple_of(groups) {
            let len = self.scales.len();
            return wrong(format!(
                "there are {len} scales for {k} x {n} weights, which require n per group of consecutive weights"
            ));
        }
        for (name, len, expected) in [
            ("qweight", self.qweight.len(), (k / CODES).checked_mul(n)),
            ("qzeros", self.qzeros.len(), Some(groups * (n / CODES))),
        ] {
            if Some(len) != expected {
                let of = format!("{k} x {n} weights in {groups} groups per column");
                return wrong(format!("{name} has {len} words, which is the wrong number for {of}"));
            }
        }
        Ok(())
    }

    /// Returns the weights with these codes. `zero` extracts the zero point of a column from a word of `qzeros`.
    fn with_groups<T: Float>(
        &self,
        codes: Vec<u8>,
        n: usize,
        zero: impl Fn(u32, usize) -> u32,
    ) -> Int4Host<T> {
        let scales =
            (0..n).flat_map(|column| self.scales[column..].iter().step_by(n).map(|scale| scale.cast()));
        let zeros = (0..n).flat_map(|column| {
            let words = self.qzeros[column / CODES..].iter().step_by(n / CODES);
            let zero = &zero;
            words.map(move |word| zero(*word, column) as u8)
        });
        let zeros: Vec<u8> = zeros.collect();
        let is_symmetric = zeros.iter().all(|zero| *zero == MIDDLE);
        let zeros = (!is_symmetric).then(|| zeros.iter().map(|zero| f32::from(*zero).cast()).collect());
        Int4Host { codes, scales: scales.collect(), zeros }
    }
}
