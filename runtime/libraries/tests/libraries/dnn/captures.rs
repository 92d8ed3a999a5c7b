//! Convolutions in graphs.

use half::f16;
use warpsmith_runtime::library::dnn::{self, *};
use warpsmith_runtime::{DeviceBuffer, Graph, Stream};

use super::support::*;
use super::{CASES, Tensors, operator};

#[test]
fn a_captured_convolution_is_launched_again_with_other_inputs() {
    // Nothing of the library was used on this device before the capture.
    let device = device();
    let stream = Stream::new(&device).unwrap();
    let (case, layout) = (CASES[0], Layout::Nchw);
    let tensors = Tensors::<f32>::new(case, layout, 71);
    let [mut x, w] = [&tensors.x, &tensors.w].map(|values| buffer(&stream, values));
    let mut y = DeviceBuffer::<f32>::uninit(&stream, tensors.y.len()).unwrap();
    let mut pooled = DeviceBuffer::<f32>::uninit(&stream, 2 * 16 * 4 * 3).unwrap();
    let graph = Graph::capture(&stream, || {
        let operator = Convolution {
            options: Some(Options { benchmark: true, ..Options::default() }),
            ..operator(&case)
        };
        dnn::convolution(
            &stream,
            &operator,
            &Tensor::new(&x, case.x, layout)?,
            &Tensor::new(&w, case.w, layout)?,
            &mut TensorMut::new(&mut y, &case.y(), layout)?,
        )?;
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
fn all_three_of_a_convolution_may_be_captured_before_there_is_a_plan() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    for (seed, case) in CASES.iter().enumerate() {
        let tensors = Tensors::<f32>::new(*case, Layout::Nchw, 300 + seed as u64);
        let found = tensors.run_as(&stream, &operator(case), true).unwrap();
        for ((found, sums), name) in found.iter().zip(&tensors.sums()).zip(["y", "dx", "dw"]) {
            assert_close(found, sums, Bound::Tf32, |sum, _| sum, &format!("{case:?}: {name}"));
        }
    }
}

#[test]
fn a_captured_graph_has_the_plans_that_it_uses_though_nothing_else_keeps_them() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    set_plan_cache_limit(&device, 0);
    let (case, layout) = (CASES[0], Layout::Nhwc);
    let tensors = Tensors::<f16>::new(case, layout, 75);
    let biases = random::<f16>(case.w[0], 76);
    let [mut x, w, bias] = [&tensors.x, &tensors.w, &biases].map(|values| buffer(&stream, values));
    let shape = case.y();
    let [mut y, mut biased] =
        [(); 2].map(|()| DeviceBuffer::<f16>::uninit(&stream, tensors.y.len()).unwrap());
    let graph = Graph::capture(&stream, || {
        let (x, w) = (Tensor::new(&x, case.x, layout)?, Tensor::new(&w, case.w, layout)?);
        let target = &mut TensorMut::new(&mut y, &shape, layout)?;
        dnn::convolution(&stream, &operator(&case), &x, &w, target)?;
        let target = &mut TensorMut::new(&mut biased, &shape, layout)?;
        let bias = &bias.as_slice();
        convolution_fused(&stream, &operator(&case), &x, &w, bias, Activation::Relu, target)
    })
    .unwrap();
    let exec = graph.instantiate().unwrap();
    drop(graph);
    for round in 0..3 {
        // Others are made and dropped in between, on a stream of their own.
        let other = Stream::new(&device).unwrap();
        for case in &CASES[1..4] {
            Tensors::<f16>::new(*case, layout, 77).run(&other, &operator(case)).unwrap();
        }
        clear_plan_cache(&device);
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
        let last = |sum: f64, at: usize| (sum + biases[at % biases.len()].to()).max(0.0);
        assert_close(&biased.to_host().unwrap(), sums, Bound::Exact, last, &what);
    }
    assert_eq!(plan_cache(&device).len, 0);
}
