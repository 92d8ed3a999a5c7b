//! Tensors that begin at any element of a buffer, not only where accesses of 16 bytes can.

use half::f16;
use warpsmith_runtime::library::dnn::{self, *};
use warpsmith_runtime::{DeviceBuffer, Error, Stream};

use super::support::*;
use super::{CASES, LAYOUTS, Tensors, operator};

#[test]
fn convolutions_of_tensors_at_any_address_are_right() {
    fn check<T: Number>(layout: Layout, first: usize) -> Result<(), Error> {
        let stream = Stream::new(&device())?;
        let tensors = Tensors::<T>::new(CASES[0], layout, 11);
        let (case, of_y) = (tensors.case, tensors.case.y());
        let apart = |values: &[T]| {
            let padded = [&vec![T::of(0.0); first][..], values, &[T::of(7.0); 3]].concat();
            buffer(&stream, &padded)
        };
        let [x, w, y] = [&tensors.x, &tensors.w, &tensors.y].map(|values| apart(values));
        let [mut dx, mut dw, mut forward] = [&tensors.x, &tensors.w, &tensors.y].map(|values| apart(values));
        let part = |len: usize| first..first + len;
        let (in_x, in_w, in_y) = (part(tensors.x.len()), part(tensors.w.len()), part(tensors.y.len()));
        let options = Some(Options { allow_tf32: false, ..Options::default() });
        let operator = Convolution { options, ..operator(&case) };
        let x = Tensor::new(x.slice(in_x.clone()), case.x, layout)?;
        let w = Tensor::new(w.slice(in_w.clone()), case.w, layout)?;
        let y = Tensor::new(y.slice(in_y.clone()), &of_y, layout)?;
        let target = &mut TensorMut::new(forward.slice_mut(in_y.clone()), &of_y, layout)?;
        dnn::convolution(&stream, &operator, &x, &w, target)?;
        let target = &mut TensorMut::new(dw.slice_mut(in_w.clone()), case.w, layout)?;
        convolution_backward_weights(&stream, &operator, &x, &y, target)?;
        let target = &mut TensorMut::new(dx.slice_mut(in_x.clone()), case.x, layout)?;
        convolution_backward_data(&stream, &operator, &w, &y, target)?;
        let found = [(forward, in_y), (dx, in_x), (dw, in_w)];
        for (((found, inside), sums), name) in found.into_iter().zip(&tensors.sums()).zip(["y", "dx", "dw"]) {
            let found = found.to_host()?;
            let what = format!("{} {layout:?} from {first}: {name}", std::any::type_name::<T>());
            assert_close(&found[inside.clone()], sums, Bound::Exact, |sum, _| sum, &what);
            assert!(found[..first].iter().all(|value| value.to() == 0.0), "{what}");
            assert!(found[inside.end..].iter().all(|value| value.to() == 7.0), "{what}");
        }
        Ok(())
    }
    let mut refused = Vec::new();
    for (layout, first) in LAYOUTS.into_iter().flat_map(|layout| [1, 2, 3].map(|first| (layout, first))) {
        for (kind, done) in [("f32", check::<f32>(layout, first)), ("f16", check::<f16>(layout, first))] {
            if let Err(error) = done {
                refused.push(format!("{kind} {layout:?} from {first}: {error}"));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// What pooling, softmax, batch normalisation and their gradients give, the tensors beginning at element `first`.
fn layers<T: Number>(layout: Layout, first: usize) -> Result<Vec<Vec<f64>>, Error>
where
    T::Real: Number,
{
    let stream = Stream::new(&device())?;
    let (shape, of_y) = ([2, 8, 9, 7], [2, 8, 4, 3]);
    let (count, count_y) = (shape.iter().product::<usize>(), of_y.iter().product::<usize>());
    let apart = |values: &[T]| buffer(&stream, &[&vec![T::of(0.0); first][..], values].concat());
    let apart_real = |seed| {
        let positive = |value: T::Real| T::Real::of(value.to().abs() + 0.5);
        let values: Vec<T::Real> = random::<T::Real>(8, seed).into_iter().map(positive).collect();
        buffer(&stream, &[&vec![T::Real::of(0.0); first][..], &values].concat())
    };
    let [x, dx_from, dy_from] =
        [(1, count), (2, count), (3, count_y)].map(|(seed, len)| apart(&random(len, seed)));
    let new = |len: usize| DeviceBuffer::<T>::zeros(&stream, first + len).unwrap();
    let x = Tensor::new(x.slice(first..), &shape, layout)?;
    let dy = Tensor::new(dx_from.slice(first..), &shape, layout)?;
    let mut found = Vec::new();

    let pooling = Pooling { window: [2, 2].into(), ..Pooling::default() };
    let (mut y, mut dx) = (new(count_y), new(count));
    dnn::pooling(&stream, &pooling, &x, &mut TensorMut::new(y.slice_mut(first..), &of_y, layout)?)?;
    let (on_y, on_dy) =
        (Tensor::new(y.slice(first..), &of_y, layout)?, Tensor::new(dy_from.slice(first..), &of_y, layout)?);
    let target = &mut TensorMut::new(dx.slice_mut(first..), &shape, layout)?;
    pooling_backward(&stream, &pooling, &x, &on_y, &on_dy, target)?;
    found.extend([y, dx]);

    let (mut y, mut dx) = (new(count), new(count));
    softmax(&stream, Softmax::Plain, &x, &mut TensorMut::new(y.slice_mut(first..), &shape, layout)?)?;
    let target = &mut TensorMut::new(dx.slice_mut(first..), &shape, layout)?;
    softmax_backward(&stream, Softmax::Plain, &Tensor::new(y.slice(first..), &shape, layout)?, &dy, target)?;
    found.extend([y, dx]);

    let norm = BatchNorm { epsilon: 1e-3, momentum: 0.25 };
    let [scale, bias, mut mean, mut variance] = [4, 5, 6, 7].map(apart_real);
    let [mut saved_mean, mut deviation, mut dscale, mut dbias] = [8, 9, 10, 11].map(apart_real);
    let (mut y, mut inferred, mut dx) = (new(count), new(count), new(count));
    let parameters = (&scale.slice(first..), &bias.slice(first..));
    let target = &mut TensorMut::new(inferred.slice_mut(first..), &shape, layout)?;
    let running = (&mean.slice(first..), &variance.slice(first..));
    batch_norm_inference(&stream, &norm, &x, parameters, running, target)?;
    let mut running =
        RunningStatistics { mean: mean.slice_mut(first..), variance: variance.slice_mut(first..) };
    let mut saved = BatchStatistics {
        mean: saved_mean.slice_mut(first..),
        inverse_deviation: deviation.slice_mut(first..),
    };
    let target = &mut TensorMut::new(y.slice_mut(first..), &shape, layout)?;
    batch_norm_training(&stream, &norm, &x, parameters, Some(&mut running), &mut saved, target)?;
    let mut gradients = BatchNormGradients {
        input: TensorMut::new(dx.slice_mut(first..), &shape, layout)?,
        scale: dscale.slice_mut(first..),
        bias: dbias.slice_mut(first..),
    };
    let saved = (&saved_mean.slice(first..), &deviation.slice(first..));
    batch_norm_backward(&stream, &norm, (&x, &dy), parameters.0, saved, &mut gradients)?;
    found.extend([y, inferred, dx]);
    found
        .iter()
        .map(|buffer| Ok(buffer.to_host()?[first..].iter().map(|value| value.to()).collect()))
        .collect()
}

#[test]
fn layers_of_tensors_at_any_address_are_right() {
    fn check<T: Number>(layout: Layout)
    where
        T::Real: Number,
    {
        let expected = layers::<T>(layout, 0).unwrap();
        for first in [1, 2, 3] {
            let found = layers::<T>(layout, first).unwrap();
            for (which, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let differ = |(a, b): (&f64, &f64)| (a - b).abs() > 64.0 * T::UNIT * (1.0 + b.abs());
                let at = found.iter().zip(expected).position(differ);
                assert_eq!(at, None, "{} {layout:?} from {first}: {which}", std::any::type_name::<T>());
            }
        }
    }
    for layout in LAYOUTS {
        check::<f32>(layout);
        check::<f16>(layout);
    }
}
