//! cuDNN operations, against definitions in `f64`.

mod captures;
mod fused;
mod layers;
mod support;

use crate::numbers::{
    TestValue as _, assert_refused, buffer, each, is_refused, name, random, stream, uninit,
};
use crate::under_test::device;
use half::{bf16, f16};
use support::*;
use warpsmith_libraries::LibraryError;
use warpsmith_libraries::dnn::{self, *};
use warpsmith_runtime::{DeviceBuffer, Error, Stream};

const LAYOUTS: [Layout; 2] = [Layout::Nchw, Layout::Nhwc];

const fn case(x: &'static [usize], w: &'static [usize]) -> Case {
    Case { x, w, padding: [0; 3], stride: [1; 3], dilation: [1; 3], groups: 1 }
}

/// One to three dimensions, covering padding, stride, dilation and groups.
const CASES: [Case; 9] = [
    Case { padding: [0, 1, 1], ..case(&[2, 8, 9, 7], &[16, 8, 3, 3]) },
    Case { padding: [0, 3, 3], stride: [1, 2, 2], ..case(&[2, 3, 20, 18], &[8, 3, 7, 7]) },
    Case { dilation: [1, 2, 3], ..case(&[2, 8, 10, 12], &[8, 8, 3, 3]) },
    Case { groups: 4, padding: [0, 1, 0], ..case(&[2, 16, 6, 6], &[32, 4, 3, 3]) },
    Case { groups: 16, padding: [0, 1, 1], ..case(&[1, 16, 8, 8], &[16, 1, 3, 3]) },
    Case { stride: [1, 2, 2], ..case(&[3, 16, 8, 8], &[8, 16, 1, 1]) },
    Case { padding: [0, 0, 2], ..case(&[2, 8, 33], &[8, 8, 5]) },
    Case { padding: [1, 1, 1], ..case(&[1, 8, 5, 6, 7], &[8, 8, 3, 3, 3]) },
    Case { stride: [2, 1, 2], groups: 2, ..case(&[2, 8, 6, 5, 7], &[8, 4, 2, 3, 1]) },
];

fn operator(case: &Case) -> Convolution {
    let axes = |values: [usize; 3]| match case.x.len() {
        3 => [values[2]].into(),
        4 => [values[1], values[2]].into(),
        _ => Axes::from(values),
    };
    Convolution {
        padding: axes(case.padding),
        stride: axes(case.stride),
        dilation: axes(case.dilation),
        groups: case.groups,
        ..Convolution::default()
    }
}

/// The tensors of a case with random elements.
struct Tensors<T: TestNumber> {
    case: Case,
    layout: Layout,
    x: Vec<T>,
    w: Vec<T>,
    y: Vec<T>,
}

impl<T: TestNumber> Tensors<T> {
    fn new(case: Case, layout: Layout, seed: u64) -> Self {
        let random = |shape: &[usize], salt| random(shape.iter().product(), seed * 3 + salt);
        Self { case, layout, x: random(case.x, 0), w: random(case.w, 1), y: random(&case.y(), 2) }
    }

    fn sums(&self) -> [Sums; 3] {
        self.case.sums(self.layout, &self.x, &self.w, &self.y)
    }

    /// Returns the results y, x and w of the three operations, each of which adds to its output if beta is not 0.
    fn run(&self, stream: &Stream, operator: &Convolution) -> Result<[Vec<T>; 3], Error> {
        self.run_at(stream, operator, false, 0)
    }

    /// Returns the same results, starting at element `first` of the buffers, optionally as a graph.
    fn run_at(
        &self,
        stream: &Stream,
        operator: &Convolution,
        captured: bool,
        first: usize,
    ) -> Result<[Vec<T>; 3], Error> {
        let (case, layout) = (self.case, self.layout);
        let all = [&self.x, &self.w, &self.y];
        let [mut x, mut w, mut y] = all.map(|values| padded(stream, values, first));
        let [mut dx, mut dw, mut forward] = all.map(|values| padded(stream, values, first));
        let [in_x, in_w, in_y] = all.map(|values| first..first + values.len());
        enqueue(stream, captured, || {
            let on_x = Tensor::new(x.slice(in_x.clone()), case.x, layout)?;
            let on_w = Tensor::new(w.slice(in_w.clone()), case.w, layout)?;
            let on_y = Tensor::new(y.slice(in_y.clone()), &case.y(), layout)?;
            let target = &mut TensorMut::new(forward.slice_mut(in_y), &case.y(), layout)?;
            dnn::convolution(stream, operator, &on_x, &on_w, target)?;
            let target = &mut TensorMut::new(dw.slice_mut(in_w), case.w, layout)?;
            convolution_backward_weights(stream, operator, &on_x, &on_y, target)?;
            let target = &mut TensorMut::new(dx.slice_mut(in_x), case.x, layout)?;
            convolution_backward_data(stream, operator, &on_w, &on_y, target)
        })?;
        // Enqueued work keeps its operands alive.
        [&mut x, &mut w, &mut y].into_iter().try_for_each(|used| stream.memset(used, 0))?;
        Ok([inside(&forward, first), inside(&dx, first), inside(&dw, first)])
    }

    /// Panics unless the results match the sums.
    #[track_caller]
    fn check(&self, found: &[Vec<T>; 3], bound: Bound, what: &str) {
        for ((found, sums), name) in found.iter().zip(&self.sums()).zip(["y", "dx", "dw"]) {
            assert_close(found, sums, bound, |sum, _| sum, &format!("{what}: {name}"));
        }
    }
}

/// Runs all cases with an element type, and fails with a list of the cases that the library does not support.
fn convolutions_are_correct<T: TestNumber>(layouts: &[Layout], options: Options, bound: Bound) {
    let stream = stream();
    let mut refused = Vec::new();
    for (seed, (case, layout)) in
        CASES.iter().flat_map(|case| layouts.iter().map(move |layout| (case, layout))).enumerate()
    {
        let tensors = Tensors::<T>::new(*case, *layout, seed as u64);
        let operator = Convolution { options: Some(options), ..operator(case) };
        let what = format!("{} {layout:?} {case:?}", name::<T>());
        assert_eq!(operator.output_shape(case.x, case.w).unwrap(), case.y(), "{what}");
        match tensors.run(&stream, &operator) {
            Ok(found) => tensors.check(&found, bound, &what),
            Err(error) => refused.push(format!("{what}: {error}")),
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn convolutions_of_every_type_are_correct() {
    let exact = Options { allow_tf32: false, ..Options::default() };
    convolutions_are_correct::<f32>(&LAYOUTS, exact, Bound::Exact);
    convolutions_are_correct::<f32>(&LAYOUTS, Options::default(), Bound::Tf32);
    let layouts = if device().is_emulated() { &LAYOUTS[..] } else { &LAYOUTS[..1] };
    convolutions_are_correct::<f64>(layouts, Options::default(), Bound::Exact);
    convolutions_are_correct::<f16>(&LAYOUTS, Options::default(), Bound::Exact);
    convolutions_are_correct::<bf16>(&LAYOUTS, Options::default(), Bound::Exact);
}

#[test]
fn tensors_may_begin_at_any_element() {
    fn check<T: TestNumber>() {
        for (layout, first) in LAYOUTS.into_iter().flat_map(|layout| [1, 2, 3].map(|first| (layout, first))) {
            let tensors = Tensors::<T>::new(CASES[0], layout, 11);
            let options = Some(Options { allow_tf32: false, ..Options::default() });
            let operator = Convolution { options, ..operator(&CASES[0]) };
            let found = tensors.run_at(&stream(), &operator, false, first).unwrap();
            tensors.check(&found, Bound::Exact, &format!("{} {layout:?} from {first}", name::<T>()));
        }
    }
    each!(check(): f32, f16);
}

#[test]
fn deterministic_convolutions_give_the_same_bits_each_time() {
    let stream = stream();
    let options = Options { deterministic: true, ..Options::default() };
    for case in &CASES[..4] {
        let tensors = Tensors::<f32>::new(*case, Layout::Nchw, 5);
        let operator = Convolution { options: Some(options), ..operator(case) };
        let first = tensors.run(&stream, &operator).unwrap();
        assert_close(&first[0], &tensors.sums()[0], Bound::Tf32, |sum, _| sum, "deterministic");
        for _ in 0..3 {
            assert!(tensors.run(&stream, &operator).unwrap() == first);
        }
    }
}

#[test]
fn timed_plans_give_the_same_results() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    set_options(&device, Options { benchmark: true, benchmark_limit: 4, ..Options::default() });
    let tensors = Tensors::<f32>::new(CASES[0], Layout::Nchw, 9);
    let olds = [&tensors.y, &tensors.x, &tensors.w];
    for (alpha, beta) in [(1.0, 0.0), (0.5, 1.0)] {
        let operator = Convolution { alpha, beta, ..operator(&CASES[0]) };
        for _ in 0..2 {
            let found = tensors.run(&stream, &operator).unwrap();
            for ((found, sums), old) in found.iter().zip(&tensors.sums()).zip(olds) {
                let last = |sum: f64, at: usize| alpha * sum + beta * old[at].value();
                assert_close(found, sums, Bound::Tf32, last, &format!("timed with beta {beta}"));
            }
        }
    }
}

#[test]
fn targets_are_not_read_with_beta_zero() {
    let stream = stream();
    let (case, layout) = (CASES[0], Layout::Nchw);
    let tensors = Tensors::<f32>::new(case, layout, 11);
    let [x, w] = [&tensors.x, &tensors.w].map(|values| buffer(&stream, values));
    let mut y = buffer(&stream, &vec![f32::NAN; tensors.y.len()]);
    convolve(&stream, &operator(&case), (&case, layout), [&x, &w], &mut y).unwrap();
    assert_close(&y.to_host().unwrap(), &tensors.sums()[0], Bound::Tf32, |sum, _| sum, "over NaN");
}

#[test]
fn without_images_the_weights_gradient_is_zero() {
    let stream = stream();
    let none = uninit::<f32>(&stream, 0);
    let mut dw = buffer(&stream, &[f32::NAN; 8 * 3 * 3 * 3]);
    let (x, dy) = ([0, 3, 30_000, 30_000], [0, 8, 30_000, 30_000]);
    dnn::convolution_backward_weights(
        &stream,
        &Convolution { padding: 1.into(), ..Convolution::default() },
        &Tensor::new(&none, &x, Layout::Nchw).unwrap(),
        &Tensor::new(&none, &dy, Layout::Nchw).unwrap(),
        &mut TensorMut::new(&mut dw, &[8, 3, 3, 3], Layout::Nchw).unwrap(),
    )
    .unwrap();
    assert_eq!(dw.to_host().unwrap(), [0.0; 8 * 3 * 3 * 3]);
}

#[test]
fn an_empty_tensor_of_another_device_is_refused_too() {
    let (stream, other) = (stream(), stream());
    let x = DeviceBuffer::<f32>::uninit(&other, 0).unwrap();
    let mut y = uninit::<f32>(&stream, 0);
    let x = Tensor::new(&x, &[0, 4, 1, 1], Layout::Nchw).unwrap();
    let mut y = TensorMut::new(&mut y, &[0, 4, 1, 1], Layout::Nchw).unwrap();
    let single = Pooling { window: 1.into(), ..Pooling::default() };
    let refused = dnn::pooling(&stream, &single, &x, &mut y);
    assert!(matches!(refused, Err(Error::DifferentDevices { .. })), "{refused:?}");
}

#[test]
fn threads_do_not_disturb_each_other() {
    let device = device();
    std::thread::scope(|scope| {
        for seed in 0..4u64 {
            let device = &device;
            scope.spawn(move || {
                let stream = Stream::new(device).unwrap();
                let tensors = Tensors::<f32>::new(CASES[seed as usize % 2], Layout::Nchw, 40 + seed);
                for round in 0..10 {
                    let found = tensors.run(&stream, &operator(&tensors.case)).unwrap();
                    tensors.check(&found, Bound::Tf32, &format!("thread {seed}, round {round}"));
                }
            });
        }
    });
}

#[test]
fn streams_do_not_share_workspaces() {
    let device = device();
    let (case, layout) = (CASES[1], Layout::Nchw);
    let of_stream = [61, 62].map(|seed| {
        let stream = Stream::new(&device).unwrap();
        let tensors = Tensors::<f32>::new(case, layout, seed);
        let [x, w] = [&tensors.x, &tensors.w].map(|values| buffer(&stream, values));
        (stream, tensors, x, w)
    });
    let outputs: Vec<_> = (0..20)
        .map(|round| {
            let (stream, tensors, x, w) = &of_stream[round % 2];
            let mut y = DeviceBuffer::<f32>::uninit(stream, tensors.y.len()).unwrap();
            convolve(stream, &operator(&case), (&case, layout), [x, w], &mut y).unwrap();
            y
        })
        .collect();
    let sums = [0, 1].map(|at| of_stream[at].1.sums());
    for (round, y) in outputs.iter().enumerate() {
        let what = format!("round {round}");
        assert_close(&y.to_host().unwrap(), &sums[round % 2][0], Bound::Tf32, |sum, _| sum, &what);
    }
}

#[test]
fn the_cache_counts_and_changes_no_result() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    set_options(&device, Options { deterministic: true, ..Options::default() });
    assert!(options(&device).deterministic);
    let tensors = Tensors::<f32>::new(CASES[0], Layout::Nhwc, 81);
    let run = || tensors.run(&stream, &operator(&CASES[0])).unwrap();
    let (first, second) = (run(), run());
    let cache = plan_cache(&device);
    let cached = (cache.size(), cache.hits_and_misses());
    cache.set_max_size(0);
    let uncached = run();
    assert!(first == second && first == uncached);
    assert_eq!((cache.size(), cache.max_size()), (0, 0));
    if !device.is_emulated() {
        assert_eq!((cached, cache.hits_and_misses()), ((3, (3, 3)), (3, 6)));
    }
}

#[test]
fn no_more_plans_are_kept_than_the_limit_allows() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    plan_cache(&device).set_max_size(2);
    for round in 0..2 {
        for case in &CASES[..3] {
            let tensors = Tensors::<f32>::new(*case, Layout::Nchw, 85);
            let found = tensors.run(&stream, &operator(case)).unwrap();
            tensors.check(&found, Bound::Tf32, &format!("round {round}"));
            assert!(plan_cache(&device).size() <= 2);
        }
    }
    if !device.is_emulated() {
        // Each geometry was evicted before it was used again.
        assert_eq!(plan_cache(&device).hits_and_misses(), (0, 18));
    }
}

#[test]
fn workspace_limits_hold_or_name_the_minimum() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    for case in &CASES {
        let tensors = Tensors::<f32>::new(*case, Layout::Nchw, 91);
        let limited = |limit| {
            let options = Options { workspace_limit: Some(limit), ..Options::default() };
            tensors.run(&stream, &Convolution { options: Some(options), ..operator(case) })
        };
        let mut limit = 0;
        let found = loop {
            match limited(limit) {
                Ok(found) => break found,
                Err(error) => match error.downcast_ref() {
                    Some(&LibraryError::WorkspaceTooSmall { limit: named, minimum, .. }) => {
                        assert!(named == limit && minimum > limit, "{error}");
                        limit = minimum;
                    }
                    _ => panic!("{case:?}: {error}"),
                },
            }
        };
        tensors.check(&found, Bound::Tf32, &format!("within {limit} bytes"));
    }
}

#[test]
fn tensors_of_no_elements_have_defined_results() {
    let stream = stream();
    let layout = Layout::Nchw;
    let none = uninit::<f32>(&stream, 0);
    let mut nothing = uninit::<f32>(&stream, 0);
    let mut w = buffer(&stream, &[7f32; 2 * 3 * 2 * 2]);
    let operator = Convolution::default();
    {
        let x = Tensor::new(&none, &[0, 3, 4, 4], layout).unwrap();
        let y = &mut TensorMut::new(&mut nothing, &[0, 2, 3, 3], layout).unwrap();
        dnn::convolution(&stream, &operator, &x, &Tensor::new(&w, &[2, 3, 2, 2], layout).unwrap(), y)
            .unwrap();
        let y = Tensor::new(&none, &[0, 2, 3, 3], layout).unwrap();
        let dw = &mut TensorMut::new(&mut w, &[2, 3, 2, 2], layout).unwrap();
        let keep = Convolution { beta: 1.0, ..operator };
        convolution_backward_weights(&stream, &keep, &x, &y, dw).unwrap();
        assert!(dw_is(&stream, dw, 7.0));
        let half = Convolution { beta: 0.5, ..operator };
        convolution_backward_weights(&stream, &half, &x, &y, dw).unwrap();
        assert!(dw_is(&stream, dw, 3.5));
        convolution_backward_weights(&stream, &operator, &x, &y, dw).unwrap();
        assert!(dw_is(&stream, dw, 0.0));
    }
    // There is only padding, so all sums are empty.
    let padded = Convolution { padding: [1, 0].into(), ..operator };
    let x = Tensor::new(&none, &[1, 3, 0, 4], layout).unwrap();
    let mut y = buffer(&stream, &[5f32; 2 * 3]);
    let target = &mut TensorMut::new(&mut y, &[1, 2, 1, 3], layout).unwrap();
    dnn::convolution(&stream, &padded, &x, &Tensor::new(&w, &[2, 3, 2, 2], layout).unwrap(), target).unwrap();
    assert_eq!(y.to_host().unwrap(), [0.0; 6]);
    let single = Pooling { window: 1.into(), ..Pooling::default() };
    let x = Tensor::new(&none, &[0, 3, 1, 1], layout).unwrap();
    dnn::pooling(&stream, &single, &x, &mut TensorMut::new(&mut nothing, &[0, 3, 1, 1], layout).unwrap())
        .unwrap();
}

/// Returns true if all weights have this value.
fn dw_is(stream: &Stream, dw: &mut TensorMut<'_, f32>, value: f32) -> bool {
    assert_eq!(dw.shape(), [2, 3, 2, 2]);
    let mut copy = DeviceBuffer::<f32>::uninit(stream, 24).unwrap();
    // A maximum over windows of one element is a copy.
    let single = Pooling { window: 1.into(), ..Pooling::default() };
    let to = &mut TensorMut::new(&mut copy, &[2, 3, 2, 2], Layout::Nchw).unwrap();
    dnn::pooling(stream, &single, &dw.as_tensor(), to).unwrap();
    copy.to_host().unwrap().iter().all(|found| *found == value)
}

#[test]
fn what_does_not_fit_is_refused() {
    let stream = stream();
    let x = buffer(&stream, &[1f32; 2 * 4 * 5 * 5]);
    let w = buffer(&stream, &[1f32; 8 * 4 * 3 * 3]);
    let mut y = buffer(&stream, &[5f32; 2 * 8 * 3 * 3]);
    let n = Layout::Nchw;
    let default = Convolution::default();
    let (of_x, of_y): (&[usize], &[usize]) = (&[2, 4, 5, 5], &[2, 8, 3, 3]);
    let table = [
        ("channels", default, &[4, 2, 5, 5][..], of_y, n),
        ("groups", Convolution { groups: 2, ..default }, of_x, of_y, n),
        ("at least 1", Convolution { groups: 0, ..default }, of_x, of_y, n),
        ("at least 1", Convolution { stride: 0.into(), ..default }, of_x, of_y, n),
        ("does not fit", Convolution { dilation: 9.into(), ..default }, of_x, of_y, n),
        ("padding", Convolution { padding: [1].into(), ..default }, of_x, of_y, n),
        ("give an output", default, of_x, &[8, 2, 3, 3], n),
        ("layout", default, of_x, of_y, Layout::Nhwc),
        ("spatial", default, &[2, 4, 25], of_y, n),
    ];
    for (expected, operator, of_x, of_y, layout_w) in table {
        let refused = dnn::convolution(
            &stream,
            &operator,
            &Tensor::new(&x, of_x, n).unwrap(),
            &Tensor::new(&w, &[8, 4, 3, 3], layout_w).unwrap(),
            &mut TensorMut::new(&mut y, of_y, n).unwrap(),
        );
        assert!(is_refused!(refused, LibraryError::Shape { .. }), "{expected}");
        assert_refused(refused, expected);
    }
    assert!(Tensor::new(&x, &[2, 4, 5], n).is_err());
    let other = crate::under_test::device();
    let elsewhere = buffer(&other.default_stream(), &[1f32; 8 * 4 * 3 * 3]);
    let found = dnn::convolution(
        &stream,
        &default,
        &Tensor::new(&x, &[2, 4, 5, 5], n).unwrap(),
        &Tensor::new(&elsewhere, &[8, 4, 3, 3], n).unwrap(),
        &mut TensorMut::new(&mut y, &[2, 8, 3, 3], n).unwrap(),
    );
    assert!(matches!(found, Err(Error::DifferentDevices { .. })));
    assert!(y.to_host().unwrap().iter().all(|value| *value == 5.0));
}
