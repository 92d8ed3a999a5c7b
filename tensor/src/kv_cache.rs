//! [`KvCache`] and [`KvCacheMut`]: contiguous and paged caches of keys and values.

use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceCopy, DeviceSlice, DeviceSlice2, Result};

use crate::error::TensorError;
use crate::heads::{Extents, Heads, HeadsMut};

/// Maximum number of keys per sequence, of queries of all heads per sequence, of sequences and of pages.
pub(crate) const MAX_ROWS: usize = 1 << 30;

/// KV cache: the keys and values of all sequences, and the lengths of the sequences, which are in device memory.
///
/// | cache | sequences of `k` and `v` | rows of `k` and `v` |
/// | --- | --- | --- |
/// | contiguous (`pages` is `None`) | as many as `q` | the capacity |
/// | paged | all pages | the page size, a multiple of 16 |
///
/// The elements have the type of `q`, or 8 bits: `F8E4M3` or `i8`, usually with scales.
///
/// The host reads neither the lengths nor the block table, so that a captured graph can be launched for each step.
#[derive(Debug, Clone, Copy)]
pub struct KvCache<'a, T: DeviceCopy> {
    /// Keys.
    pub k: Heads<'a, T>,
    /// Values, with the same sizes as the keys.
    pub v: Heads<'a, T>,
    /// Number of keys in each sequence, including the keys of the queries' tokens. Lengths above the capacity are
    /// clamped to the capacity.
    pub lengths: DeviceSlice<'a, u32>,
    /// Block table of a paged cache, with one row per sequence: row i contains the indices of the pages of sequence i,
    /// in order. Sequences can share pages. Elements beyond a sequence's last page are ignored. If a page does not
    /// exist, its keys are skipped.
    pub pages: Option<DeviceSlice2<'a, u32>>,
    /// Scales of `k` and of `v`: one positive factor per head, by which the elements are multiplied. `None` means 1.
    pub scales: Option<[DeviceSlice<'a, f32>; 2]>,
}

/// Writable KV cache, to which tokens are appended. It has the same fields as [`KvCache`].
#[derive(Debug)]
pub struct KvCacheMut<'a, T: DeviceCopy> {
    /// Keys.
    pub k: HeadsMut<'a, T>,
    /// Values, with the same sizes as the keys.
    pub v: HeadsMut<'a, T>,
    /// Number of keys in each sequence, including the appended keys.
    pub lengths: DeviceSlice<'a, u32>,
    /// Block table of a paged cache. If several sequences append to the same row of a page, the row is unspecified.
    pub pages: Option<DeviceSlice2<'a, u32>>,
    /// Scales of `k` and of `v`, by which the appended elements are divided before they are rounded.
    pub scales: Option<[DeviceSlice<'a, f32>; 2]>,
}

impl<T: DeviceCopy> KvCache<'_, T> {
    /// Checks that no length is above the capacity, and that the pages of all tokens exist. Operations on a cache do
    /// not check this, because they do not wait. This function copies the lengths and the block table to the host, and
    /// waits for the result.
    ///
    /// ```
    /// use half::bf16;
    /// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
    /// use warpsmith_tensor::{Heads, KvCache};
    ///
    /// let stream = Stream::new(&Device::emulated(0)?)?;
    /// let pool = DeviceBuffer::<bf16>::zeros(&stream, 3 * 16 * 64)?;
    /// let heads = Heads::by_token(pool.as_3d(3 * 16, 1, 64)?, 3)?;
    /// // 17 tokens in the pages 2 and 3, but there are only the pages 0 to 2.
    /// let pages = DeviceBuffer::from_host(&stream, &[2u32, 3])?;
    /// let lengths = DeviceBuffer::from_host(&stream, &[17u32])?;
    /// let cache =
    ///     KvCache { k: heads, v: heads, lengths: lengths.as_slice(), pages: Some(pages.as_2d(1, 2)?), scales: None };
    /// let error = cache.check().unwrap_err();
    /// assert_eq!(error.to_string(), "KvCache: pages[1] is 3, but must be below 3");
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TensorError::Index`], which names the first invalid length or page;
    /// [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        let _site = site();
        let (of, sequences) = (self.sizes(), self.lengths.len());
        of.check("KvCache", sequences)?;
        let check = |name, position: usize, index: u32, bound: usize| {
            if (index as usize) < bound {
                return Ok(());
            }
            let (position, index) = (position as u64, index.into());
            Err(TensorError::Index { operation: "KvCache", name, position, index, bound: bound as u64 })
        };
        let lengths = self.lengths.to_host()?;
        for (i, &length) in lengths.iter().enumerate() {
            check("lengths", i, length, of.capacity() + 1)?;
        }
        let Some(pages) = self.pages else { return Ok(()) };
        let (table, pitch) = (pages.elements().to_host()?, pages.row_stride());
        for (i, &length) in lengths.iter().enumerate() {
            for page in 0..(length as usize).div_ceil(of.k.rows) {
                check("pages", i * pages.columns() + page, table[i * pitch + page], of.k.planes)?;
            }
        }
        Ok(())
    }

    pub(crate) fn sizes(&self) -> CacheSizes<'_> {
        CacheSizes::new(&self.k.extents, &self.v.extents, self.lengths, self.pages, self.scales)
    }
}

impl<T: DeviceCopy> KvCacheMut<'_, T> {
    pub(crate) fn sizes(&self) -> CacheSizes<'_> {
        CacheSizes::new(&self.k.extents, &self.v.extents, self.lengths, self.pages, self.scales)
    }
}

/// Sizes of a cache.
pub(crate) struct CacheSizes<'a> {
    pub k: &'a Extents,
    pub v: &'a Extents,
    pub lengths: usize,
    /// Rows and columns of the block table.
    pub table: Option<[usize; 2]>,
    /// Number of scales of k and v.
    pub scales: Option<[usize; 2]>,
}

impl<'a> CacheSizes<'a> {
    fn new(
        k: &'a Extents,
        v: &'a Extents,
        lengths: DeviceSlice<'_, u32>,
        pages: Option<DeviceSlice2<'_, u32>>,
        scales: Option<[DeviceSlice<'_, f32>; 2]>,
    ) -> Self {
        let table = pages.map(|pages| [pages.rows(), pages.columns()]);
        let scales = scales.map(|scales| scales.map(|scales| scales.len()));
        Self { k, v, lengths: lengths.len(), table, scales }
    }

    /// Returns the maximum number of keys per sequence.
    pub fn capacity(&self) -> usize {
        self.table.map_or(self.k.rows, |[_, columns]| columns.saturating_mul(self.k.rows))
    }

    /// Fails if the sizes of the cache do not match each other or the number of sequences.
    pub fn check(&self, operation: &'static str, sequences: usize) -> Result<()> {
        let (k, v) = (self.k, self.v);
        let what = if v.sizes() != k.sizes() {
            format!("{}, and {}: they must have the same shape", k.named("k"), v.named("v"))
        } else if self.lengths != sequences {
            format!("there are {} lengths for {sequences} sequences", self.lengths)
        } else if self.table.is_none() && k.planes != sequences {
            format!("{}: without pages, it must have {sequences} sequences, like q", k.named("k"))
        } else if let Some([rows, _]) = self.table
            && rows != sequences
        {
            format!("the block table has {rows} rows for {sequences} sequences")
        } else if let Some(scales) = self.scales
            && scales != [k.heads; 2]
        {
            format!("there are {scales:?} scales of k and v for {} heads", k.heads)
        } else {
            return Ok(());
        };
        Err(TensorError::Heads { operation, what }.into())
    }
}
