//! [`TensorMapSpec`]: a tensor in device memory for TMA copies, and its 128-byte tensor map in a kernel's parameters.
//!
//! For a GPU, the driver encodes a tensor map in an opaque format. For the emulated device, [`TensorMapSpec::encode`]
//! defines the format.

/// Maximum number of dimensions of a tensor map.
pub const MAX_RANK: usize = 5;
/// Maximum number of elements in a box along each dimension.
pub const MAX_BOX: u32 = 256;

/// The bytes of a tensor map (`CUtensorMap`), which a launch passes by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct TensorMapData(pub [u64; 16]);

/// A swizzle mode, which permutes the 16-byte chunks of a box in shared memory. The modes have the same numbers as in
/// the CUDA driver.
///
/// ```
/// use gpu_spec::Swizzle;
///
/// // The first chunk of row 3 of 128 bytes is stored at the position of chunk 3.
/// assert_eq!(Swizzle::Bytes128.apply(3 * 128), 3 * 128 + 3 * 16);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Swizzle {
    /// No permutation: rows follow one another.
    None = 0,
    /// Address bit 4 is XORed with bit 7.
    Bytes32 = 1,
    /// Address bits 4 and 5 are XORed with bits 7 and 8.
    Bytes64 = 2,
    /// Address bits 4 to 6 are XORed with bits 7 to 9.
    Bytes128 = 3,
}

impl Swizzle {
    /// All modes, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::None, Self::Bytes32, Self::Bytes64, Self::Bytes128];

    /// Returns the permuted offset of the byte at `offset`, relative to an address that is aligned to [`Self::align`].
    #[inline(always)]
    pub const fn apply(self, offset: usize) -> usize {
        let mask = match self {
            Self::None => return offset,
            Self::Bytes32 => 1,
            Self::Bytes64 => 3,
            Self::Bytes128 => 7,
        };
        offset ^ (((offset >> 7) & mask) << 4)
    }

    /// Returns the maximum size of a box's row in bytes, or `None` if there is no limit.
    pub const fn row_bytes(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Bytes32 => Some(32),
            Self::Bytes64 => Some(64),
            Self::Bytes128 => Some(128),
        }
    }

    /// Returns the period of the pattern in bytes. A box in shared memory must be aligned to this period.
    pub const fn align(self) -> usize {
        match self {
            Self::None => 128,
            Self::Bytes32 => 256,
            Self::Bytes64 => 512,
            Self::Bytes128 => 1024,
        }
    }
}

/// Describes a tensor in device memory, and the box that one copy transfers. Dimension 0 is the innermost dimension, so
/// its elements are contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorMapSpec {
    /// Size of an element in bytes: 1, 2, 4 or 8.
    pub element_bytes: u32,
    /// Number of dimensions, from 1 to [`MAX_RANK`].
    pub rank: usize,
    /// Address of the first element, which must be a multiple of 16.
    pub address: u64,
    /// Number of elements along each dimension.
    pub dims: [u64; MAX_RANK],
    /// Strides of dimension 1 and higher dimensions in bytes, which must be multiples of 16.
    pub strides: [u64; MAX_RANK - 1],
    /// Number of elements of the box along each dimension.
    pub tile: [u32; MAX_RANK],
    /// Swizzle mode of the box in shared memory.
    pub swizzle: Swizzle,
}

/// Error for a tensor map field that the hardware does not support. The message states the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorMapError {
    /// Unsupported rank.
    Rank(usize),
    /// The element size in bytes is not supported.
    Element(u32),
    /// Unsupported address.
    Address(u64),
    /// The length of a dimension is not supported. The values are the dimension and its length.
    Dim(usize, u64),
    /// The stride of a dimension is not supported. The values are the dimension and its stride in bytes.
    Stride(usize, u64),
    /// The stride is smaller than the span of the dimension. The values are the dimension, its stride and the minimum
    /// stride, in bytes.
    Overlap(usize, u64, u64),
    /// The box size along a dimension is not supported. The values are the dimension and the size.
    Tile(usize, u32),
    /// The size of the box's rows in bytes is not supported.
    RowBytes(u32),
    /// The rows of the box exceed the swizzle width. The values are the bytes of a row and the maximum.
    Swizzle(u32, u32),
}

impl core::fmt::Display for TensorMapError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::Rank(rank) => {
                write!(f, "the tensor has {rank} dimensions: a tensor map supports 1 to {MAX_RANK}")
            }
            Self::Element(bytes) => {
                write!(f, "an element has {bytes} bytes: a tensor map supports 1, 2, 4 or 8")
            }
            Self::Address(address) => {
                write!(
                    f,
                    "the address {address:#x} is not a multiple of 16 bytes: start the tensor on a 16-byte \
                           boundary"
                )
            }
            Self::Dim(which, length) => {
                write!(f, "dimension {which} has {length} elements: a tensor map supports 1 to 4294967296")
            }
            Self::Stride(which, bytes) => write!(
                f,
                "the stride of dimension {which} is {bytes} bytes: a tensor map requires a multiple of 16 below \
                 2^40; pad the rows"
            ),
            Self::Overlap(which, bytes, minimum) => write!(
                f,
                "the stride of dimension {which} is {bytes} bytes, but one step must span at least {minimum} bytes: \
                 the dimensions overlap"
            ),
            Self::Tile(which, length) => {
                write!(
                    f,
                    "the box has {length} elements in dimension {which}: a copy supports 1 to {MAX_BOX}"
                )
            }
            Self::RowBytes(bytes) => {
                write!(f, "a row of the box has {bytes} bytes: make it a multiple of 16 bytes")
            }
            Self::Swizzle(bytes, most) => {
                write!(
                    f,
                    "a row of the box has {bytes} bytes: the swizzle supports at most {most} bytes per row"
                )
            }
        }
    }
}

impl core::error::Error for TensorMapError {}

impl TensorMapSpec {
    /// Checks whether the hardware supports the map.
    ///
    /// # Errors
    /// Returns a [`TensorMapError`] for the first invalid field.
    pub fn check(&self) -> Result<(), TensorMapError> {
        if !(1..=MAX_RANK).contains(&self.rank) {
            return Err(TensorMapError::Rank(self.rank));
        }
        if !matches!(self.element_bytes, 1 | 2 | 4 | 8) {
            return Err(TensorMapError::Element(self.element_bytes));
        }
        if !self.address.is_multiple_of(16) {
            return Err(TensorMapError::Address(self.address));
        }
        let mut span = u64::from(self.element_bytes);
        for which in 0..self.rank {
            let length = self.dims[which];
            if !(1..=1 << 32).contains(&length) {
                return Err(TensorMapError::Dim(which, length));
            }
            if which > 0 {
                let stride = self.strides[which - 1];
                if stride == 0 || !stride.is_multiple_of(16) || stride >= 1 << 40 {
                    return Err(TensorMapError::Stride(which, stride));
                }
                if length > 1 && stride < span {
                    return Err(TensorMapError::Overlap(which, stride, span));
                }
                span = stride;
            }
            span = span.saturating_mul(length);
            if !(1..=MAX_BOX).contains(&self.tile[which]) {
                return Err(TensorMapError::Tile(which, self.tile[which]));
            }
        }
        let row = self.tile[0] * self.element_bytes;
        if !row.is_multiple_of(16) {
            return Err(TensorMapError::RowBytes(row));
        }
        match self.swizzle.row_bytes() {
            Some(most) if row > most => Err(TensorMapError::Swizzle(row, most)),
            _ => Ok(()),
        }
    }

    /// Returns the number of bytes that the tensor spans, starting at its address. [`Self::check`] must accept the map.
    pub fn span(&self) -> u64 {
        let strides = core::iter::once(u64::from(self.element_bytes)).chain(self.strides);
        let last = self.dims.iter().zip(strides).take(self.rank);
        let last = last.fold(0u64, |at, (&dim, stride)| at.saturating_add((dim - 1).saturating_mul(stride)));
        last.saturating_add(self.element_bytes.into())
    }

    /// Returns the size of the box in bytes.
    pub fn tile_bytes(&self) -> u32 {
        self.tile[..self.rank].iter().product::<u32>() * self.element_bytes
    }

    /// Encodes the map for the emulated device.
    pub fn encode(&self) -> TensorMapData {
        let mut words = [0u64; 16];
        words[0] = MAGIC
            | (self.rank as u64) << 32
            | u64::from(self.element_bytes) << 40
            | (self.swizzle as u64) << 48;
        words[1] = self.address;
        words[2..7].copy_from_slice(&self.dims);
        words[7..11].copy_from_slice(&self.strides);
        for (word, tile) in words[11..16].iter_mut().zip(self.tile) {
            *word = tile.into();
        }
        TensorMapData(words)
    }

    /// Decodes a map of the emulated device. Returns `None` for any other bytes.
    pub fn decode(data: &TensorMapData) -> Option<Self> {
        let words = &data.0;
        if words[0] & 0xffff_ffff != MAGIC {
            return None;
        }
        let byte = |shift: u32| (words[0] >> shift) as u8;
        let mut spec = Self {
            element_bytes: byte(40).into(),
            rank: byte(32).into(),
            address: words[1],
            dims: [0; MAX_RANK],
            strides: [0; MAX_RANK - 1],
            tile: [0; MAX_RANK],
            swizzle: Swizzle::ALL.into_iter().find(|swizzle| *swizzle as u8 == byte(48))?,
        };
        spec.dims.copy_from_slice(&words[2..7]);
        spec.strides.copy_from_slice(&words[7..11]);
        for (tile, word) in spec.tile.iter_mut().zip(&words[11..16]) {
            *tile = *word as u32;
        }
        Some(spec)
    }
}

/// Value in the low half of the first word that marks a map of the emulated device.
const MAGIC: u64 = 0x7e45_0a9b;

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> TensorMapSpec {
        TensorMapSpec {
            element_bytes: 2,
            rank: 2,
            address: 0x1000,
            dims: [100, 30, 0, 0, 0],
            strides: [208, 0, 0, 0],
            tile: [64, 128, 0, 0, 0],
            swizzle: Swizzle::Bytes128,
        }
    }

    #[test]
    fn each_wrong_field_is_named() {
        assert_eq!(matrix().check(), Ok(()));
        let wrong = |change: fn(&mut TensorMapSpec)| {
            let mut spec = matrix();
            change(&mut spec);
            spec.check().unwrap_err()
        };
        assert_eq!(wrong(|s| s.rank = 6), TensorMapError::Rank(6));
        assert_eq!(wrong(|s| s.element_bytes = 3), TensorMapError::Element(3));
        assert_eq!(wrong(|s| s.address = 0x1008), TensorMapError::Address(0x1008));
        assert_eq!(wrong(|s| s.dims[1] = 0), TensorMapError::Dim(1, 0));
        assert_eq!(wrong(|s| s.strides[0] = 200), TensorMapError::Stride(1, 200));
        assert_eq!(wrong(|s| s.strides[0] = 192), TensorMapError::Overlap(1, 192, 200));
        assert_eq!(wrong(|s| s.tile[1] = 257), TensorMapError::Tile(1, 257));
        assert_eq!(wrong(|s| s.tile[0] = 12), TensorMapError::RowBytes(24));
        assert_eq!(wrong(|s| s.tile[0] = 128), TensorMapError::Swizzle(256, 128));
    }

    #[test]
    fn emulated_maps_survive_encoding() {
        assert_eq!(TensorMapSpec::decode(&matrix().encode()), Some(matrix()));
        assert_eq!(TensorMapSpec::decode(&TensorMapData([1; 16])), None);
        assert_eq!((matrix().span(), matrix().tile_bytes()), (29 * 208 + 200, 16384));
    }

    #[test]
    fn a_swizzle_permutes_its_pattern() {
        for swizzle in Swizzle::ALL {
            let mut seen = [false; 1024];
            (0..1024).for_each(|offset| seen[swizzle.apply(offset)] = true);
            assert!(seen.iter().all(|seen| *seen), "{swizzle:?}");
        }
        assert_eq!(Swizzle::Bytes128.apply(3 * 128 + 16), 3 * 128 + (1 ^ 3) * 16);
    }
}
