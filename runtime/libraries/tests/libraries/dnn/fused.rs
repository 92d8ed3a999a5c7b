//! Convolutions with bias and activation.

use half::f16;
use warpsmith_runtime::library::dnn::*;
use warpsmith_runtime::{DeviceBuffer, Stream};

use super::support::*;
use super::{CASES, LAYOUTS, Tensors, operator};

/// Checks one with these factors.
fn check<T: Number>(
    case: &Case,
    layout: Layout,
    activation: Activation,
    (alpha, beta): (f64, f64),
    bound: Bound,
) {
    let stream = Stream::new(&device()).unwrap();
    let tensors = Tensors::<T>::new(*case, layout, 21);
    let biases = random::<T>(case.w[0], 22);
    let [x, w, bias] = [&tensors.x, &tensors.w, &biases].map(|values| buffer(&stream, values));
    let shape = case.y();
    let mut y = buffer(&stream, &tensors.y);
    convolution_fused(
        &stream,
        &Convolution { alpha, beta, ..operator(case) },
        &Tensor::new(&x, case.x, layout).unwrap(),
        &Tensor::new(&w, case.w, layout).unwrap(),
        &bias.as_slice(),
        activation,
        &mut TensorMut::new(&mut y, &shape, layout).unwrap(),
    )
    .unwrap();
    let mut of_channel = vec![0.0; tensors.y.len()];
    for place in places(five(&shape)) {
        of_channel[at(five(&shape), layout, place)] = biases[place[1]].to();
    }
    let last = |sum: f64, at: usize| {
        let value = alpha * sum + beta * tensors.y[at].to() + of_channel[at];
        if activation == Activation::Relu { value.max(0.0) } else { value }
    };
    let name = std::any::type_name::<T>();
    let what = format!("{name} {layout:?} {activation:?} {case:?}, {alpha} and {beta}");
    assert_close(&y.to_host().unwrap(), &tensors.sums()[0], bound, last, &what);
}

#[test]
fn bias_and_activation_are_applied_by_channel() {
    for case in [&CASES[0], &CASES[3], &CASES[6], &CASES[7]] {
        for activation in [Activation::Identity, Activation::Relu] {
            for layout in LAYOUTS {
                check::<f32>(case, layout, activation, (1.0, 0.0), Bound::Tf32);
                check::<f16>(case, layout, activation, (1.0, 0.0), Bound::Exact);
            }
            check::<f64>(case, Layout::Nchw, activation, (1.0, 0.0), Bound::Exact);
        }
    }
}

#[test]
fn bias_and_activation_come_after_the_factors() {
    for factors in [(0.5, 0.0), (1.0, 1.0), (-1.0, 0.5)] {
        for activation in [Activation::Identity, Activation::Relu] {
            check::<f32>(&CASES[0], Layout::Nchw, activation, factors, Bound::Tf32);
            check::<f64>(&CASES[0], Layout::Nchw, activation, factors, Bound::Exact);
        }
    }
}

#[test]
fn the_activation_keeps_nan() {
    let stream = Stream::new(&device()).unwrap();
    let case = CASES[0];
    // In one pass where there is one for it, and in three.
    for (alpha, layout) in [(1.0, Layout::Nhwc), (1.0, Layout::Nchw), (2.0, Layout::Nchw)] {
        let tensors = Tensors::<f16>::new(case, layout, 41);
        let [x, w] = [&tensors.x, &tensors.w].map(|values| buffer(&stream, values));
        let mut biases = random::<f16>(case.w[0], 42);
        biases[3] = f16::NAN;
        let bias = buffer(&stream, &biases);
        let mut y = DeviceBuffer::<f16>::uninit(&stream, tensors.y.len()).unwrap();
        let shape = case.y();
        convolution_fused(
            &stream,
            &Convolution { alpha, ..operator(&case) },
            &Tensor::new(&x, case.x, layout).unwrap(),
            &Tensor::new(&w, case.w, layout).unwrap(),
            &bias.as_slice(),
            Activation::Relu,
            &mut TensorMut::new(&mut y, &shape, layout).unwrap(),
        )
        .unwrap();
        let y = y.to_host().unwrap();
        for place in places(five(&shape)) {
            let value = y[at(five(&shape), layout, place)];
            assert_eq!(value.is_nan(), place[1] == 3, "{value} of channel {} {layout:?} {alpha}", place[1]);
        }
    }
}

#[test]
fn bias_and_activation_are_one_pass_on_a_gpu() {
    let device = device();
    if device.is_emulated() {
        return;
    }
    let stream = Stream::new(&device).unwrap();
    let (case, layout) = (CASES[0], Layout::Nhwc);
    let tensors = Tensors::<f16>::new(case, layout, 31);
    let [x, w] = [&tensors.x, &tensors.w].map(|values| buffer(&stream, values));
    let bias = buffer(&stream, &random::<f16>(case.w[0], 32));
    let mut y = DeviceBuffer::<f16>::uninit(&stream, tensors.y.len()).unwrap();
    convolution_fused(
        &stream,
        &operator(&case),
        &Tensor::new(&x, case.x, layout).unwrap(),
        &Tensor::new(&w, case.w, layout).unwrap(),
        &bias.as_slice(),
        Activation::Relu,
        &mut TensorMut::new(&mut y, &case.y(), layout).unwrap(),
    )
    .unwrap();
    // In three passes, a plan would have been looked for once more, for the convolution alone.
    assert_eq!(plan_cache(&device).misses, 1);
}
