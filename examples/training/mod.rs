//! Training code of `mlp`, which `profile` profiles and `data-parallel` distributes over devices. A small network
//! learns to which of three spirals a point belongs.

use std::error::Error;
use std::ops::Range;

use test_kernels::IMAGE;
use test_kernels::train::{adam, count_up, relu_backward, softmax_cross_entropy};
use warpsmith::library::blas::{self, Activation, Gemm, Matmul, Matrix};
use warpsmith::ops;
use warpsmith::prelude::*;
use warpsmith::random::{self, Generator};
use warpsmith::{Module, TypedKernel, range};

/// Widths of the input, of the hidden layers and of the output.
const SIZES: [usize; 4] = [2, 64, 64, SPIRALS];
const SPIRALS: usize = 3;
pub const POINTS: usize = 200 * SPIRALS;
const RATE: f32 = 0.005;

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Returns points on interleaved spirals, and the spiral of each point. Every `turn` results in different points.
pub fn spirals(turn: usize) -> (Vec<f32>, Vec<u32>) {
    let point = |i: usize| {
        let (spiral, at) = (i % SPIRALS, (i / SPIRALS) as f32 + 0.5 * turn as f32);
        let radius = 0.1 + 0.9 * at / (POINTS / SPIRALS) as f32;
        let angle = 4.5 * radius + spiral as f32 * std::f32::consts::TAU / SPIRALS as f32;
        // This is a small offset from the spiral, which differs between points.
        let off = 0.04 * ((i * 7919 + turn * 104_729) as f32).sin();
        [(radius + off) * angle.cos(), (radius + off) * angle.sin()]
    };
    ((0..POINTS).flat_map(point).collect(), (0..POINTS).map(|i| (i % SPIRALS) as u32).collect())
}

/// Offsets of a layer's parameters in the parameters of the network.
struct Layer {
    inputs: usize,
    outputs: usize,
    /// Range of the weights: `inputs` rows of `outputs` weights.
    weights: Range<usize>,
    bias: Range<usize>,
}

/// Parameters of the network.
pub struct Network {
    layers: Vec<Layer>,
    /// All trainable parameters.
    pub parameters: DeviceBuffer<f32>,
}

impl Network {
    fn new(stream: &Stream) -> Result<Self> {
        let mut end = 0;
        let mut place = |numbers: usize| {
            let start = end;
            // Each range is aligned for 16-byte vectors.
            end += numbers.next_multiple_of(64);
            start..start + numbers
        };
        let layer = |sizes: &[usize]| {
            let (inputs, outputs) = (sizes[0], sizes[1]);
            Layer { inputs, outputs, weights: place(inputs * outputs), bias: place(outputs) }
        };
        let layers: Vec<Layer> = SIZES.windows(2).map(layer).collect();
        let mut parameters = DeviceBuffer::zeros(stream, end)?;
        let generator = Generator::new(stream.device());
        for Layer { inputs, weights, .. } in &layers {
            let std = (2.0 / *inputs as f64).sqrt();
            random::normal(stream, &generator, 0.0, std, parameters.slice_mut(weights.clone()))?;
        }
        Ok(Self { layers, parameters })
    }

    /// Enqueues the output of every layer for the points, with ReLU after all layers except the last.
    fn forward(
        &self,
        stream: &Stream,
        points: &DeviceBuffer<f32>,
        activations: &mut [DeviceBuffer<f32>],
    ) -> warpsmith::Result<()> {
        for (i, layer) in self.layers.iter().enumerate() {
            let Layer { inputs, outputs, weights, bias } = layer;
            let (before, after) = activations.split_at_mut(i);
            let (input, output) = (before.last().unwrap_or(points), &mut after[0]);
            let rows = input.len() / inputs;
            let bias = self.parameters.slice(bias.clone());
            let is_last = i + 1 == self.layers.len();
            let activation = if is_last { Activation::None } else { Activation::Relu };
            blas::matmul(
                stream,
                &Matmul { bias: Some(bias), activation, ..Matmul::default() },
                input.as_2d(rows, *inputs)?,
                self.parameters.slice(weights.clone()).as_2d(*inputs, *outputs)?,
                output.as_2d_mut(rows, *outputs)?,
            )?;
        }
        Ok(())
    }

    /// Allocates the outputs of all layers for `points` points.
    fn outputs(&self, stream: &Stream, points: usize) -> Result<Vec<DeviceBuffer<f32>>> {
        self.layers.iter().map(|layer| Ok(DeviceBuffer::zeros(stream, points * layer.outputs)?)).collect()
    }

    /// Returns the accuracy, which is the fraction of points whose largest output has the correct label.
    pub fn accuracy(&self, stream: &Stream, points: &[f32], labels: &[u32]) -> Result<f64> {
        let mut outputs = self.outputs(stream, labels.len())?;
        self.forward(stream, &DeviceBuffer::from_host(stream, points)?, &mut outputs)?;
        let logits = outputs[SIZES.len() - 2].to_host()?;
        let is_correct = |(logits, label): (&[f32], &u32)| {
            let right = logits[*label as usize];
            logits.iter().filter(|logit| **logit >= right).count() == 1
        };
        Ok(logits.chunks(SPIRALS).zip(labels).filter(|row| is_correct(*row)).count() as f64
            / labels.len() as f64)
    }
}

/// Training points and intermediate results.
pub struct Batch {
    points: DeviceBuffer<f32>,
    labels: DeviceBuffer<u32>,
    /// Vector of ones, with one element per point, for column sums.
    ones: DeviceBuffer<f32>,
    /// Outputs of the layers.
    activations: Vec<DeviceBuffer<f32>>,
    /// Gradients of the loss with respect to the layer outputs.
    deltas: Vec<DeviceBuffer<f32>>,
    pub losses: DeviceBuffer<f32>,
}

/// Network with its training state.
pub struct Training {
    pub network: Network,
    pub batch: Batch,
    gradient: DeviceBuffer<f32>,
    mean: DeviceBuffer<f32>,
    variance: DeviceBuffer<f32>,
    steps: DeviceBuffer<u32>,
    kernels: Kernels,
}

struct Kernels {
    softmax_cross_entropy: TypedKernel<softmax_cross_entropy>,
    relu_backward: TypedKernel<relu_backward>,
    count_up: TypedKernel<count_up>,
    adam: TypedKernel<adam>,
}

impl Kernels {
    fn new(module: &Module) -> Result<Self> {
        Ok(Self {
            softmax_cross_entropy: module.kernel()?,
            relu_backward: module.kernel()?,
            count_up: module.kernel()?,
            adam: module.kernel()?,
        })
    }
}

impl Training {
    pub fn new(stream: &Stream) -> Result<Self> {
        Self::with_part(stream, 0..POINTS)
    }

    /// Creates training on a part of the points.
    pub fn with_part(stream: &Stream, part: Range<usize>) -> Result<Self> {
        let network = Network::new(stream)?;
        let (points, labels) = spirals(0);
        let (points, labels) = (&points[SIZES[0] * part.start..SIZES[0] * part.end], &labels[part.clone()]);
        let numbers = network.parameters.len();
        Ok(Self {
            batch: Batch {
                points: DeviceBuffer::from_host(stream, points)?,
                labels: DeviceBuffer::from_host(stream, labels)?,
                ones: DeviceBuffer::from_host(stream, &vec![1.0; part.len()])?,
                activations: network.outputs(stream, part.len())?,
                deltas: network.outputs(stream, part.len())?,
                losses: DeviceBuffer::zeros(stream, part.len())?,
            },
            network,
            gradient: DeviceBuffer::zeros(stream, numbers)?,
            mean: DeviceBuffer::zeros(stream, numbers)?,
            variance: DeviceBuffer::zeros(stream, numbers)?,
            steps: DeviceBuffer::zeros(stream, 1)?,
            kernels: Kernels::new(&stream.device().load(&IMAGE)?)?,
        })
    }

    /// Enqueues the loss of every point, and its gradient with respect to the last layer's outputs.
    fn loss(&mut self, stream: &Stream) -> warpsmith::Result<()> {
        let _range = range!("forward");
        let Batch { points, labels, activations, deltas, losses, .. } = &mut self.batch;
        self.network.forward(stream, points, activations)?;
        let last = activations.len() - 1;
        let launch = Launch::auto(labels.len() * SPIRALS);
        let arguments = (SPIRALS as u32, &activations[last], &*labels, losses, &mut deltas[last]);
        self.kernels.softmax_cross_entropy.launch(stream, launch, arguments)
    }

    /// Enqueues the gradient of the mean loss with respect to every parameter. `reduce` is called for each layer once
    /// its gradient is enqueued, starting with the last layer.
    fn backward<E: From<warpsmith::Error>>(
        &mut self,
        stream: &Stream,
        mut reduce: impl FnMut(DeviceSliceMut<'_, f32>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.loss(stream)?;
        let _range = range!("backward");
        let Batch { points, labels, ones, activations, deltas, .. } = &mut self.batch;
        let rows = labels.len();
        for (i, layer) in self.network.layers.iter().enumerate().rev() {
            let Layer { inputs, outputs, weights, bias } = layer;
            let (before, after) = deltas.split_at_mut(i);
            let delta = Matrix::from(after[0].as_2d(rows, *outputs)?);
            let input = if i == 0 { &*points } else { &activations[i - 1] };
            let by_weights = self.gradient.slice_mut(weights.clone()).into_2d(*inputs, *outputs)?;
            let input = Matrix::from(input.as_2d(rows, *inputs)?);
            blas::gemm(stream, Gemm::default(), input.transposed(), delta, by_weights)?;
            let by_bias = self.gradient.slice_mut(bias.clone());
            blas::gemv(stream, Gemm::default(), delta.transposed(), &*ones, by_bias)?;
            reduce(self.gradient.slice_mut(weights.start..bias.end))?;
            if let Some(before) = before.last_mut() {
                let weights = self.network.parameters.slice(weights.clone()).as_2d(*inputs, *outputs)?;
                let weights = Matrix::from(weights).transposed();
                blas::gemm(stream, Gemm::default(), delta, weights, before.as_2d_mut(rows, *inputs)?)?;
                let arguments = (&activations[i - 1], before);
                self.kernels.relu_backward.launch(stream, Launch::auto(rows * inputs), arguments)?;
            }
        }
        Ok(())
    }

    /// Enqueues one training step.
    pub fn step(&mut self, stream: &Stream) -> warpsmith::Result<()> {
        self.step_reduced(stream, |_| Ok(()))
    }

    /// Enqueues one training step like [`Self::step`]. `reduce` is called with the gradient of each layer while the
    /// gradients of the earlier layers are computed.
    pub fn step_reduced<E: From<warpsmith::Error>>(
        &mut self,
        stream: &Stream,
        reduce: impl FnMut(DeviceSliceMut<'_, f32>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let _step = range!("step");
        self.backward(stream, reduce)?;
        let _range = range!("update");
        self.kernels.count_up.launch(stream, Launch::auto(1), (&mut self.steps,))?;
        let numbers = self.gradient.len();
        let parameters = &mut self.network.parameters;
        let moments = (&mut self.mean, &mut self.variance);
        let arguments =
            (RATE, 0.9, 0.999, 1e-8, &self.steps, &self.gradient, parameters, moments.0, moments.1);
        Ok(self.kernels.adam.launch(stream, Launch::auto(numbers), arguments)?)
    }

    /// Fails unless the loss changes along its gradient as predicted.
    pub fn check_gradient(&mut self, stream: &Stream) -> Result<()> {
        self.backward::<warpsmith::Error>(stream, |_| Ok(()))?;
        let gradient = DeviceBuffer::from_host(stream, &self.gradient.to_host()?)?;
        let square: f64 = gradient.to_host()?.iter().map(|g| f64::from(*g).powi(2)).sum();
        let mut losses = [0.0f64; 2];
        let far = 1e-2 / square.sqrt() as f32;
        for (loss, by) in losses.iter_mut().zip([far, -2.0 * far]) {
            ops::axpy(stream, &gradient, by, &mut self.network.parameters)?;
            self.loss(stream)?;
            let all = self.batch.losses.to_host()?;
            *loss = all.iter().map(|loss| f64::from(*loss)).sum::<f64>() / POINTS as f64;
        }
        ops::axpy(stream, &gradient, far, &mut self.network.parameters)?;
        let (found, expected) = (losses[0] - losses[1], 2.0 * f64::from(far) * square);
        if (found - expected).abs() > 0.02 * expected {
            return Err(format!("the loss changes by {found} along its gradient, not {expected}").into());
        }
        Ok(())
    }
}
