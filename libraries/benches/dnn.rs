//! Ten convolutions of ResNet-50 with cuDNN, forward and backward, and the host time of a call.
//! `benches/peers/convolution.py` measures the same with PyTorch and prints the same lines.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device, by default the best available. An argument selects the rows that contain
//! it. Each row is the median of 20 samples of 10 calls between two events, with the plan that was fastest when timed.
//! The batch size is 32; the emulated device runs batch size 1 of the smallest shape.

use std::hint::black_box;
use std::time::Instant;

use half::bf16;
use warpsmith_libraries::dnn::{
    self, Convolution, FloatType, Layout, Options, Tensor, TensorMut, convolution_backward_data,
    convolution_backward_weights,
};
use warpsmith_runtime::{Device, DeviceBuffer, Error, Result, Stream};

/// Extent, input channels, output channels, window, stride, padding.
type Row = (usize, usize, usize, usize, usize, usize);

const ROWS: [Row; 10] = [
    (224, 3, 64, 7, 2, 3),
    (56, 64, 64, 1, 1, 0),
    (56, 64, 64, 3, 1, 1),
    (56, 64, 256, 1, 1, 0),
    (56, 128, 128, 3, 2, 1),
    (28, 128, 512, 1, 1, 0),
    (28, 128, 128, 3, 1, 1),
    (14, 256, 256, 3, 1, 1),
    (14, 1024, 256, 1, 1, 0),
    (7, 512, 512, 3, 1, 1),
];

fn main() {
    let device = match std::env::var("WARPSMITH_BENCH_DEVICE") {
        Ok(name) => {
            Device::open(&name).unwrap_or_else(|error| panic!("WARPSMITH_BENCH_DEVICE={name}: {error}"))
        }
        Err(_) => Device::best().expect("the emulated device at least"),
    };
    let stream = Stream::new(&device).expect("a stream");
    let picked = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let rows = if device.is_emulated() { &ROWS[9..] } else { &ROWS[..] };
    for row in rows {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            let exact = Options { allow_tf32: false, ..Options::default() };
            bench::<f32>(&stream, *row, layout, "f32", exact, &picked);
            bench::<f32>(&stream, *row, layout, "tf32", Options::default(), &picked);
            bench::<bf16>(&stream, *row, layout, "bf16", Options::default(), &picked);
        }
    }
    host_cost(&stream, &picked).expect("a small convolution");
}

/// Prints the rows of one shape, layout and type.
fn bench<T: FloatType>(
    stream: &Stream,
    row: Row,
    layout: Layout,
    name: &str,
    options: Options,
    picked: &str,
) {
    let (extent, from, to, window, stride, padding) = row;
    let batch = if stream.device().is_emulated() { 1 } else { 32 };
    let operator = Convolution {
        padding: padding.into(),
        stride: stride.into(),
        options: Some(Options { benchmark: true, ..options }),
        ..Convolution::default()
    };
    let of_x = [batch, from, extent, extent];
    let of_w = [to, from, window, window];
    let of_y = operator.output_shape(&of_x, &of_w).expect("shapes that fit");
    let flops = 2.0 * (of_y.iter().product::<usize>() * from * window * window) as f64;
    for operation in ["forward", "backward_data", "backward_weights"] {
        let layout_name = format!("{layout:?}").to_lowercase();
        let name =
            format!("{operation}/{name}/{layout_name}/{extent}x{extent}x{from}-{window}x{window}-{to}");
        if !name.contains(picked) {
            continue;
        }
        let timed = (|| {
            let zeros = |shape: &[usize]| DeviceBuffer::<T>::zeros(stream, shape.iter().product::<usize>());
            let (mut x, mut w, mut y) = (zeros(&of_x)?, zeros(&of_w)?, zeros(&of_y)?);
            time(stream, || match operation {
                "forward" => dnn::convolution(
                    stream,
                    &operator,
                    &Tensor::new(&x, &of_x, layout)?,
                    &Tensor::new(&w, &of_w, layout)?,
                    &mut TensorMut::new(&mut y, &of_y, layout)?,
                ),
                "backward_data" => convolution_backward_data(
                    stream,
                    &operator,
                    &Tensor::new(&w, &of_w, layout)?,
                    &Tensor::new(&y, &of_y, layout)?,
                    &mut TensorMut::new(&mut x, &of_x, layout)?,
                ),
                _ => convolution_backward_weights(
                    stream,
                    &operator,
                    &Tensor::new(&x, &of_x, layout)?,
                    &Tensor::new(&y, &of_y, layout)?,
                    &mut TensorMut::new(&mut w, &of_w, layout)?,
                ),
            })
        })();
        match timed {
            Ok(us) => println!("{name:<60} {us:>10.2} us {:>8.2} TFLOP/s", flops / us / 1e6),
            Err(error) => println!("{name:<60} {error}"),
        }
    }
}

/// Returns the median time of a call on the device, in microseconds.
fn time(stream: &Stream, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let (samples, calls) = if stream.device().is_emulated() { (1, 1) } else { (20, 10) };
    (0..calls).try_for_each(|_| call())?;
    let mut times = Vec::new();
    for _ in 0..samples {
        let before = stream.record_timed_event()?;
        (0..calls).try_for_each(|_| call())?;
        let after = stream.record_timed_event()?;
        after.synchronize()?;
        times.push(after.elapsed_us(&before)? / f64::from(calls));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Measures the host time of a call with a cached plan, including the plan's look-up.
fn host_cost(stream: &Stream, picked: &str) -> std::result::Result<(), Error> {
    let name = "host/forward/f32/1x8x8x8-1x1-8";
    if !name.contains(picked) {
        return Ok(());
    }
    let shape = [1, 8, 8, 8];
    let x = DeviceBuffer::<f32>::zeros(stream, 512)?;
    let w = DeviceBuffer::<f32>::zeros(stream, 64)?;
    let mut y = DeviceBuffer::<f32>::zeros(stream, 512)?;
    let operator = Convolution::default();
    let mut call = || {
        dnn::convolution(
            stream,
            &operator,
            &Tensor::new(&x, &shape, Layout::Nchw)?,
            &Tensor::new(&w, &[8, 8, 1, 1], Layout::Nchw)?,
            &mut TensorMut::new(&mut y, &shape, Layout::Nchw)?,
        )
    };
    call()?;
    stream.synchronize()?;
    let mut times = Vec::new();
    for _ in 0..50 {
        let start = Instant::now();
        for _ in 0..100 {
            black_box(call())?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e6 / 100.0);
        stream.synchronize()?;
    }
    times.sort_by(f64::total_cmp);
    println!("{name:<60} {:>10.2} us", times[times.len() / 2]);
    Ok(())
}
