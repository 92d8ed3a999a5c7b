//! FFTs on the device under test, `WARPSMITH_TEST_DEVICE`, against direct sums in double precision.
//!
//! For each type, the norm of the error must be at most 8 epsilon (1 + log2 n) times the norm of the result.

use std::f64::consts::TAU;

use crate::numbers::{self, assert_refused, buffer, name, random, stream};
use crate::under_test::device;
use half::f16;
use warpsmith_libraries::fft::{self, Complex, FftScalar, Norm, Shape};
use warpsmith_runtime::{Device, DeviceBuffer, Error, Graph, GraphError, Result, Stream};

trait TestNumber: numbers::TestValue + FftScalar {}

impl<T: numbers::TestValue + FftScalar> TestNumber for T {}

fn complexes<T: TestNumber>(len: usize, seed: u64) -> Vec<Complex<T>> {
    random::<T>(2 * len, seed).chunks(2).map(|parts| Complex::new(parts[0], parts[1])).collect()
}

fn doubles<T: TestNumber>(from: &[Complex<T>]) -> Vec<Complex<f64>> {
    from.iter().map(|z| Complex::new(z.re.value(), z.im.value())).collect()
}

fn flat(from: &[Complex<f64>]) -> Vec<f64> {
    from.iter().flat_map(|z| [z.re, z.im]).collect()
}

/// Computes the transform by its definition: along each dimension, a sum for each element.
fn naive(mut data: Vec<Complex<f64>>, sizes: &[usize], sign: f64) -> Vec<Complex<f64>> {
    for axis in 0..sizes.len() {
        let (size, apart) = (sizes[axis], sizes[axis + 1..].iter().product::<usize>());
        let roots: Vec<_> =
            (0..size).map(|k| Complex::from_polar(1.0, sign * TAU * k as f64 / size as f64)).collect();
        let mut next = data.clone();
        for block in 0..data.len() / (size * apart) {
            for first in 0..apart {
                let at = |j: usize| block * size * apart + j * apart + first;
                for k in 0..size {
                    next[at(k)] = (0..size).map(|j| data[at(j)] * roots[j * k % size]).sum();
                }
            }
        }
        data = next;
    }
    data
}

/// Returns the half spectrum: the first half of the last dimension.
fn halves(data: &[Complex<f64>], last: usize) -> Vec<Complex<f64>> {
    data.chunks(last).flat_map(|row| &row[..last / 2 + 1]).copied().collect()
}

/// Creates a shape of one to three sizes.
fn shape(sizes: &[usize]) -> Shape {
    match *sizes {
        [a] => a.into(),
        [a, b] => [a, b].into(),
        [a, b, c] => [a, b, c].into(),
        _ => panic!("{sizes:?}"),
    }
}

/// Returns the norm of the difference over the norm of the expected values.
fn relative_error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |terms: &mut dyn Iterator<Item = f64>| terms.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(found, expected)| found - expected));
    difference / norm(&mut expected.iter().copied()).max(f64::MIN_POSITIVE)
}

#[track_caller]
fn check<T: TestNumber>(found: &[f64], expected: &[f64], elements: usize, what: &str) {
    let (error, bound) = (relative_error(found, expected), 16.0 * T::UNIT * (1.0 + (elements as f64).log2()));
    assert!(error <= bound, "{what} of {}: error {error:e}, bound {bound:e}", name::<T>());
}

/// Checks complex numbers on the device in the same way.
#[track_caller]
fn check_complex<T: TestNumber>(
    found: &DeviceBuffer<Complex<T>>,
    expected: &[Complex<f64>],
    elements: usize,
    what: &str,
) {
    check::<T>(&flat(&doubles(&found.to_host().unwrap())), &flat(expected), elements, what);
}

fn every_kind_of_transform<T: TestNumber>(
    stream: &Stream,
    sizes: &[usize],
    batch: usize,
    norm: Norm,
) -> Result<()> {
    let elements: usize = sizes.iter().product();
    let (len, last) = (elements * batch, sizes[sizes.len() - 1]);
    let half = len / last * (last / 2 + 1);
    let shape = shape(sizes).batch(batch).norm(norm);
    let what = format!("{batch} x {sizes:?}, {norm:?}");
    let n = elements as f64;
    let (forward, inverse) = match norm {
        Norm::Backward => (1.0, 1.0 / n),
        Norm::Ortho => (1.0 / n.sqrt(), 1.0 / n.sqrt()),
        Norm::Forward => (1.0 / n, 1.0),
        Norm::None => (1.0, 1.0),
    };
    let scaled = |data: &[Complex<f64>], factor: f64| -> Vec<_> { data.iter().map(|z| z * factor).collect() };

    let host = complexes::<T>(len, 1 + len as u64);
    let x = buffer(stream, &host);
    let [mut y, mut z] = [&host, &host].map(|values| buffer(stream, values));
    for (is_forward, factor) in [(true, forward), (false, inverse)] {
        let (sign, what) =
            if is_forward { (-1.0, format!("forward, {what}")) } else { (1.0, format!("inverse, {what}")) };
        let expected = scaled(&naive(doubles(&host), sizes, sign), factor);
        z.copy_from_host(&host)?;
        match is_forward {
            true => {
                fft::forward(stream, shape, &x, &mut y)?;
                fft::forward_in_place(stream, shape, &mut z)?;
            }
            false => {
                fft::inverse(stream, shape, &x, &mut y)?;
                fft::inverse_in_place(stream, shape, &mut z)?;
            }
        }
        check_complex(&y, &expected, elements, &what);
        check_complex(&z, &expected, elements, &format!("{what} in place"));
        assert_eq!(x.to_host()?, host, "the input of {what} is as it was");
    }

    let host = random::<T>(len, 2 + len as u64);
    let x = buffer(stream, &host);
    let mut spectrum = DeviceBuffer::<Complex<T>>::uninit(stream, half)?;
    fft::forward_real(stream, shape, &x, &mut spectrum)?;
    let complex = host.iter().map(|x| x.value().into()).collect();
    let expected = halves(&naive(complex, sizes, -1.0), last);
    check_complex(&spectrum, &scaled(&expected, forward), elements, &format!("forward real, {what}"));
    assert_eq!(x.to_host()?, host, "the real input of {what} is as it was");

    // The inverse transform of the spectrum divided by n is the original input, up to rounding.
    let kept: Vec<Complex<T>> =
        expected.iter().map(|z| Complex::new(T::of(z.re / n), T::of(z.im / n))).collect();
    let mut back = DeviceBuffer::<T>::uninit(stream, len)?;
    fft::inverse_real(stream, shape, &mut buffer(stream, &kept), &mut back)?;
    let expected: Vec<f64> = host.iter().map(|x| x.value() * inverse).collect();
    check::<T>(&numbers::values(&back.to_host()?), &expected, elements, &format!("inverse real, {what}"));
    Ok(())
}

#[test]
fn transforms_of_every_kind_are_correct() -> Result<()> {
    let stream = stream();
    let lines: [&[usize]; 7] = [&[1], &[2], &[7], &[30], &[97], &[128], &[1000]];
    let others: [&[usize]; 7] = [&[3, 5], &[16, 9], &[1, 12], &[12, 1], &[2, 3, 4], &[8, 5, 16], &[5, 4, 7]];
    for sizes in lines.into_iter().chain(others) {
        for batch in [1, 3] {
            every_kind_of_transform::<f32>(&stream, sizes, batch, Norm::None)?;
            every_kind_of_transform::<f64>(&stream, sizes, batch, Norm::Backward)?;
        }
    }
    let powers: &[&[usize]] = &[&[8], &[256], &[16, 8], &[4, 8, 16]];
    for sizes in powers {
        for batch in [1, 3] {
            every_kind_of_transform::<f16>(&stream, sizes, batch, Norm::Ortho)?;
        }
    }
    for norm in [Norm::Backward, Norm::Ortho, Norm::Forward, Norm::None] {
        every_kind_of_transform::<f32>(&stream, &[6, 10], 2, norm)?;
        every_kind_of_transform::<f64>(&stream, &[12], 2, norm)?;
        every_kind_of_transform::<f16>(&stream, &[4, 4], 2, norm)?;
    }
    Ok(())
}

#[test]
fn inverse_transforms_restore_the_input() -> Result<()> {
    let stream = stream();
    let (shape, len) = (Shape::from([60, 44]).batch(5), 60 * 44 * 5);
    let host = random::<f64>(len, 3);
    let x = buffer(&stream, &host);
    let mut spectrum = DeviceBuffer::<Complex<f64>>::uninit(&stream, 60 * 23 * 5)?;
    let mut back = DeviceBuffer::<f64>::uninit(&stream, len)?;
    fft::forward_real(&stream, shape, &x, &mut spectrum)?;
    fft::inverse_real(&stream, shape, &mut spectrum, &mut back)?;
    check::<f64>(&back.to_host()?, &host, len, "there and back");
    Ok(())
}

#[test]
fn parts_of_buffers_are_transformed() -> Result<()> {
    let stream = stream();
    let host = complexes::<f32>(3 * 64, 4);
    let mut whole = buffer(&stream, &host);
    fft::forward_in_place(&stream, 64, whole.slice_mut(64..128))?;
    let found = whole.to_host()?;
    assert_eq!((&found[..64], &found[128..]), (&host[..64], &host[128..]));
    let expected = naive(doubles(&host[64..128]), &[64], -1.0);
    check::<f32>(&flat(&doubles(&found[64..128])), &flat(&expected), 64, "the middle");
    // The offset is one element, so the address is a multiple of the element size only.
    let mut output = DeviceBuffer::<Complex<f32>>::zeros(&stream, 66)?;
    fft::forward(&stream, 64, whole.slice(1..65), output.slice_mut(1..65))?;
    let (output, ends) = (output.to_host()?, Complex::new(0.0, 0.0));
    let expected = naive(doubles(&found[1..65]), &[64], -1.0);
    check::<f32>(&flat(&doubles(&output[1..65])), &flat(&expected), 64, "one on");
    assert_eq!((output[0], output[65]), (ends, ends));
    let real = buffer(&stream, &random::<f32>(34, 5));
    let mut half = DeviceBuffer::<Complex<f32>>::uninit(&stream, 17)?;
    fft::forward_real(&stream, 32, real.slice(2..), &mut half)?;
    assert_refused(fft::forward_real(&stream, 32, real.slice(1..33), &mut half), "odd element");
    Ok(())
}

/// Returns forward transforms of many shapes on a stream, for bitwise comparison.
fn bits(stream: &Stream, sizes: &[usize]) -> Result<Vec<Vec<Complex<f32>>>> {
    let one = |size: &usize| {
        let x = buffer(stream, &complexes::<f32>(*size, *size as u64));
        let mut y = DeviceBuffer::uninit(stream, *size)?;
        fft::forward(stream, *size, &x, &mut y)?;
        y.to_host()
    };
    sizes.iter().map(one).collect()
}

#[test]
fn plans_are_reused_unless_none_are_kept() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    let cache = fft::plan_cache(&device);
    assert_eq!((cache.size(), cache.max_size()), (0, 4096));
    let with = bits(&stream, &[16, 32, 16])?;
    assert_eq!((cache.size(), cache.hits_and_misses()), (2, (1, 2)));
    cache.set_max_size(1);
    assert_eq!(cache.size(), 1);
    cache.clear();
    assert_eq!(cache.size(), 0);
    cache.set_max_size(0);
    let without = bits(&stream, &[16, 32, 16])?;
    assert_eq!((cache.size(), cache.hits_and_misses()), (0, (1, 5)));
    assert_eq!(with, without);
    Ok(())
}

#[test]
fn type_kind_batch_and_rank_need_other_plans() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    let cache = fft::plan_cache(&device);
    let single = complexes::<f32>(64, 1);
    let mut x = buffer(&stream, &single);
    let mut double = buffer(&stream, &complexes::<f64>(64, 1));
    fft::forward_in_place(&stream, 64, &mut x)?;
    fft::inverse_in_place(&stream, 64, &mut x)?; // the same plan
    assert_eq!(cache.size(), 1);
    fft::forward_in_place(&stream, 64, &mut double)?;
    fft::forward_in_place(&stream, Shape::from(32).batch(2), &mut x)?;
    fft::forward_in_place(&stream, [8, 8], &mut x)?;
    fft::forward_in_place(&stream, [1, 64], &mut x)?;
    let real = buffer(&stream, &random::<f32>(64, 1));
    let mut half = DeviceBuffer::<Complex<f32>>::uninit(&stream, 33)?;
    fft::forward_real(&stream, 64, &real, &mut half)?;
    assert_eq!(cache.size(), 6);
    Ok(())
}

#[test]
fn threads_share_plans_but_no_work_area() -> Result<()> {
    let device = device();
    let size = if device.is_emulated() { 5 * 7 * 11 * 13 } else { 1009 * 512 };
    let rounds = if device.is_emulated() { 3 } else { 20 };
    let once = |seed| {
        let stream = Stream::new(&device)?;
        let mut y = DeviceBuffer::uninit(&stream, size)?;
        fft::forward(&stream, size, &buffer(&stream, &complexes::<f32>(size, seed)), &mut y)?;
        y.to_host()
    };
    let expected: Vec<_> = (0..4).map(once).collect::<Result<_>>()?;
    let run = |seed: u64| {
        let streams = [Stream::new(&device)?, Stream::new(&device)?];
        let inputs = [(); 2].map(|()| buffer(&streams[0], &complexes::<f32>(size, seed)));
        let mut outputs = Vec::new();
        for (stream, x) in streams.iter().zip(&inputs).cycle().take(2 * rounds) {
            let mut y = DeviceBuffer::<Complex<f32>>::uninit(stream, size)?;
            fft::forward(stream, size, x, &mut y)?;
            outputs.push(y);
        }
        for y in outputs {
            assert!(y.to_host()? == expected[seed as usize], "thread {seed}");
        }
        Ok::<_, Error>(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                scope.spawn({
                    let run = &run;
                    move || run(seed)
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it has not panicked"))
    })?;
    assert_eq!(fft::plan_cache(&device).size(), 1);
    assert!(device.take_drop_error().is_none());
    Ok(())
}

#[test]
fn captured_transforms_read_their_buffers_at_launch() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    let (shape, len) = (Shape::from([20, 21]).batch(3).norm(Norm::Ortho), 20 * 21 * 3);
    let mut x = DeviceBuffer::<Complex<f32>>::zeros(&stream, len)?;
    let mut y = DeviceBuffer::<Complex<f32>>::zeros(&stream, len)?;
    let mut z = DeviceBuffer::<Complex<f32>>::zeros(&stream, len)?;
    // The plan is created during the capture.
    let graph = Graph::capture(&stream, || {
        fft::forward(&stream, shape, &x, &mut y)?;
        fft::inverse(&stream, shape, &y, &mut z)
    })?;
    let exec = graph.instantiate()?;
    drop(graph);
    // The graph keeps the plan alive.
    fft::plan_cache(&device).clear();
    let other = Stream::new(&device)?;
    for seed in 0..3 {
        let host = complexes::<f32>(len, seed);
        x.copy_from_host(&host)?;
        exec.launch(if seed == 1 { &other } else { &stream })?;
        let expected: Vec<_> = doubles(&host)
            .chunks(420)
            .flat_map(|one| naive(one.to_vec(), &[20, 21], -1.0))
            .map(|z| z / 420f64.sqrt())
            .collect();
        check_complex(&y, &expected, 420, "captured");
        check_complex(&z, &doubles(&host), 420 * 420, "captured, back");
    }
    drop(y);
    assert!(matches!(exec.launch(&stream), Err(Error::Graph(GraphError::BufferDropped { .. }))));
    Ok(())
}

#[test]
fn real_transforms_and_those_in_place_may_be_captured() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    let host = random::<f32>(60, 5);
    let x = buffer(&stream, &host);
    let mut half = DeviceBuffer::<Complex<f32>>::zeros(&stream, 31)?;
    let mut back = DeviceBuffer::<f32>::zeros(&stream, 60)?;
    let places = complexes::<f32>(60, 6);
    let mut place = buffer(&stream, &places);
    let exec = Graph::capture(&stream, || {
        fft::forward_real(&stream, 60, &x, &mut half)?;
        fft::inverse_real(&stream, 60, &mut half, &mut back)?;
        fft::forward_in_place(&stream, 60, &mut place)
    })?
    .instantiate()?;
    exec.launch(&stream)?;
    let [found, expected] = [&back.to_host()?, &host].map(|numbers| numbers::values(numbers));
    check::<f32>(&found, &expected, 60 * 60, "captured, back");
    check_complex(&place, &naive(doubles(&places), &[60], -1.0), 60, "captured in place");
    Ok(())
}

#[test]
fn work_areas_go_back_to_the_allocator() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    let size = 8 * 1009;
    let mut x = buffer(&stream, &complexes::<f32>(size, 1));
    let before = device.memory().allocated();
    for _ in 0..3 {
        fft::forward_in_place(&stream, size, &mut x)?;
    }
    assert_eq!(device.memory().allocated(), before);
    Ok(())
}

#[test]
fn what_cannot_be_transformed_is_refused() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    let x = DeviceBuffer::<Complex<f32>>::zeros(&stream, 24)?;
    let mut y = DeviceBuffer::<Complex<f32>>::zeros(&stream, 24)?;
    let real = DeviceBuffer::<f32>::zeros(&stream, 24)?;
    let mut half = DeviceBuffer::<Complex<f16>>::zeros(&stream, 24)?;
    let refused = assert_refused::<()>;
    refused(
        fft::forward(&stream, 25, &x, &mut y),
        "the input has 24 elements, but 1 contiguous transform of [25] require 25",
    );
    refused(fft::forward(&stream, 12, &x, &mut y), "require 12");
    refused(fft::forward(&stream, 20, x.slice(..20), &mut y), "the output has 24 elements");
    refused(fft::forward(&stream, [0, 24], &x, &mut y), "dimension 0 of [0, 24] is 0");
    refused(fft::forward(&stream, Shape::from(0).batch(0), &x, &mut y), "dimension 0 of [0] is 0");
    let none = Shape::from(24).batch(0);
    refused(fft::forward(&stream, none, &x, &mut y), "0 contiguous transforms of [24] require 0");
    refused(fft::forward_real(&stream, 24, &real, &mut y), "require 13");
    let mut back = DeviceBuffer::<f32>::zeros(&stream, 24)?;
    refused(fft::inverse_real(&stream, 24, &mut y, &mut back), "require 13");
    refused(fft::forward_in_place(&stream, [usize::MAX, 2], &mut y), "exceed the maximum");
    refused(
        fft::forward_in_place(&stream, Shape::from(1 << 62).batch(1 << 62), &mut y),
        "exceed the maximum",
    );
    refused(fft::forward_in_place(&stream, 24, &mut half), "half precision with sizes [24] is not supported");
    // Empty batches are allowed.
    let empty = Shape::from([4, 6]).batch(0);
    fft::forward(&stream, empty, x.slice(..0), y.slice_mut(..0))?;
    fft::inverse_real(&stream, empty, y.slice_mut(..0), &mut DeviceBuffer::<f32>::uninit(&stream, 0)?)?;
    assert_eq!(fft::plan_cache(&device).size(), 0);
    let elsewhere = Device::with_driver(
        warpsmith_runtime::emulated::EmulatedDriver::builder().memory(1 << 20).build(),
        0,
    )?;
    let other = Stream::new(&elsewhere)?;
    let found = fft::forward(&other, 24, &x, &mut y);
    assert!(matches!(found, Err(Error::DifferentDevices { .. })), "{found:?}");
    Ok(())
}

/// cuFFT stores half precision before the division by the norm.
#[test]
fn half_precision_overflows_before_it_is_divided() -> Result<()> {
    let stream = device().default_stream();
    let one = Complex::new(f16::ONE, f16::ZERO);
    for (len, sum) in [(1 << 15, 1.0), (1 << 16, f32::INFINITY)] {
        let x = buffer(&stream, &vec![one; len]);
        let mut y = DeviceBuffer::uninit(&stream, len)?;
        fft::forward(&stream, fft::Shape::from(len).norm(Norm::Forward), &x, &mut y)?;
        assert_eq!(y.to_host()?[0].re.to_f32(), sum, "{len}");
    }
    Ok(())
}

/// Long arrays are divided by a different call than short ones and remainders.
#[test]
fn long_transforms_are_divided_element_by_element() -> Result<()> {
    fn check<T: TestNumber>(stream: &Stream) -> Result<()> {
        let (size, batch) = (16, 9001);
        let mut host = complexes::<T>(size * batch, 6);
        host[size * 4000 + 3].im = T::of(f64::INFINITY);
        let x = buffer(stream, &host);
        let [mut divided, mut whole] =
            [DeviceBuffer::uninit(stream, host.len())?, DeviceBuffer::uninit(stream, host.len())?];
        let shape = Shape::from(size).batch(batch);
        fft::inverse(stream, shape, &x, &mut divided)?;
        fft::inverse(stream, shape.norm(Norm::None), &x, &mut whole)?;
        let (divided, whole) = (flat(&doubles(&divided.to_host()?)), flat(&doubles(&whole.to_host()?)));
        // Division by a power of two does not round.
        let differs =
            |(found, whole): (&f64, &f64)| *found != *whole / 16.0 && !(found.is_nan() && whole.is_nan());
        assert_eq!(divided.iter().zip(&whole).position(differs), None);
        assert!(whole.iter().filter(|number| number.is_finite()).count() >= whole.len() - 2 * size);
        Ok(())
    }
    let stream = device().default_stream();
    check::<f32>(&stream)?;
    check::<f64>(&stream)
}
