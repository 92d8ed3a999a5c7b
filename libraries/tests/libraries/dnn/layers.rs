//! Pooling and batch normalization.

use half::{bf16, f16};
use warpsmith_libraries::dnn::{self, *};
use warpsmith_runtime::{Device, Error};

use super::LAYOUTS;
use super::support::*;
use crate::numbers::{TestValue as _, assert_refused, buffer, each, name, random, stream, uninit};
use crate::under_test::device;

/// Run mode of a layer: whether it is captured, and the first element of the buffers.
type How = (bool, usize);

const PLAIN: How = (false, 0);
const CAPTURED: How = (true, 0);

/// Panics unless results are within n roundings of `1 + |expected|`.
fn assert_near<T: TestNumber>(found: &[T], expected: &[f64], roundings: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found.value() - expected).abs();
        let allowed = roundings * T::UNIT * (1.0 + expected.abs());
        assert!(error <= allowed, "{what}: element {index} is {found:?} for {expected}: {error} > {allowed}");
    }
}

/// A shape, window, padding and stride.
type PoolingCase = (&'static [usize], [usize; 3], [usize; 3], [usize; 3]);

const POOLINGS: [PoolingCase; 4] = [
    (&[2, 3, 8, 9], [1, 2, 2], [0, 0, 0], [1, 2, 2]),
    (&[2, 8, 9, 7], [1, 3, 3], [0, 1, 1], [1, 2, 1]),
    (&[2, 4, 17], [1, 1, 4], [0, 0, 2], [1, 1, 3]),
    (&[1, 4, 5, 6, 7], [2, 3, 2], [1, 0, 1], [2, 1, 2]),
];

fn pooling_is_correct<T: TestNumber>(
    case: PoolingCase,
    mode: PoolingMode,
    layout: Layout,
    (captured, first): How,
) {
    let (shape, window, padding, stride) = case;
    let axes = |values: [usize; 3]| match shape.len() {
        3 => [values[2]].into(),
        4 => [values[1], values[2]].into(),
        _ => Axes::from(values),
    };
    let operator = Pooling { mode, window: axes(window), padding: axes(padding), stride: Some(axes(stride)) };
    let what = format!("{} {operator:?} {shape:?} {layout:?}", name::<T>());
    let of_y = operator.output_shape(shape).unwrap();
    let (five_x, five_y) = (five(shape), five(&of_y));
    // All values differ, so the maximum is unique.
    let count = five_x.iter().product::<usize>();
    let x: Vec<T> = (0..count).map(|i| T::of(((i * 73 + 11) % 251) as f64 / 4.0 - 30.0)).collect();
    let dy = random::<T>(five_y.iter().product(), 3);
    let (mut y_expected, mut dx_expected) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
    for place in places(five_y) {
        let mut inside = Vec::new();
        for tap in places([1, 1, window[0], window[1], window[2]]) {
            let mut from = place;
            for i in 0..3 {
                from[i + 2] = (place[i + 2] * stride[i] + tap[i + 2]).wrapping_sub(padding[i]);
            }
            if (2..5).all(|i| from[i] < five_x[i]) {
                inside.push(at(five_x, layout, from));
            }
        }
        let at_y = at(five_y, layout, place);
        let divisor = match mode {
            PoolingMode::AverageWithPadding => window.iter().product::<usize>(),
            _ => inside.len(),
        } as f64;
        if mode == PoolingMode::Max {
            let most = inside.iter().copied().max_by(|a, b| x[*a].value().total_cmp(&x[*b].value())).unwrap();
            y_expected[at_y] = x[most].value();
            dx_expected[most] += dy[at_y].value();
        } else {
            y_expected[at_y] = inside.iter().map(|i| x[*i].value()).sum::<f64>() / divisor;
            inside.iter().for_each(|i| dx_expected[*i] += dy[at_y].value() / divisor);
        }
    }
    let stream = stream();
    let [x, dy] = [&x, &dy].map(|values| padded(&stream, values, first));
    let [mut y, mut dx] =
        [&y_expected, &dx_expected].map(|values| padded(&stream, &vec![T::of(5.0); values.len()], first));
    let (in_x, in_y) = (first..first + dx_expected.len(), first..first + y_expected.len());
    let x = Tensor::new(x.slice(in_x.clone()), shape, layout).unwrap();
    enqueue(&stream, captured, || {
        let target = &mut TensorMut::new(y.slice_mut(in_y.clone()), &of_y, layout)?;
        dnn::pooling(&stream, &operator, &x, target)?;
        let dy = Tensor::new(dy.slice(in_y.clone()), &of_y, layout)?;
        let dx = &mut TensorMut::new(dx.slice_mut(in_x), shape, layout)?;
        pooling_backward(&stream, &operator, &x, &Tensor::new(y.slice(in_y), &of_y, layout)?, &dy, dx)
    })
    .unwrap();
    assert_near(&inside(&y, first), &y_expected, 4.0, &what);
    assert_near(&inside(&dx, first), &dx_expected, 16.0, &what);
}

#[test]
fn pooling_and_its_gradient_are_correct() {
    for case in POOLINGS {
        for mode in [PoolingMode::Max, PoolingMode::Average, PoolingMode::AverageWithPadding] {
            for layout in LAYOUTS {
                each!(pooling_is_correct(case, mode, layout, PLAIN): f32, f16);
                for first in 1..4 {
                    each!(pooling_is_correct(case, mode, layout, (false, first)): f32, f16);
                }
            }
            pooling_is_correct::<f64>(case, mode, Layout::Nchw, PLAIN);
            pooling_is_correct::<f32>(case, mode, Layout::Nchw, CAPTURED);
        }
        // With eight bits, not all elements would differ, so only averages are checked.
        pooling_is_correct::<bf16>(case, PoolingMode::Average, Layout::Nchw, PLAIN);
    }
}

#[test]
fn a_window_with_nan_has_nan_as_its_maximum() {
    let stream = stream();
    let x = buffer(&stream, &[1f32, f32::NAN, 3., 4., 5., 6., 7., 8.]);
    let mut y = uninit::<f32>(&stream, 2);
    let operator = Pooling { window: [4].into(), ..Pooling::default() };
    let x = Tensor::new(&x, &[1, 1, 8], Layout::Nchw).unwrap();
    let target = &mut TensorMut::new(&mut y, &[1, 1, 2], Layout::Nchw).unwrap();
    dnn::pooling(&stream, &operator, &x, target).unwrap();
    let y = y.to_host().unwrap();
    assert!(y[0].is_nan() && y[1] == 8.0, "{y:?}");
}

#[test]
fn a_mean_counts_the_elements_of_the_largest_window() {
    // The product has 93 bits and comes from the largest window that is accepted. GPUs may reject it.
    let stream = Device::emulated(0).unwrap().default_stream();
    let extent = i32::MAX as usize;
    let x = buffer(&stream, &[1e28f32]);
    let mut y = uninit::<f32>(&stream, 1);
    let operator = Pooling {
        mode: PoolingMode::AverageWithPadding,
        window: extent.into(),
        padding: (extent / 2).into(),
        ..Pooling::default()
    };
    let shape = [1; 5];
    let target = &mut TensorMut::new(&mut y, &shape, Layout::Nchw).unwrap();
    dnn::pooling(&stream, &operator, &Tensor::new(&x, &shape, Layout::Nchw).unwrap(), target).unwrap();
    assert_near(&y.to_host().unwrap(), &[1e28 / (extent as f64).powi(3)], 4.0, "mean");
}

#[test]
fn poolings_that_do_not_fit_are_refused() {
    let with = |window: usize, padding: usize, stride: usize| Pooling {
        window: window.into(),
        padding: padding.into(),
        stride: Some(stride.into()),
        ..Pooling::default()
    };
    for (operator, shape, expected) in [
        (with(3, 2, 1), &[1usize, 1, 8, 8][..], "more than half"),
        (with(9, 0, 1), &[1, 1, 8, 8], "does not fit"),
        (with(2, 0, 0), &[1, 1, 8, 8], "does not fit"),
        (with(2, 1, 1), &[1, 1, 0, 8], "of size 0"),
        (with(2, 1, 1), &[1, 1], "no spatial"),
    ] {
        assert_refused(operator.output_shape(shape), expected);
    }
}

fn batch_norm_is_correct<T: TestNumber>(shape: &[usize], layout: Layout, (captured, first): How)
where
    T::Real: TestNumber,
{
    let what = format!("{} {shape:?} {layout:?}", name::<T>());
    let (five, count, channels) = (five(shape), shape.iter().product::<usize>(), shape[1]);
    let (x, dy) = (random::<T>(count, 1), random::<T>(count, 2));
    let [scale, bias, old_mean, spread] = [3, 4, 5, 6].map(|seed| random::<T::Real>(channels, seed));
    let old_variance: Vec<T::Real> =
        spread.iter().map(|value| T::Real::of(value.value().abs() + 0.5)).collect();
    let norm = BatchNorm { epsilon: 1e-3, momentum: 0.25 };
    let stream = stream();
    let [on_x, on_dy, mut y, mut inferred, mut dx] =
        [&x, &dy, &x, &x, &x].map(|values| padded(&stream, values, first));
    let [
        on_scale,
        on_bias,
        mut mean,
        mut variance,
        mut saved_mean,
        mut saved_deviation,
        mut dscale,
        mut dbias,
    ] = [&scale, &bias, &old_mean, &old_variance, &scale, &scale, &scale, &scale]
        .map(|values| padded(&stream, values, first));
    let (all, of_channels) = (first..first + count, first..first + channels);
    let tensor = |buffer| Tensor::new(buffer, shape, layout).unwrap();
    let (on_x, on_dy) = (tensor(on_x.slice(all.clone())), tensor(on_dy.slice(all.clone())));
    let [on_scale, on_bias] = [&on_scale, &on_bias].map(|buffer| buffer.slice(of_channels.clone()));
    let parameters = (&on_scale, &on_bias);
    enqueue(&stream, captured, || {
        let running = (&mean.slice(of_channels.clone()), &variance.slice(of_channels.clone()));
        let target = &mut TensorMut::new(inferred.slice_mut(all.clone()), shape, layout)?;
        batch_norm_inference(&stream, &norm, &on_x, parameters, running, target)?;
        let mut running = RunningStatistics {
            mean: mean.slice_mut(of_channels.clone()),
            variance: variance.slice_mut(of_channels.clone()),
        };
        let mut saved = BatchStatistics {
            mean: saved_mean.slice_mut(of_channels.clone()),
            inverse_deviation: saved_deviation.slice_mut(of_channels.clone()),
        };
        let target = &mut TensorMut::new(y.slice_mut(all.clone()), shape, layout)?;
        batch_norm_training(&stream, &norm, &on_x, parameters, Some(&mut running), &mut saved, target)?;
        let mut gradients = BatchNormGradients {
            input: TensorMut::new(dx.slice_mut(all), shape, layout)?,
            scale: dscale.slice_mut(of_channels.clone()),
            bias: dbias.slice_mut(of_channels.clone()),
        };
        let saved = (&saved_mean.slice(of_channels.clone()), &saved_deviation.slice(of_channels));
        batch_norm_backward(&stream, &norm, (&on_x, &on_dy), &on_scale, saved, &mut gradients)
    })
    .unwrap();

    let mut expected = [(); 3].map(|()| vec![0.0; count]);
    let [mut means, mut deviations, mut new_mean, mut new_variance, mut dscales, mut dbiases] =
        [(); 6].map(|()| vec![0.0; channels]);
    for c in 0..channels {
        let of = |[n, _, d, h, w]: [usize; 5]| at(five, layout, [n, c, d, h, w]);
        let all: Vec<usize> = places([five[0], 1, five[2], five[3], five[4]]).map(of).collect();
        let n = all.len() as f64;
        let mean = all.iter().map(|i| x[*i].value()).sum::<f64>() / n;
        let variance = all.iter().map(|i| (x[*i].value() - mean).powi(2)).sum::<f64>() / n;
        let inverse = 1.0 / (variance + norm.epsilon).sqrt();
        (means[c], deviations[c]) = (mean, inverse);
        new_mean[c] = 0.75 * old_mean[c].value() + 0.25 * mean;
        new_variance[c] = 0.75 * old_variance[c].value() + 0.25 * variance * n / (n - 1.0);
        let normal = |i: usize| (x[i].value() - mean) * inverse;
        dbiases[c] = all.iter().map(|i| dy[*i].value()).sum();
        dscales[c] = all.iter().map(|i| dy[*i].value() * normal(*i)).sum();
        let old = 1.0 / (old_variance[c].value() + norm.epsilon).sqrt();
        for &i in &all {
            expected[0][i] = normal(i) * scale[c].value() + bias[c].value();
            expected[1][i] = (x[i].value() - old_mean[c].value()) * old * scale[c].value() + bias[c].value();
            let rest = dy[i].value() - dbiases[c] / n - normal(i) * dscales[c] / n;
            expected[2][i] = scale[c].value() * inverse * rest;
        }
    }
    for ((found, expected), name) in [&y, &inferred, &dx].iter().zip(&expected).zip(["y", "inferred", "dx"]) {
        assert_near(&inside(found, first), expected, 64.0, &format!("{what}: {name}"));
    }
    for ((found, expected), name) in [&saved_mean, &saved_deviation, &mean, &variance, &dscale, &dbias]
        .iter()
        .zip([means, deviations, new_mean, new_variance, dscales, dbiases])
        .zip(["mean", "deviation", "running mean", "running variance", "dscale", "dbias"])
    {
        assert_near(&inside(found, first), &expected, 512.0, &format!("{what}: {name}"));
    }
}

#[test]
fn batch_normalization_and_its_gradient_are_correct() {
    for layout in LAYOUTS {
        for first in 0..4 {
            each!(batch_norm_is_correct(&[4, 8, 5, 6], layout, (false, first)): f32, f16);
        }
    }
    batch_norm_is_correct::<f32>(&[16, 5], Layout::Nchw, PLAIN);
    batch_norm_is_correct::<f32>(&[2, 3, 4, 5, 6], Layout::Nchw, PLAIN);
    batch_norm_is_correct::<f64>(&[3, 4, 7], Layout::Nchw, PLAIN);
    batch_norm_is_correct::<f32>(&[4, 8, 5, 6], Layout::Nchw, CAPTURED);
    batch_norm_is_correct::<bf16>(&[4, 8, 5, 6], Layout::Nchw, PLAIN);
}

#[test]
fn a_batch_of_one_element_has_no_variance() {
    let stream = stream();
    let x = buffer(&stream, &[1f32; 3]);
    let [mut y, mut mean, mut deviation] = [(); 3].map(|()| buffer(&stream, &[5f32; 3]));
    let mut saved =
        BatchStatistics { mean: mean.as_mut_slice(), inverse_deviation: deviation.as_mut_slice() };
    let one = &x.as_slice();
    let tensor = Tensor::new(&x, &[1, 3], Layout::Nchw).unwrap();
    let target = &mut TensorMut::new(&mut y, &[1, 3], Layout::Nchw).unwrap();
    let norm = BatchNorm::default();
    let refused = batch_norm_training(&stream, &norm, &tensor, (one, one), None, &mut saved, target);
    assert_refused(refused, "more than 1");
    let short = &x.slice(..2);
    let refused = batch_norm_training(&stream, &norm, &tensor, (short, one), None, &mut saved, target);
    assert_refused(refused, "scale has 2 elements");
    assert_eq!(y.to_host().unwrap(), [5.0; 3]);
}

#[test]
fn empty_batches_cannot_train() {
    let stream = stream();
    let layout = Layout::Nchw;
    let none = uninit::<f32>(&stream, 0);
    let [mut nothing, mut no_mean, mut no_deviation] = [(); 3].map(|()| uninit::<f32>(&stream, 0));
    let ones = buffer(&stream, &[1f32; 3]);
    let [mut mean, mut deviation, mut dscale, mut dbias] = [(); 4].map(|()| buffer(&stream, &[5f32; 3]));
    let norm = BatchNorm::default();
    let one = &ones.as_slice();
    {
        let mut saved =
            BatchStatistics { mean: mean.as_mut_slice(), inverse_deviation: deviation.as_mut_slice() };
        let shapes: [&[usize]; 3] = [&[0, 3], &[0, 3, 4, 4], &[0, 3, usize::MAX, usize::MAX]];
        for shape in shapes {
            let x = Tensor::new(&none, shape, layout).unwrap();
            let y = &mut TensorMut::new(&mut nothing, shape, layout).unwrap();
            let refused = batch_norm_training(&stream, &norm, &x, (one, one), None, &mut saved, y);
            assert_refused(refused, "no elements per channel");
        }
        // Without channels there is nothing to compute.
        let mut saved =
            BatchStatistics { mean: no_mean.as_mut_slice(), inverse_deviation: no_deviation.as_mut_slice() };
        let (x, no) = (Tensor::new(&none, &[4, 0], layout).unwrap(), &none.as_slice());
        let y = &mut TensorMut::new(&mut nothing, &[4, 0], layout).unwrap();
        batch_norm_training(&stream, &norm, &x, (no, no), None, &mut saved, y).unwrap();
    }
    assert_eq!((mean.to_host().unwrap(), deviation.to_host().unwrap()), (vec![5.0; 3], vec![5.0; 3]));

    let x = Tensor::new(&none, &[0, 3], layout).unwrap();
    let mut gradients = BatchNormGradients {
        input: TensorMut::new(&mut nothing, &[0, 3], layout).unwrap(),
        scale: dscale.as_mut_slice(),
        bias: dbias.as_mut_slice(),
    };
    let elsewhere = buffer(&device().default_stream(), &[1f32; 3]);
    let away = &elsewhere.as_slice();
    let error = batch_norm_backward(&stream, &norm, (&x, &x), away, (one, one), &mut gradients);
    assert!(matches!(error, Err(Error::DifferentDevices { .. })));
    assert_eq!(gradients.scale.as_slice().to_host().unwrap(), [5.0; 3]);
    batch_norm_backward(&stream, &norm, (&x, &x), one, (one, one), &mut gradients).unwrap();
    assert_eq!((dscale.to_host().unwrap(), dbias.to_host().unwrap()), (vec![0.0; 3], vec![0.0; 3]));
}
