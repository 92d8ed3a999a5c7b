//! The training compared with plain Rust in `f64`, alone and on several emulated devices.

use regression::{FEATURES, SAMPLES, STEPS, Training, samples, train};
use warpsmith::bench::benchmark::{Benchmark, Setup};
use warpsmith::collective::{Communicator, CommunicatorOptions};
use warpsmith::emulated::EmulatedDriver;
use warpsmith::prelude::*;

#[allow(dead_code, reason = "the test runs the benchmark itself, not by its `main`")]
#[path = "../benches/tune.rs"]
mod tune;

/// Returns the loss of every tenth step.
fn reference() -> Vec<f64> {
    let (x, labels) = samples(0..SAMPLES);
    let x = |feature: usize, sample: usize| f64::from(x[feature * SAMPLES + sample]);
    let mut weights = vec![0.0; FEATURES];
    let mut losses = Vec::new();
    for step in 1..=STEPS {
        let (mut gradient, mut loss) = (vec![0.0; FEATURES], 0.0);
        for (sample, label) in labels.iter().enumerate() {
            let logit: f64 = (0..FEATURES).map(|i| weights[i] * x(i, sample)).sum();
            let (probability, label) = (1.0 / (1.0 + (-logit).exp()), f64::from(*label));
            loss -= label * probability.ln() + (1.0 - label) * (1.0 - probability).ln();
            for (i, gradient) in gradient.iter_mut().enumerate() {
                *gradient += (probability - label) * x(i, sample);
            }
        }
        if step % 10 == 0 {
            losses.push(loss / SAMPLES as f64);
        }
        weights.iter_mut().zip(&gradient).for_each(|(w, g)| *w -= 2.0 * g / SAMPLES as f64);
    }
    losses
}

fn assert_close(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-4 * expected, "{found} instead of {expected}");
    }
}

#[test]
fn one_device_learns_as_plain_rust() -> Result<(), Error> {
    let device = Device::open(&std::env::var("WARPSMITH_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned()))?;
    let stream = Stream::new(&device)?;
    let mut training = Training::new(&stream, 0..SAMPLES)?;
    let mut losses = Vec::new();
    for step in 1..=STEPS {
        training.step(&stream, |_| Ok(()))?;
        if step % 10 == 0 {
            losses.push(training.loss()?);
        }
    }
    assert!(losses.is_sorted_by(|before, after| before > after), "{losses:?}");
    assert_close(&losses, &reference());
    Ok(())
}

#[test]
fn several_devices_learn_the_same() -> Result<(), Error> {
    let expected = reference();
    for count in [1, 2, 4] {
        let driver = EmulatedDriver::builder().devices(count).build();
        let stream = |i| Stream::new(&Device::with_driver(driver.clone(), i)?);
        let streams = (0..count).map(stream).collect::<Result<Vec<_>, Error>>()?;
        let ranks = Communicator::init_all(&streams, &CommunicatorOptions::new())?;
        let threads: Vec<_> = ranks.into_iter().map(|rank| std::thread::spawn(move || train(rank))).collect();
        for thread in threads {
            assert_close(&thread.join().unwrap()?, &expected);
        }
    }
    Ok(())
}

#[test]
fn every_configuration_of_the_benchmark_is_correct() -> Result<(), Box<dyn std::error::Error>> {
    let stream = Device::open("cpu")?.default_stream();
    let benchmark = tune::tuned_gradient();
    let setup = Setup { stream: &stream, dtype: "f32", n: 100 * FEATURES, copies: 1, seed: 1 };
    let mut case = benchmark.prepare(&setup)?;
    for configuration in benchmark.space("f32", stream.device()).configurations(benchmark.name())? {
        case.select(&configuration)?;
        let check = case.check()?;
        assert!(check.correct(), "{configuration}: {:?}", check.problem());
    }
    Ok(())
}
