//! cuRAND's generators, which the emulated device does not support.

use crate::numbers::{assert_refused, name};
use crate::under_test::gpu;
use warpsmith_libraries::rand::{Generator, Pseudo, Quasi, RandomFloat};
use warpsmith_runtime::{Device, DeviceBuffer, Error, Graph, GraphError, Result, Stream};

/// Returns mean and variance.
fn moments(numbers: &[f64]) -> [f64; 2] {
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    [mean, numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / numbers.len() as f64]
}

/// Checks that both moments are within six standard errors, for a distribution with this mean, variance and fourth
/// central moment.
fn check(numbers: &[f64], mean: f64, variance: f64, fourth: f64, what: &str) {
    let [found_mean, found_variance] = moments(numbers);
    let n = numbers.len() as f64;
    let (mean_error, variance_error) = ((variance / n).sqrt(), ((fourth - variance * variance) / n).sqrt());
    assert!((found_mean - mean).abs() < 6.0 * mean_error, "{what}: mean {found_mean}, not {mean}");
    assert!(
        (found_variance - variance).abs() < 6.0 * variance_error,
        "{what}: {found_variance}, not {variance}"
    );
}

const LENGTH: usize = 1 << 20;

fn distributions<T: RandomFloat + Into<f64>>(device: &Device, kind: Pseudo) -> Result<()> {
    let stream = Stream::new(device)?;
    let mut generator = Generator::pseudo(device, kind, 42, 0)?;
    let mut buffer = DeviceBuffer::<T>::uninit(&stream, LENGTH + 1)?;
    let what = format!("{kind:?}, {}", name::<T>());
    let host = |buffer: &DeviceBuffer<T>| -> Result<Vec<f64>> {
        Ok(buffer.slice(1..).to_host()?.into_iter().map(Into::into).collect())
    };
    // cuRAND does not accept the address of the second element.
    generator.uniform(&stream, buffer.slice_mut(1..))?;
    let numbers = host(&buffer)?;
    assert!(numbers.iter().all(|x| *x > 0.0 && *x <= 1.0), "{what}");
    check(&numbers, 0.5, 1.0 / 12.0, 1.0 / 80.0, &what);
    generator.normal(&stream, 3.0, 2.0, buffer.slice_mut(1..))?;
    check(&host(&buffer)?, 3.0, 4.0, 48.0, &what);
    generator.log_normal(&stream, -1.0, 0.5, buffer.slice_mut(1..))?;
    let logarithms: Vec<f64> = host(&buffer)?.into_iter().map(f64::ln).collect();
    check(&logarithms, -1.0, 0.25, 3.0 * 0.0625, &what);
    Ok(())
}

#[test]
#[ignore = "needs a GPU"]
fn numbers_have_the_moments_of_their_distribution() -> Result<()> {
    let device = gpu();
    for kind in [Pseudo::Philox, Pseudo::Xorwow, Pseudo::Mrg32k3a] {
        distributions::<f32>(&device, kind)?;
        distributions::<f64>(&device, kind)?;
        let stream = Stream::new(&device)?;
        let mut generator = Generator::pseudo(&device, kind, 7, 0)?;
        let mut counts = DeviceBuffer::<u32>::uninit(&stream, LENGTH)?;
        for mean in [0.5, 20.0, 5000.0] {
            generator.poisson(&stream, mean, &mut counts)?;
            let counts: Vec<f64> = counts.to_host()?.into_iter().map(f64::from).collect();
            check(&counts, mean, mean, mean * (1.0 + 3.0 * mean), "poisson");
        }
    }
    Ok(())
}

fn uniform(device: &Device, seed: u64, offset: u64, lengths: &[usize]) -> Result<Vec<f32>> {
    let stream = Stream::new(device)?;
    let mut generator = Generator::pseudo(device, Pseudo::Philox, seed, offset)?;
    let mut all = Vec::new();
    for length in lengths {
        let mut numbers = DeviceBuffer::<f32>::uninit(&stream, *length)?;
        generator.uniform(&stream, &mut numbers)?;
        all.extend(numbers.to_host()?);
    }
    Ok(all)
}

#[test]
#[ignore = "needs a GPU"]
fn the_seed_and_offset_decide_the_numbers() -> Result<()> {
    let device = gpu();
    let numbers = uniform(&device, 5, 0, &[4096, 4096])?;
    assert_eq!(numbers, uniform(&device, 5, 0, &[4096, 4096])?);
    assert_ne!(numbers[..4096], numbers[4096..]);
    assert_ne!(numbers, uniform(&device, 6, 0, &[4096, 4096])?);
    assert_ne!(numbers, uniform(&device, 5, 1024, &[4096, 4096])?);
    // These lengths are odd.
    let numbers = uniform(&device, 5, 0, &[1, 3, 1001])?;
    assert_eq!(numbers, uniform(&device, 5, 0, &[1, 3, 1001])?);
    assert!(numbers.iter().all(|x| *x > 0.0 && *x <= 1.0));
    Ok(())
}

#[test]
#[ignore = "needs a GPU"]
fn calls_on_several_streams_keep_their_order() -> Result<()> {
    let device = gpu();
    let streams = [Stream::new(&device)?, Stream::new(&device)?, Stream::new(&device)?];
    let run = |several: bool| -> Result<Vec<Vec<f32>>> {
        let mut generator = Generator::pseudo(&device, Pseudo::Xorwow, 9, 0)?;
        let mut buffers = Vec::new();
        for round in 0..30 {
            let stream = if several { &streams[round % 3] } else { &streams[0] };
            let mut buffer = DeviceBuffer::<f32>::uninit(stream, 1 << 18)?;
            generator.normal(stream, 0.0, 1.0, &mut buffer)?;
            buffers.push(buffer);
        }
        drop(generator);
        buffers.iter().map(DeviceBuffer::to_host).collect()
    };
    assert!(run(false)? == run(true)?);
    assert!(device.take_drop_error().is_none());
    Ok(())
}

#[test]
#[ignore = "needs a GPU"]
fn a_host_function_may_drop_a_generator() -> Result<()> {
    let device = gpu();
    let stream = Stream::new(&device)?;
    let mut generator = Generator::pseudo(&device, Pseudo::Philox, 5, 0)?;
    let mut numbers = DeviceBuffer::<f32>::uninit(&stream, 4096)?;
    generator.uniform(&stream, &mut numbers)?;
    stream.host_function(move || drop(generator))?;
    assert_eq!(numbers.to_host()?, uniform(&device, 5, 0, &[4096])?);
    assert!(device.take_drop_error().is_none());
    Ok(())
}

#[test]
#[ignore = "needs a GPU"]
fn a_sobol_sequence_fills_the_cube_evenly() -> Result<()> {
    let device = gpu();
    let stream = Stream::new(&device)?;
    let (dimensions, points) = (5usize, 1 << 12);
    let even = |numbers: Vec<f64>, what: &str| {
        for (dimension, numbers) in numbers.chunks(points).enumerate() {
            // Each of 64 equal intervals contains the same count, because a Sobol sequence from its start deviates by
            // at most one.
            let mut counts = [0i64; 64];
            numbers.iter().for_each(|x| counts[((x * 64.0) as usize).min(63)] += 1);
            let expected = points as i64 / 64;
            assert!(
                counts.iter().all(|count| (count - expected).abs() <= 2),
                "{what}, dimension {dimension}: {counts:?}"
            );
        }
    };
    for kind in [Quasi::Sobol32, Quasi::ScrambledSobol32] {
        let mut generator = Generator::quasi(&device, kind, dimensions as u32, 0)?;
        let mut numbers = DeviceBuffer::<f32>::uninit(&stream, dimensions * points)?;
        generator.uniform(&stream, &mut numbers)?;
        even(numbers.to_host()?.into_iter().map(f64::from).collect(), "f32");
    }
    for kind in [Quasi::Sobol64, Quasi::ScrambledSobol64] {
        let mut generator = Generator::quasi(&device, kind, dimensions as u32, 0)?;
        let mut numbers = DeviceBuffer::<f64>::uninit(&stream, dimensions * points)?;
        generator.uniform(&stream, &mut numbers)?;
        even(numbers.to_host()?, "f64");
    }
    Ok(())
}

#[test]
#[ignore = "needs a GPU"]
fn bad_parameters_and_captures_are_refused() -> Result<()> {
    let device = gpu();
    let stream = Stream::new(&device)?;
    let mut generator = Generator::pseudo(&device, Pseudo::Philox, 1, 0)?;
    let mut quasi = Generator::quasi(&device, Quasi::Sobol32, 3, 0)?;
    let mut numbers = DeviceBuffer::<f32>::uninit(&stream, 100)?;
    let mut counts = DeviceBuffer::<u32>::uninit(&stream, 100)?;
    assert_refused(generator.normal(&stream, f64::NAN, 1.0, &mut numbers), "finite");
    assert_refused(generator.log_normal(&stream, 0.0, -1.0, &mut numbers), "not be negative");
    assert_refused(generator.poisson(&stream, 0.0, &mut counts), "positive");
    assert_refused(quasi.uniform(&stream, &mut numbers), "100 numbers are not a multiple of 3 dimensions");
    assert_refused(Generator::quasi(&device, Quasi::Sobol64, 0, 0), "1 to 20000");
    assert_refused(Generator::quasi(&device, Quasi::Sobol64, 20_001, 0), "1 to 20000");
    generator.uniform(&stream, numbers.slice_mut(..0))?;
    let graph = Graph::capture(&stream, || {
        let found = generator.uniform(&stream, &mut numbers);
        assert!(matches!(found, Err(Error::Graph(GraphError::NotCapturable { .. }))), "{found:?}");
        stream.memset(&mut numbers, 0)
    })?;
    graph.instantiate()?.launch(&stream)?;
    assert_eq!(numbers.to_host()?, [0.0; 100]);
    generator.uniform(&stream, &mut numbers)?;
    assert!(numbers.to_host()?.iter().all(|x| *x > 0.0));
    Ok(())
}
