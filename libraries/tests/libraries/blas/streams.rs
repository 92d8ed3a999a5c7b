//! Streams, threads and graphs.

use super::*;

/// Each stream has its own workspace. Split-K GEMMs that shared one would mix their partial sums.
#[test]
fn two_streams_and_many_threads_compute_at_once() {
    let device = device();
    let size = if device.is_emulated() { 24 } else { 160 };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let device = &device;
            scope.spawn(move || {
                let streams = [(); 2].map(|()| Stream::new(device).unwrap());
                let mut squares: Vec<Product> = streams
                    .iter()
                    .enumerate()
                    .map(|(at, stream)| Product::square(stream, thread * 10 + at as u64 * 3, size))
                    .collect();
                for _ in 0..10 {
                    squares.iter_mut().for_each(Product::gemm);
                    squares.iter_mut().for_each(|square| square.matmul(&Matmul::default()));
                }
                squares.iter().for_each(|square| square.check_product("at once"));
            });
        }
    });
}

/// These GEMMs have a small output and a long inner dimension, for which the libraries reduce partial sums (split-K) in
/// a workspace.
#[test]
fn streams_do_not_mix_the_parts_of_their_sums() {
    fn check<T: Plain>() {
        let device = device();
        let (size, inner) = (64, if device.is_emulated() { 64 } else { 1 << 16 });
        let one = vec![T::of(1.0); size * inner];
        let mut of_streams: Vec<_> = (1..=4u8)
            .map(|factor| {
                let stream = Stream::new(&device).unwrap();
                let a = vec![T::of(f64::from(factor) / 1024.0); size * inner];
                let [a, b] = [&a, &one].map(|values| buffer(&stream, values));
                let c = [(); 2].map(|()| DeviceBuffer::<T>::zeros(&stream, size * size).unwrap());
                (stream, a, b, c)
            })
            .collect();
        for _ in 0..20 {
            for (stream, a, b, [c, d]) in &mut of_streams {
                let a = a.as_2d(size, inner).unwrap();
                let b = b.as_2d(inner, size).unwrap();
                blas::gemm(stream, Gemm::default(), a, b, c.as_2d_mut(size, size).unwrap()).unwrap();
                let d = d.as_2d_mut(size, size).unwrap();
                blas::matmul(stream, &Matmul::default(), a, b, d).unwrap();
            }
        }
        for (index, (.., outputs)) in of_streams.iter().enumerate() {
            // Every partial sum is exact.
            let expected = T::of((index + 1) as f64 / 1024.0 * inner as f64).value();
            for output in outputs {
                let found = output.to_host().unwrap();
                assert!(
                    found.into_iter().all(|value| value.value() == expected),
                    "stream {index}: {expected}"
                );
            }
        }
    }
    each!(check(): f32, f16);
}

#[test]
fn graphs_read_their_inputs_at_each_launch() {
    let stream = stream();
    let mut square = Product::square(&stream, 1, 32);
    let mut other = Product::square(&stream, 5, 32);
    let graph = Graph::capture(&stream, || {
        square.gemm();
        other.matmul(&Matmul { search: Search::Timed { candidates: 4, repeats: 2 }, ..Matmul::default() });
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(square.c.to_host().unwrap(), vec![0.0; 32 * 32], "nothing has run");
    let exec = graph.instantiate().unwrap();
    drop(graph);
    for seed in [1, 20, 40] {
        let values: Vec<f32> = numbers(seed, 32 * 32).into_iter().map(|x| x as f32).collect();
        square.a.copy_from_host(&values).unwrap();
        other.b.copy_from_host(&values).unwrap();
        exec.launch(&stream).unwrap();
        square.check_product("the first of the graph");
        other.check_product("the second of the graph");
        // Work of other calls on the stream must not disturb the memory that the graph owns.
        Product::square(&stream, 7, 64).gemm();
    }
}

#[test]
fn the_same_call_gives_the_same_bits() {
    let stream = stream();
    let math = Math { deterministic: true, ..Math::default() };
    let search = Search::Timed { candidates: 8, repeats: 1 };
    let run = || {
        let mut square = Product::square(&stream, 3, 96);
        square.gemm();
        let product = square.c.to_host().unwrap();
        square.matmul(&Matmul { math: Some(math), search, ..Matmul::default() });
        (product, square.c.to_host().unwrap())
    };
    assert!(run() == run());
}

/// Buffers for one call of every operation, and the results of the calls.
struct Everything {
    x: DeviceBuffer<f32>,
    y: DeviceBuffer<f32>,
    outputs: Vec<DeviceBuffer<f32>>,
}

impl Everything {
    const SIZE: usize = 32;

    fn new(stream: &Stream) -> Self {
        let len = Self::SIZE * Self::SIZE;
        let upload = |seed| {
            let values: Vec<f32> = numbers(seed, len).into_iter().map(|x| x as f32 / 8.0).collect();
            DeviceBuffer::from_host(stream, &values).unwrap()
        };
        let outputs = (0..3).map(|seed| upload(seed + 10)).collect();
        Self { x: upload(1), y: upload(2), outputs }
    }

    fn run(&mut self, stream: &Stream) -> warpsmith_runtime::Result<()> {
        const SIZE: usize = Everything::SIZE;
        let Self { x, y, outputs } = self;
        let (x_matrix, y_matrix) = (Matrix::from(x.as_2d(SIZE, SIZE)?), Matrix::from(y.as_2d(SIZE, SIZE)?));
        let [gemm, matmul, gemv] = &mut outputs[..] else { panic!("three outputs") };
        let options = Gemm { alpha: 0.5, beta: 1.0, ..Gemm::default() };
        let square = |output| MatrixMut::with_layout(output, Layout::new(SIZE, SIZE));
        blas::gemm(stream, options, x_matrix, y_matrix.transposed(), square(gemm)?)?;
        let bias = Some(x.slice(..SIZE));
        let with_bias = Matmul { bias, activation: Activation::Relu, ..Matmul::default() };
        blas::matmul(stream, &with_bias, x_matrix, y_matrix, square(matmul)?)?;
        blas::gemv(stream, options, x_matrix, y.slice(..SIZE), gemv.slice_mut(..SIZE))
    }

    fn results(&self) -> Vec<Vec<f32>> {
        self.outputs.iter().map(|output| output.to_host().unwrap()).collect()
    }
}

/// The first call of each operation is in the capture, so anything that the libraries load at that time is not part of
/// the graph.
#[test]
fn the_first_call_may_be_captured() {
    let stream = stream();
    let mut captured = Everything::new(&stream);
    let before = captured.results();
    let graph = Graph::capture(&stream, || captured.run(&stream)).unwrap();
    assert!(captured.results() == before, "nothing has run");
    graph.instantiate().unwrap().launch(&stream).unwrap();
    let mut direct = Everything::new(&stream);
    direct.run(&stream).unwrap();
    for (index, (captured, direct)) in captured.results().iter().zip(direct.results()).enumerate() {
        let near = captured.iter().zip(&direct).all(|(x, y)| (x - y).abs() <= 1e-4 * (1.0 + y.abs()));
        assert!(near, "output {index}");
        assert!(direct != before[index], "output {index} is written");
    }
}

#[test]
fn captures_again_and_again_keep_no_memory() {
    let stream = stream();
    let device = stream.device();
    let mut square = Product::square(&stream, 1, 64);
    let mut capture = || {
        let graph = Graph::capture(&stream, || {
            square.gemm();
            square.matmul(&Matmul::default());
            Ok::<(), Error>(())
        });
        graph.unwrap().instantiate().unwrap().launch(&stream).unwrap();
        stream.synchronize().unwrap();
    };
    let mut reserved = |captures: usize| {
        (0..captures).for_each(|_| capture());
        // The memory of dropped graphs is cached.
        device.memory().empty_cache().unwrap();
        device.memory().reserved()
    };
    let after_two = reserved(2);
    let after_ten = reserved(8);
    assert!(after_ten <= after_two, "{after_ten} bytes after ten captures, {after_two} after two");
}

#[test]
fn calls_keep_one_workspace_for_each_stream() {
    let stream = stream();
    let memory = || {
        stream.synchronize().unwrap();
        stream.device().memory().allocated()
    };
    let mut square = Product::square(&stream, 1, 64);
    square.gemm();
    square.matmul(&Matmul::default());
    let allocated = memory();
    for _ in 0..20 {
        square.gemm();
        square.matmul(&Matmul::default());
        let short = DeviceBuffer::<f32>::uninit(&stream, 0).unwrap();
        let short = Matrix::with_layout(&short, Layout::new(1, 0)).unwrap();
        let (a, _, c) = square.matrices();
        assert!(blas::gemm(&stream, Gemm::default(), a, short, c).is_err());
    }
    assert_eq!(memory(), allocated);
}
