//! Logistic regression: each rank computes the gradient of its part of the samples, and all ranks take the same step.

use std::ops::Range;

use regression_kernels::{gradient, predict};
use warpsmith::collective::{Communicator, ReduceOp};
use warpsmith::prelude::*;
use warpsmith::{ops, range};

/// The GPU image that build.rs built from `kernels/`.
pub static KERNELS: GpuImage = warpsmith::include_image!("regression_kernels");

pub const FEATURES: usize = 64;
pub const SAMPLES: usize = 512;
pub const STEPS: usize = 30;
const RATE: f32 = 2.0;

/// One rank's samples, and the weights, which are equal on all ranks.
pub struct Training {
    x: DeviceBuffer<f32>,
    labels: DeviceBuffer<f32>,
    weights: DeviceBuffer<f32>,
    errors: DeviceBuffer<f32>,
    losses: DeviceBuffer<f32>,
    /// Gradient, then the loss.
    gradient: DeviceBuffer<f32>,
    predict: TypedKernel<predict>,
    compute_gradient: TypedKernel<gradient>,
}

impl Training {
    /// Loads a part of the samples.
    pub fn new(stream: &Stream, part: Range<usize>) -> Result<Self, Error> {
        let (x, labels) = samples(part.clone());
        let module = stream.device().load(&KERNELS)?;
        Ok(Self {
            x: DeviceBuffer::from_host(stream, &x)?,
            labels: DeviceBuffer::from_host(stream, &labels)?,
            weights: DeviceBuffer::zeros(stream, FEATURES)?,
            errors: DeviceBuffer::zeros(stream, part.len())?,
            losses: DeviceBuffer::zeros(stream, part.len())?,
            gradient: DeviceBuffer::zeros(stream, FEATURES + 1)?,
            predict: module.kernel()?,
            compute_gradient: module.kernel()?,
        })
    }

    /// Enqueues one step. `reduce` averages gradient and loss over the ranks.
    pub fn step(
        &mut self,
        stream: &Stream,
        reduce: impl FnOnce(&mut DeviceBuffer<f32>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Self { labels, weights, errors, losses, gradient, .. } = self;
        let _range = range!("step");
        let x = self.x.as_2d(FEATURES, labels.len())?;
        let launch = Launch::auto(labels.len());
        self.predict.launch(stream, launch, (x, &*labels, &*weights, &mut *errors, &mut *losses))?;
        let launch = Launch::for_bandwidth(self.x.len(), size_of::<f32>() as u32);
        self.compute_gradient.launch(stream, launch, (x, &*errors, &*losses, &mut *gradient))?;
        reduce(gradient)?;
        ops::axpy(stream, gradient.slice(..FEATURES), -RATE, weights)
    }

    /// Waits for the last step, and returns its loss.
    pub fn loss(&self) -> Result<f32, Error> {
        Ok(self.gradient.to_host()?[FEATURES])
    }
}

/// Trains on this rank's part of the samples, and returns the loss of every tenth step.
pub fn train(mut ranks: Communicator) -> Result<Vec<f32>, Error> {
    let part = SAMPLES / ranks.world_size();
    let first = part * ranks.rank();
    // The communicator has its own stream; the runtime orders both by their buffers.
    let stream = Stream::new(ranks.device())?;
    let mut training = Training::new(&stream, first..first + part)?;
    let mut losses = Vec::new();
    for step in 1..=STEPS {
        training.step(&stream, |gradient| ranks.all_reduce_in_place(ReduceOp::Avg, gradient).map(drop))?;
        if step % 10 == 0 {
            losses.push(training.loss()?);
        }
    }
    ranks.finish()?;
    Ok(losses)
}

/// Makes up samples: features by samples, and the label of each sample, 0 or 1.
pub fn samples(part: Range<usize>) -> (Vec<f32>, Vec<f32>) {
    let feature = |feature: usize, sample: usize| {
        let mixed = |x: u64| (x ^ x >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed(mixed((sample * FEATURES + feature + 1) as u64)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let label = |sample| {
        let logit: f32 = (0..FEATURES).map(|i| (i as f32).sin() * feature(i, sample)).sum();
        f32::from(u8::from(logit > 0.0))
    };
    let x = (0..FEATURES).flat_map(|i| part.clone().map(move |sample| feature(i, sample))).collect();
    (x, part.clone().map(label).collect())
}
