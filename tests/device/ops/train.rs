//! Training kernels compared with double precision.

use test_kernels::IMAGE;
use test_kernels::train::{adam, count_up, relu_backward, softmax_cross_entropy};
use warpsmith::prelude::*;

use crate::common::{Random, stream};

fn close(found: &[f32], exact: &[f64], bound: f64, seed: u64) {
    assert_eq!(found.len(), exact.len());
    for (i, (found, exact)) in found.iter().zip(exact).enumerate() {
        let error = (f64::from(*found) - exact).abs();
        assert!(error <= bound * (1.0 + exact.abs()), "[{i}]: {found}, not {exact} (seed {seed})");
    }
}

#[test]
fn cross_entropy_equals_double_precision() {
    let (stream, mut random) = (stream(), Random::new());
    let kernel = stream.device().load(&IMAGE).unwrap().kernel::<softmax_cross_entropy>().unwrap();
    for (rows, classes) in [(1, 1), (3, 2), (33, 10), (1000, 3)] {
        // Some rows are far from zero: without subtracting the maximum, their exponentials would overflow.
        let logits: Vec<f32> = (0..rows * classes)
            .map(|i| (random.unit() * 8.0 - 4.0) as f32 + if i / classes % 3 == 1 { 200.0 } else { 0.0 })
            .collect();
        let labels: Vec<u32> = (0..rows).map(|_| (random.bits() % classes as u64) as u32).collect();
        let (mut losses, mut gradient) = (Vec::new(), Vec::new());
        for (row, label) in logits.chunks(classes).zip(&labels) {
            let most = row.iter().map(|x| f64::from(*x)).fold(f64::NEG_INFINITY, f64::max);
            let log_sum = most + row.iter().map(|x| (f64::from(*x) - most).exp()).sum::<f64>().ln();
            losses.push(log_sum - f64::from(row[*label as usize]));
            gradient.extend(row.iter().enumerate().map(|(class, x)| {
                let right = if class == *label as usize { 1.0 } else { 0.0 };
                ((f64::from(*x) - log_sum).exp() - right) / rows as f64
            }));
        }
        let logits = DeviceBuffer::from_host(&stream, &logits).unwrap();
        let labels = DeviceBuffer::from_host(&stream, &labels).unwrap();
        let mut found_losses = DeviceBuffer::from_host(&stream, &vec![f32::NAN; rows]).unwrap();
        let mut found_gradient = DeviceBuffer::from_host(&stream, &vec![f32::NAN; rows * classes]).unwrap();
        let arguments = (classes as u32, &logits, &labels, &mut found_losses, &mut found_gradient);
        kernel.launch(&stream, Launch::auto(rows * classes), arguments).unwrap();
        // The logarithm of the sum is rounded at the magnitude of the logits, up to 204.
        close(&found_losses.to_host().unwrap(), &losses, 5e-5, random.seed);
        close(&found_gradient.to_host().unwrap(), &gradient, 5e-5, random.seed);
    }
}

#[test]
fn an_invalid_label_has_an_infinite_loss() {
    let stream = stream();
    let kernel = stream.device().load(&IMAGE).unwrap().kernel::<softmax_cross_entropy>().unwrap();
    let logits = DeviceBuffer::from_host(&stream, &[0.0f32; 6]).unwrap();
    let labels = DeviceBuffer::from_host(&stream, &[2u32, 3]).unwrap();
    let mut losses = DeviceBuffer::zeros(&stream, 2).unwrap();
    let mut gradient = DeviceBuffer::from_host(&stream, &[f32::NAN; 6]).unwrap();
    kernel.launch(&stream, Launch::auto(6), (3, &logits, &labels, &mut losses, &mut gradient)).unwrap();
    let losses = losses.to_host().unwrap();
    assert!((losses[0] - 3.0f32.ln()).abs() < 1e-6 && losses[1] == f32::INFINITY, "{losses:?}");
    let gradient = gradient.to_host().unwrap();
    let expected = [1.0f32 / 6.0, 1.0 / 6.0, -1.0 / 3.0, 0.0, 0.0, 0.0];
    assert!(gradient.iter().zip(expected).all(|(g, expected)| (g - expected).abs() < 1e-6), "{gradient:?}");
    assert_eq!(gradient[3..], [0.0; 3]);
}

#[test]
fn the_rectifiers_gradient_is_zero_where_off() {
    let stream = stream();
    let kernel = stream.device().load(&IMAGE).unwrap().kernel::<relu_backward>().unwrap();
    let activated = DeviceBuffer::from_host(&stream, &[0.0f32, 1.0, 0.0, 2.0, 0.0]).unwrap();
    let mut gradient = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, f32::INFINITY, -4.0, 5.0]).unwrap();
    kernel.launch(&stream, Launch::auto(5), (&activated, &mut gradient)).unwrap();
    assert_eq!(gradient.to_host().unwrap(), [0.0, 2.0, 0.0, -4.0, 0.0]);
}

#[test]
fn adam_moves_as_in_double_precision() {
    let (stream, mut random) = (stream(), Random::new());
    let module = stream.device().load(&IMAGE).unwrap();
    let (adam, count_up) = (module.kernel::<adam>().unwrap(), module.kernel::<count_up>().unwrap());
    let n = 1000;
    let start: Vec<f32> = (0..n).map(|_| random.unit() as f32).collect();
    let mut step = DeviceBuffer::zeros(&stream, 1).unwrap();
    let mut weights = DeviceBuffer::from_host(&stream, &start).unwrap();
    let (mut mean, mut variance) =
        (DeviceBuffer::zeros(&stream, n).unwrap(), DeviceBuffer::zeros(&stream, n).unwrap());
    let mut exact: Vec<f64> = start.iter().map(|x| f64::from(*x)).collect();
    let mut moments = vec![(0.0f64, 0.0f64); n];
    for t in 1..=10 {
        let gradient: Vec<f32> = (0..n).map(|_| (random.unit() * 2.0 - 1.0) as f32).collect();
        for ((x, (mean, variance)), g) in exact.iter_mut().zip(&mut moments).zip(&gradient) {
            let g = f64::from(*g);
            (*mean, *variance) = (0.9 * *mean + 0.1 * g, 0.999 * *variance + 0.001 * g * g);
            let (mean, variance) = (*mean / (1.0 - 0.9f64.powi(t)), *variance / (1.0 - 0.999f64.powi(t)));
            *x -= 0.01 * mean / (variance.sqrt() + 1e-8);
        }
        let gradient = DeviceBuffer::from_host(&stream, &gradient).unwrap();
        count_up.launch(&stream, Launch::auto(1), (&mut step,)).unwrap();
        let arguments = (0.01, 0.9, 0.999, 1e-8, &step, &gradient, &mut weights, &mut mean, &mut variance);
        adam.launch(&stream, Launch::auto(n), arguments).unwrap();
    }
    assert_eq!(step.to_host().unwrap(), [10]);
    // Without the step number, no weight changes.
    let none = DeviceBuffer::zeros(&stream, 0).unwrap();
    let gradient = DeviceBuffer::from_host(&stream, &vec![1.0; n]).unwrap();
    let arguments = (0.01, 0.9, 0.999, 1e-8, &none, &gradient, &mut weights, &mut mean, &mut variance);
    adam.launch(&stream, Launch::auto(n), arguments).unwrap();
    close(&weights.to_host().unwrap(), &exact, 1e-5, random.seed);
}
