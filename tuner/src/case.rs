//! [`Case`]: one kernel, type and size on a device, with filled buffers. It can be launched and checked in any
//! configuration.
//!
//! [`Case::check`] first poisons the output, or restores it if the kernel updates it, so that the output of an earlier
//! launch cannot pass the check. It then compares every element. To keep the check cheap, only the output of the first
//! correct configuration is compared with the float64 reference on the host. A later output with the same bytes is
//! correct, with the same error; an output with different bytes is compared with the reference.

use gpu_std::scalar::Scalar;
use warpsmith_runtime::{DeviceBuffer, Stream};

use crate::error::{Error, Result};
use crate::value::Configuration;
use crate::verify::{Check, Tolerance, compare, same_bytes};

/// Kernel with its buffers.
pub trait Case {
    /// Returns the number of buffer copies through which launches cycle.
    fn copies(&self) -> usize;

    /// Selects the configuration for subsequent launches and checks. Work that is required only once per configuration
    /// belongs in this method.
    ///
    /// # Errors
    /// Fails if the configuration cannot be launched.
    fn select(&mut self, configuration: &Configuration) -> Result<()>;

    /// Enqueues a launch that uses one of the buffer copies.
    ///
    /// # Errors
    /// Returns the [enqueue errors](warpsmith_runtime::Error#enqueue-errors), or [`Error::NothingSelected`].
    fn launch(&mut self, copy: usize) -> Result<()>;

    /// Launches the kernel once on poisoned output, waits for the launch, and checks the result.
    ///
    /// # Errors
    /// Returns the [enqueue errors](warpsmith_runtime::Error#enqueue-errors). An incorrect result is not an error, but
    /// is reported by the returned [`Check`].
    fn check(&mut self) -> Result<Check>;
}

/// Result of user code that selects or launches a kernel. It can contain any error.
pub type LaunchResult<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Function that converts a configuration to the value that a launch needs.
pub type ChooseFn<C> = Box<dyn Fn(&Configuration) -> LaunchResult<C>>;

/// Function that enqueues one launch. Its arguments are the stream, the selected value, the input arrays and the output
/// array.
pub type LaunchFn<I, O, C> =
    Box<dyn Fn(&Stream, &C, &[DeviceBuffer<I>], &mut DeviceBuffer<O>) -> LaunchResult>;

/// Expected output of a case.
pub enum Expected<I> {
    /// Function that is applied to the elements with the same index in up to three host arrays.
    Each(fn([f64; 3]) -> f64, Vec<Vec<I>>),
    /// Single value.
    One(f64),
    /// One value per output element.
    All(Vec<f64>),
}

/// Case of a kernel with input arrays of `I` and one output array of `O`. Each configuration is converted to a value of
/// type `C`.
pub struct Arrays<I: Scalar, O: Scalar, C> {
    stream: Stream,
    inputs: Vec<Vec<DeviceBuffer<I>>>,
    outputs: Vec<DeviceBuffer<O>>,
    /// Contents of the output before a check.
    initial: DeviceBuffer<O>,
    choose: ChooseFn<C>,
    chosen: Option<C>,
    launch: LaunchFn<I, O, C>,
    expected: Expected<I>,
    tolerance: Tolerance,
    found: Vec<O>,
    /// Output that was compared with the reference and found correct, together with its check.
    verified: Option<(Vec<O>, Check)>,
}

/// Arguments of [`Arrays::new`].
pub struct Parts<I: Scalar, O: Scalar, C> {
    /// Host data of the input arrays.
    pub inputs: Vec<Vec<I>>,
    /// Contents of the output before a launch: poison, or the array that the kernel updates.
    pub initial: Vec<O>,
    /// Converts a configuration to the value that the launch needs.
    pub choose: ChooseFn<C>,
    /// Enqueues one launch.
    pub launch: LaunchFn<I, O, C>,
    /// Expected result.
    pub expected: Expected<I>,
    /// Allowed difference from the expected result.
    pub tolerance: Tolerance,
}

impl<I: Scalar, O: Scalar, C> Arrays<I, O, C> {
    /// Allocates `copies` sets of the arrays on the stream's device and fills them.
    ///
    /// # Errors
    /// Returns the [enqueue errors](warpsmith_runtime::Error#enqueue-errors).
    pub fn new(stream: &Stream, copies: usize, parts: Parts<I, O, C>) -> Result<Self> {
        let Parts { inputs: host, initial, choose, launch, expected, tolerance } = parts;
        let mut inputs: Vec<Vec<DeviceBuffer<I>>> = Vec::with_capacity(copies);
        let mut outputs = Vec::with_capacity(copies);
        let pristine = DeviceBuffer::from_host(stream, &initial)?;
        for copy in 0..copies {
            let mut set = Vec::with_capacity(host.len());
            for (index, data) in host.iter().enumerate() {
                set.push(match copy {
                    0 => DeviceBuffer::from_host(stream, data)?,
                    _ => inputs[0][index].clone_on(stream)?,
                });
            }
            inputs.push(set);
            outputs.push(pristine.clone_on(stream)?);
        }
        let expected = match expected {
            Expected::Each(reference, updated) => {
                let mut arrays = host;
                arrays.extend(updated);
                Expected::Each(reference, arrays)
            }
            other => other,
        };
        let (stream, found) = (stream.clone(), initial);
        Ok(Self {
            stream,
            inputs,
            outputs,
            initial: pristine,
            choose,
            chosen: None,
            launch,
            expected,
            tolerance,
            found,
            verified: None,
        })
    }

    fn compare(&self) -> Check {
        match &self.expected {
            Expected::One(value) => compare(&self.found, self.tolerance, |_| *value),
            Expected::All(values) => {
                compare(&self.found, self.tolerance, |i| values.get(i).copied().unwrap_or(f64::NAN))
            }
            Expected::Each(reference, arrays) => {
                let at = |array: usize, index: usize| {
                    arrays.get(array).map_or(0.0, |a| a.get(index).map_or(f64::NAN, |x| x.cast()))
                };
                compare(&self.found, self.tolerance, |i| reference([at(0, i), at(1, i), at(2, i)]))
            }
        }
    }
}

impl<I: Scalar, O: Scalar, C> Case for Arrays<I, O, C> {
    fn copies(&self) -> usize {
        self.outputs.len()
    }

    fn select(&mut self, configuration: &Configuration) -> Result<()> {
        self.chosen = None;
        self.chosen = Some((self.choose)(configuration)?);
        Ok(())
    }

    fn launch(&mut self, copy: usize) -> Result<()> {
        let chosen = self.chosen.as_ref().ok_or(Error::NothingSelected)?;
        Ok((self.launch)(&self.stream, chosen, &self.inputs[copy], &mut self.outputs[copy])?)
    }

    fn check(&mut self) -> Result<Check> {
        self.stream.copy(&self.initial, &mut self.outputs[0])?;
        self.launch(0)?;
        self.outputs[0].copy_to_host(&mut self.found)?;
        if let Some((bytes, check)) = &self.verified
            && same_bytes(bytes, &self.found)
        {
            return Ok(*check);
        }
        let check = self.compare();
        if check.correct() && self.verified.is_none() {
            self.verified = Some((self.found.clone(), check));
        }
        Ok(check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Values, generate, poison};
    use warpsmith_runtime::Device;

    type Launch = fn(&Stream, u32, &[DeviceBuffer<f32>], &mut DeviceBuffer<f32>) -> LaunchResult;

    fn check(case: &mut Arrays<f32, f32, u32>, block: u32) -> Check {
        case.select(&Configuration::default().with("block", block)).unwrap();
        case.check().unwrap()
    }

    fn copies(launch: Launch, n: usize) -> Arrays<f32, f32, u32> {
        let stream = Stream::new(&Device::open("cpu").unwrap()).unwrap();
        let parts = Parts {
            inputs: vec![generate(Values::Spread, 7, n)],
            initial: vec![poison::<f32>(); n],
            choose: Box::new(|configuration| Ok(configuration.number("block")?)),
            launch: Box::new(move |stream, block, inputs, output| launch(stream, *block, inputs, output)),
            expected: Expected::Each(|[x, ..]| x, Vec::new()),
            tolerance: Tolerance::EXACT,
        };
        Arrays::new(&stream, 2, parts).unwrap()
    }

    /// Returns a copy kernel that is deliberately faulty: it writes nothing for blocks of 64 threads and skips the last
    /// element for blocks of 96.
    fn faulty(
        stream: &Stream,
        block: u32,
        i: &[DeviceBuffer<f32>],
        o: &mut DeviceBuffer<f32>,
    ) -> LaunchResult {
        let n = o.len();
        match block {
            64 => Ok(()),
            96 => Ok(stream.copy(i[0].slice(..n - 1), o.slice_mut(..n - 1))?),
            _ => Ok(stream.copy(&i[0], o)?),
        }
    }

    #[test]
    fn missing_writes_are_wrong_after_right_results() {
        for n in [1, 33, 70_001] {
            let mut case = copies(faulty, n);
            assert!(check(&mut case, 128).correct());
            assert_eq!(check(&mut case, 64).incorrect, n as u64);
            assert!(check(&mut case, 128).correct());
            let incorrect = check(&mut case, 96);
            assert_eq!((incorrect.incorrect, incorrect.first.unwrap().index), (1, n as u64 - 1));
            assert!(incorrect.max_error.is_nan());
            assert!(check(&mut case, 256).correct());
        }
    }

    #[test]
    fn different_bytes_within_the_tolerance_are_compared_again() {
        let launch: Launch = |stream, block, _, o| {
            let value = if block == 64 { 1.0f32 } else { 1.0 + f32::EPSILON * block as f32 / 128.0 };
            let values = DeviceBuffer::from_host(stream, &vec![value; o.len()])?;
            Ok(stream.copy(&values, o)?)
        };
        let mut case = copies(launch, 100);
        case.expected = Expected::Each(|_| 1.0, Vec::new());
        case.tolerance = Tolerance { relative: 1.0, absolute: 0.0 };
        assert_eq!(check(&mut case, 64).max_error, 0.0);
        let near = check(&mut case, 128);
        assert!(near.correct() && near.max_error == f32::EPSILON as f64);
        assert!(!check(&mut case, 512).correct());
    }

    #[test]
    fn nothing_is_launched_before_a_configuration_is_chosen() {
        let mut case = copies(faulty, 10);
        assert!(matches!(case.launch(0), Err(Error::NothingSelected)));
        let unknown: Configuration = "blocks=3".parse().unwrap();
        assert!(case.select(&unknown).unwrap_err().to_string().contains("block"));
    }

    #[test]
    fn an_updated_array_is_restored_before_every_check() {
        let launch: Launch = |stream, _, i, o| {
            let sum: Vec<f32> = o.to_host()?.iter().zip(i[0].to_host()?).map(|(o, i)| o + i).collect();
            Ok(stream.copy(&DeviceBuffer::from_host(stream, &sum)?, o)?)
        };
        let mut case = copies(launch, 50);
        let y = vec![0.5f32; 50];
        case.initial.copy_from_host(&y).unwrap();
        let Expected::Each(_, arrays) = &case.expected else {
            unreachable!("copies() compares each element")
        };
        case.expected = Expected::Each(|[x, y, _]| x + y, vec![arrays[0].clone(), y]);
        for _ in 0..3 {
            assert!(check(&mut case, 64).correct());
            case.launch(0).unwrap();
        }
    }
}
