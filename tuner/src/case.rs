//! One kernel, type and size on a device: buffers filled, ready to launch in any configuration and to check.
//!
//! Guarantees: [`Case::check`] poisons the output first (or restores it where the kernel updates it), so that
//! nothing an earlier launch wrote can pass for a result, and compares every element. How it stays cheap: the
//! whole output of the first correct configuration was compared with the float64 reference on the host; a
//! later configuration whose output has the same bytes is thereby correct with the same error, and one whose
//! bytes differ is compared with the reference again.

use warpsmith::ops::Config;
use warpsmith::{DeviceBuffer, DeviceCopy, Stream};

use crate::data::Element;
use crate::error::Result;
use crate::verify::{Check, Tolerance, compare, same_bytes};

/// A kernel with its buffers.
pub trait Case {
    /// Copies of the buffers to go round over.
    fn copies(&self) -> usize;

    /// Enqueues a launch on one of the copies.
    ///
    /// # Errors
    /// What the runtime refuses or reports.
    fn launch(&mut self, config: Config, copy: usize) -> Result<()>;

    /// Launches once on poisoned output, waits and checks the result.
    ///
    /// # Errors
    /// What the runtime refuses or reports; a wrong result is no error but a [`Check`] that says so.
    fn check(&mut self, config: Config) -> Result<Check>;
}

/// Enqueues one launch: stream, configuration, input arrays, output array.
pub type LaunchFn<I, O> =
    fn(&Stream, Config, &[DeviceBuffer<I>], &mut DeviceBuffer<O>) -> warpsmith::Result<()>;

/// What the output must be.
pub enum Expected<I> {
    /// Element by element, from the elements of up to three host arrays at the same place.
    Each(fn([f64; 3]) -> f64, Vec<Vec<I>>),
    /// A single value.
    One(f64),
}

/// A kernel with input arrays of `I` and one output array of `O`.
pub struct Arrays<I: Element, O: Element> {
    stream: Stream,
    inputs: Vec<Vec<DeviceBuffer<I>>>,
    outputs: Vec<DeviceBuffer<O>>,
    /// What an output is set to before a check.
    initial: DeviceBuffer<O>,
    launch: LaunchFn<I, O>,
    expected: Expected<I>,
    tolerance: Tolerance,
    found: Vec<O>,
    /// The output of a configuration that was compared with the reference and correct, and its check.
    verified: Option<(Vec<O>, Check)>,
}

/// What [`Arrays::new`] puts together.
pub struct Parts<I: Element, O: Element> {
    /// Host data of the input arrays.
    pub inputs: Vec<Vec<I>>,
    /// What outputs hold before a launch: poison, or the array that the kernel updates.
    pub initial: Vec<O>,
    /// How to launch.
    pub launch: LaunchFn<I, O>,
    /// The right result.
    pub expected: Expected<I>,
    /// How near it must be.
    pub tolerance: Tolerance,
}

impl<I: Element, O: Element> Arrays<I, O> {
    /// Puts `copies` sets of the arrays on the stream's device.
    ///
    /// # Errors
    /// Out of memory, and whatever else the runtime reports.
    pub fn new(stream: &Stream, copies: usize, parts: Parts<I, O>) -> Result<Self> {
        let Parts { inputs: host, initial, launch, expected, tolerance } = parts;
        let mut inputs: Vec<Vec<DeviceBuffer<I>>> = Vec::with_capacity(copies);
        let mut outputs = Vec::with_capacity(copies);
        let pristine = DeviceBuffer::from_host(stream, &initial)?;
        for copy in 0..copies {
            let mut set = Vec::with_capacity(host.len());
            for (index, data) in host.iter().enumerate() {
                set.push(match copy {
                    0 => DeviceBuffer::from_host(stream, data)?,
                    _ => duplicate(stream, &inputs[0][index])?,
                });
            }
            inputs.push(set);
            outputs.push(duplicate(stream, &pristine)?);
        }
        let expected = match expected {
            Expected::Each(reference, updated) => {
                let mut arrays = host;
                arrays.extend(updated);
                Expected::Each(reference, arrays)
            }
            one => one,
        };
        let stream = stream.clone();
        let found = initial;
        Ok(Self {
            stream,
            inputs,
            outputs,
            initial: pristine,
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
            Expected::Each(reference, arrays) => {
                let at = |array: usize, index: usize| arrays.get(array).map_or(0.0, |a| a[index].to_f64());
                compare(&self.found, self.tolerance, |i| reference([at(0, i), at(1, i), at(2, i)]))
            }
        }
    }
}

fn duplicate<T: DeviceCopy>(stream: &Stream, original: &DeviceBuffer<T>) -> Result<DeviceBuffer<T>> {
    let mut copy = DeviceBuffer::uninit(stream, original.len())?;
    copy.copy_from(original)?;
    Ok(copy)
}

impl<I: Element, O: Element> Case for Arrays<I, O> {
    fn copies(&self) -> usize {
        self.outputs.len()
    }

    fn launch(&mut self, config: Config, copy: usize) -> Result<()> {
        Ok((self.launch)(&self.stream, config, &self.inputs[copy], &mut self.outputs[copy])?)
    }

    fn check(&mut self, config: Config) -> Result<Check> {
        self.outputs[0].copy_from(&self.initial)?;
        self.launch(config, 0)?;
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
    use crate::data::{Values, generate};
    use warpsmith::Device;
    use warpsmith::ops::GridRule;

    fn config(block: u32) -> Config {
        Config { block, grid: GridRule::Auto, items: 1, vector: 16 }
    }

    fn copies(launch: LaunchFn<f32, f32>, n: usize) -> Arrays<f32, f32> {
        let stream = Stream::new(&Device::open("cpu").unwrap()).unwrap();
        let parts = Parts {
            inputs: vec![generate(Values::Spread, 7, n)],
            initial: vec![f32::poison(); n],
            launch,
            expected: Expected::Each(|[x, ..]| x, Vec::new()),
            tolerance: Tolerance::EXACT,
        };
        Arrays::new(&stream, 2, parts).unwrap()
    }

    /// A copy that, with some blocks, leaves out something.
    fn faulty(
        _: &Stream,
        config: Config,
        i: &[DeviceBuffer<f32>],
        o: &mut DeviceBuffer<f32>,
    ) -> warpsmith::Result<()> {
        let n = o.len();
        match config.block {
            64 => Ok(()),
            96 => Ok(o.slice_mut(..n - 1).copy_from(i[0].slice(..n - 1))?),
            _ => Ok(o.copy_from(&i[0])?),
        }
    }

    #[test]
    fn a_configuration_that_writes_too_little_is_wrong_even_after_a_right_one() {
        for n in [1, 33, 70_001] {
            let mut case = copies(faulty, n);
            assert!(case.check(config(128)).unwrap().correct());
            assert_eq!(case.check(config(64)).unwrap().wrong, n as u64);
            assert!(case.check(config(128)).unwrap().correct());
            let check = case.check(config(96)).unwrap();
            assert_eq!((check.wrong, check.first.unwrap().0), (1, n as u64 - 1));
            assert!(check.max_error.is_nan());
            assert!(case.check(config(256)).unwrap().correct());
        }
    }

    #[test]
    fn different_bytes_within_the_tolerance_are_compared_again() {
        let launch: LaunchFn<f32, f32> = |stream, config, _, o| {
            let value =
                if config.block == 64 { 1.0f32 } else { 1.0 + f32::EPSILON * config.block as f32 / 128.0 };
            let values = DeviceBuffer::from_host(stream, &vec![value; o.len()])?;
            Ok(o.copy_from(&values)?)
        };
        let mut case = copies(launch, 100);
        case.expected = Expected::Each(|_| 1.0, Vec::new());
        case.tolerance = Tolerance { relative: 1.0, absolute: 0.0 };
        assert_eq!(case.check(config(64)).unwrap().max_error, 0.0);
        let near = case.check(config(128)).unwrap();
        assert!(near.correct() && near.max_error == f32::EPSILON as f64);
        assert!(!case.check(config(512)).unwrap().correct());
    }

    #[test]
    fn an_updated_array_is_restored_before_every_check() {
        let launch: LaunchFn<f32, f32> = |stream, _, i, o| {
            let sum: Vec<f32> = o.to_host()?.iter().zip(i[0].to_host()?).map(|(o, i)| o + i).collect();
            Ok(o.copy_from(&DeviceBuffer::from_host(stream, &sum)?)?)
        };
        let mut case = copies(launch, 50);
        let y = vec![0.5f32; 50];
        case.initial.copy_from_host(&y).unwrap();
        let Expected::Each(_, arrays) = &case.expected else {
            unreachable!("copies() compares each element")
        };
        case.expected = Expected::Each(|[x, y, _]| x + y, vec![arrays[0].clone(), y]);
        for _ in 0..3 {
            assert!(case.check(config(64)).unwrap().correct());
            case.launch(config(64), 0).unwrap();
        }
    }
}
