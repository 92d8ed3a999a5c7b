//! Convolutions in graphs.

use half::f16;
use warpsmith_libraries::dnn::{self, *};
use warpsmith_runtime::{Graph, Stream};

use super::support::*;
use super::{CASES, Tensors, operator};
use crate::numbers::{TestValue as _, buffer, random, uninit};
use crate::under_test::device;

#[test]
fn captured_convolutions_read_their_inputs_at_launch() {
    // The library must not have been used on this device before the capture.
    let device = device();
    let stream = Stream::new(&device).unwrap();
    let (case, layout) = (CASES[0], Layout::Nchw);
    let tensors = Tensors::<f32>::new(case, layout, 71);
    let [mut x, w] = [&tensors.x, &tensors.w].map(|values| buffer(&stream, values));
    let mut y = uninit::<f32>(&stream, tensors.y.len());
    let mut pooled = uninit::<f32>(&stream, 2 * 16 * 4 * 3);
    let graph = Graph::capture(&stream, || {
        let operator = Convolution {
            options: Some(Options { benchmark: true, ..Options::default() }),
            ..operator(&case)
        };
        convolve(&stream, &operator, (&case, layout), [&x, &w], &mut y)?;
        let y = Tensor::new(&y, &case.y(), layout)?;
        let pooled = &mut TensorMut::new(&mut pooled, &[2, 16, 4, 3], layout)?;
        dnn::pooling(&stream, &Pooling::default(), &y, pooled)
    })
    .unwrap();
    let exec = graph.instantiate().unwrap();
    for seed in [72, 73] {
        let tensors = Tensors {
            x: Tensors::<f32>::new(case, layout, seed).x,
            w: tensors.w.clone(),
            ..Tensors::new(case, layout, seed)
        };
        x.copy_from_host(&tensors.x).unwrap();
        exec.launch(&stream).unwrap();
        let found = y.to_host().unwrap();
        assert_close(&found, &tensors.sums()[0], Bound::Tf32, |sum, _| sum, "launched");
        let shape = five(&case.y());
        let most = places([2, 16, 1, 4, 3]).map(|[n, c, _, h, w]| {
            let of = |dh, dw| found[at(shape, layout, [n, c, 0, 2 * h + dh, 2 * w + dw])];
            of(0, 0).max(of(0, 1)).max(of(1, 0)).max(of(1, 1))
        });
        assert_eq!(pooled.to_host().unwrap(), most.collect::<Vec<_>>());
    }
}

#[test]
fn convolutions_may_be_captured_before_any_plan() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    for (seed, case) in CASES.iter().enumerate() {
        let tensors = Tensors::<f32>::new(*case, Layout::Nchw, 300 + seed as u64);
        let found = tensors.run_at(&stream, &operator(case), true, 0).unwrap();
        tensors.check(&found, Bound::Tf32, &format!("{case:?}"));
    }
}

#[test]
fn graphs_keep_the_plans_that_they_use() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    plan_cache(&device).set_max_size(0);
    let (case, layout) = (CASES[0], Layout::Nhwc);
    let tensors = Tensors::<f16>::new(case, layout, 75);
    let biases = random::<f16>(case.w[0], 76);
    let [mut x, w, bias] = [&tensors.x, &tensors.w, &biases].map(|values| buffer(&stream, values));
    let [mut y, mut biased] = [(); 2].map(|()| uninit::<f16>(&stream, tensors.y.len()));
    let graph = Graph::capture(&stream, || {
        let (operator, of_case) = (operator(&case), (&case, layout));
        convolve(&stream, &operator, of_case, [&x, &w], &mut y)?;
        convolve_fused(&stream, &operator, of_case, [&x, &w, &bias], Activation::Relu, &mut biased)
    })
    .unwrap();
    let exec = graph.instantiate().unwrap();
    drop(graph);
    for round in 0..3 {
        // Other plans are created and dropped in between, on another stream.
        let other = Stream::new(&device).unwrap();
        for case in &CASES[1..4] {
            Tensors::<f16>::new(*case, layout, 77).run(&other, &operator(case)).unwrap();
        }
        plan_cache(&device).clear();
        let tensors = Tensors {
            x: Tensors::<f16>::new(case, layout, 78 + round).x,
            w: tensors.w.clone(),
            ..Tensors::new(case, layout, 78)
        };
        x.copy_from_host(&tensors.x).unwrap();
        exec.launch(&stream).unwrap();
        let (sums, what) = (&tensors.sums()[0], format!("round {round}"));
        assert_close(&y.to_host().unwrap(), sums, Bound::Exact, |sum, _| sum, &what);
        // Channels are the last dimension.
        let last = |sum: f64, at: usize| (sum + biases[at % biases.len()].value()).max(0.0);
        assert_close(&biased.to_host().unwrap(), sums, Bound::Exact, last, &what);
    }
    assert_eq!(plan_cache(&device).size(), 0);
}
