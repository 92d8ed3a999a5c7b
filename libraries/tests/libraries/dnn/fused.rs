//! Convolutions with fused bias and activation.

use half::f16;
use warpsmith_libraries::dnn::*;
use warpsmith_runtime::Stream;

use super::support::*;
use super::{CASES, LAYOUTS, Tensors, operator};
use crate::numbers::{buffer, name, random, stream, uninit};

/// Checks a fused convolution with these factors.
fn check<T: TestNumber>(
    case: &Case,
    layout: Layout,
    activation: Activation,
    (alpha, beta): (f64, f64),
    bound: Bound,
) {
    let stream = stream();
    let tensors = Tensors::<T>::new(*case, layout, 21);
    let biases = random::<T>(case.w[0], 22);
    let [x, w, bias] = [&tensors.x, &tensors.w, &biases].map(|values| buffer(&stream, values));
    let shape = case.y();
    let mut y = buffer(&stream, &tensors.y);
    let operator = Convolution { alpha, beta, ..operator(case) };
    convolve_fused(&stream, &operator, (case, layout), [&x, &w, &bias], activation, &mut y).unwrap();
    let mut of_channel = vec![0.0; tensors.y.len()];
    for place in places(five(&shape)) {
        of_channel[at(five(&shape), layout, place)] = biases[place[1]].value();
    }
    let last = |sum: f64, at: usize| {
        let value = alpha * sum + beta * tensors.y[at].value() + of_channel[at];
        if activation == Activation::Relu { value.max(0.0) } else { value }
    };
    let name = name::<T>();
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
    let stream = stream();
    let case = CASES[0];
    // The operation is fused in one kernel if there is an engine for it, and otherwise takes three passes.
    for (alpha, layout) in [(1.0, Layout::Nhwc), (1.0, Layout::Nchw), (2.0, Layout::Nchw)] {
        let tensors = Tensors::<f16>::new(case, layout, 41);
        let [x, w] = [&tensors.x, &tensors.w].map(|values| buffer(&stream, values));
        let mut biases = random::<f16>(case.w[0], 42);
        biases[3] = f16::NAN;
        let bias = buffer(&stream, &biases);
        let mut y = uninit::<f16>(&stream, tensors.y.len());
        let shape = case.y();
        let operator = Convolution { alpha, ..operator(&case) };
        let operands = [&x, &w, &bias];
        convolve_fused(&stream, &operator, (&case, layout), operands, Activation::Relu, &mut y).unwrap();
        let y = y.to_host().unwrap();
        for place in places(five(&shape)) {
            let value = y[at(five(&shape), layout, place)];
            assert_eq!(value.is_nan(), place[1] == 3, "{value} of channel {} {layout:?} {alpha}", place[1]);
        }
    }
}

mod on_gpu {
    use super::*;
    use crate::under_test::gpu;

    #[test]
    #[ignore = "is not supported on the emulated device"]
    fn bias_and_activation_are_one_pass() {
        let device = gpu();
        let stream = Stream::new(&device).unwrap();
        let (case, layout) = (CASES[0], Layout::Nhwc);
        let tensors = Tensors::<f16>::new(case, layout, 31);
        let [x, w] = [&tensors.x, &tensors.w].map(|values| buffer(&stream, values));
        let bias = buffer(&stream, &random::<f16>(case.w[0], 32));
        let mut y = uninit::<f16>(&stream, tensors.y.len());
        let operands = [&x, &w, &bias];
        convolve_fused(&stream, &operator(&case), (&case, layout), operands, Activation::Relu, &mut y)
            .unwrap();
        // Three passes would search for another plan, for the convolution alone.
        assert_eq!(plan_cache(&device).hits_and_misses().1, 1);
    }
}
