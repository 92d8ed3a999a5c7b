//! [`Buckets`]: gradients in contiguous buffers, so that a few operations reduce many gradients.

use std::ops::Range;

use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Stream};

use crate::communicator::Communicator;
use crate::element::{ReduceOp, Reducible};
use crate::error::{CollectiveError, Result};

/// Alignment of each gradient's start, in bytes.
const ALIGNMENT: usize = 256;

/// Gradients of a model, stored in a few buffers (buckets), as in PyTorch's `DistributedDataParallel`. Each bucket is
/// averaged over the ranks as soon as all of its gradients have been computed, while the backward pass continues.
///
/// The gradients are views of the buckets; kernels write them in place through [`Self::gradient_mut`]. The first bucket
/// contains the last gradients, because a backward pass computes them first. The buckets are reduced in order on the
/// communicator's stream. Therefore, all ranks call the same operations, even if they compute the gradients in
/// different orders. Later work that uses a gradient is automatically ordered after the reduction of the gradient.
///
/// ```
/// use warpsmith_collective::{Buckets, Communicator, CommunicatorOptions};
/// use warpsmith_runtime::{Device, Stream};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let mut ranks = Communicator::init_all(&[stream.clone()], &CommunicatorOptions::new())?.remove(0);
/// // Gradients of a layer's weights and bias.
/// let mut gradients = Buckets::<f32>::new(&stream, &[1000, 10], 25 << 20)?;
/// for step in 0..3 {
///     for gradient in [1, 0] {
///         let values = vec![step as f32; gradients.len_of(gradient)];
///         gradients.gradient_mut(gradient).copy_from_host(&values)?;
///         gradients.ready(&mut ranks, gradient)?;
///     }
///     assert_eq!(gradients.gradient(0).to_host()?, [step as f32; 1000]);
/// }
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct Buckets<T: Reducible> {
    /// Buckets in the order in which they are reduced.
    buckets: Vec<Bucket<T>>,
    /// Location of each gradient.
    places: Vec<Place>,
    /// Index of the next bucket to reduce.
    next: usize,
}

#[derive(Debug)]
struct Bucket<T: Reducible> {
    elements: DeviceBuffer<T>,
    gradients: usize,
    /// Number of gradients that have not been computed yet.
    missing: usize,
}

#[derive(Debug)]
struct Place {
    bucket: usize,
    range: Range<usize>,
    is_ready: bool,
}

impl<T: Reducible> Buckets<T> {
    /// Creates zeroed gradients with these lengths, in layer order, in buckets of `bucket_bytes` bytes. A gradient that
    /// is larger than a bucket is allocated in its own bucket.
    ///
    /// # Errors
    /// Returns [`OutOfMemory`](warpsmith_runtime::Error::OutOfMemory) if the buckets do not fit in device memory.
    #[track_caller]
    pub fn new(stream: &Stream, lens: &[usize], bucket_bytes: usize) -> Result<Self> {
        let _site = site();
        let (alignment, room) = (ALIGNMENT / size_of::<T>(), bucket_bytes / size_of::<T>());
        let mut places: Vec<Place> = Vec::with_capacity(lens.len());
        // Each entry contains a bucket's number of elements and number of gradients.
        let mut sizes: Vec<(usize, usize)> = Vec::new();
        for &len in lens.iter().rev() {
            let start = sizes.last().map_or(0, |(elements, _)| elements.next_multiple_of(alignment));
            let end = start.checked_add(len).filter(|end| !sizes.is_empty() && *end <= room);
            let range = end.map_or(0..len, |end| start..end);
            match (end, sizes.last_mut()) {
                (Some(end), Some((elements, gradients))) => {
                    *elements = end;
                    *gradients += 1;
                }
                _ => sizes.push((len, 1)),
            }
            places.push(Place { bucket: sizes.len() - 1, range, is_ready: false });
        }
        places.reverse();
        let bucket = |(elements, gradients): (usize, usize)| {
            let elements = DeviceBuffer::zeros(stream, elements)?;
            Ok(Bucket { elements, gradients, missing: gradients })
        };
        let buckets = sizes.into_iter().map(bucket).collect::<warpsmith_runtime::Result<_>>()?;
        Ok(Self { buckets, places, next: 0 })
    }

    /// Returns the number of buckets.
    pub fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    /// Returns the number of elements in a gradient.
    ///
    /// # Panics
    /// Panics if the gradient does not exist. The methods below panic in the same case.
    #[track_caller]
    pub fn len_of(&self, gradient: usize) -> usize {
        self.places[gradient].range.len()
    }

    /// Returns a gradient. Once its bucket has been reduced, the gradient is the mean over the ranks.
    #[track_caller]
    pub fn gradient(&self, gradient: usize) -> DeviceSlice<'_, T> {
        let Place { bucket, range, .. } = &self.places[gradient];
        self.buckets[*bucket].elements.slice(range.clone())
    }

    /// Returns a gradient to be written by the work that computes it.
    #[track_caller]
    pub fn gradient_mut(&mut self, gradient: usize) -> DeviceSliceMut<'_, T> {
        let Place { bucket, range, .. } = &self.places[gradient];
        self.buckets[*bucket].elements.slice_mut(range.clone())
    }

    /// Marks a gradient as computed; the work that computes it must have been enqueued. A bucket is averaged as soon as
    /// all of its gradients are ready and all earlier buckets have been averaged. Marking the last gradient ends the
    /// step; in the next step, every gradient must be computed again.
    ///
    /// # Errors
    /// Returns [`CollectiveError::Argument`] if the gradient has already been marked in this step. Also returns the
    /// same errors as [`Communicator::all_reduce`].
    #[track_caller]
    pub fn ready(&mut self, ranks: &mut Communicator, gradient: usize) -> Result<()> {
        let place = &mut self.places[gradient];
        if std::mem::replace(&mut place.is_ready, true) {
            let reason = format!("gradient {gradient} was already marked ready in this step");
            return Err(CollectiveError::Argument {
                operation: "Buckets::ready",
                rank: ranks.rank(),
                reason,
            }
            .into());
        }
        self.buckets[place.bucket].missing -= 1;
        while let Some(bucket) = self.buckets.get_mut(self.next).filter(|bucket| bucket.missing == 0) {
            // The returned work can be dropped, because its failure also fails the communicator, and the next call
            // reports it.
            drop(ranks.all_reduce_in_place(ReduceOp::Avg, &mut bucket.elements)?);
            self.next += 1;
        }
        if self.next == self.buckets.len() {
            self.next = 0;
            self.buckets.iter_mut().for_each(|bucket| bucket.missing = bucket.gradients);
            self.places.iter_mut().for_each(|place| place.is_ready = false);
        }
        Ok(())
    }
}
