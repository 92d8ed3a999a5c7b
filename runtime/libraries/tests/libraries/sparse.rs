//! Sparse products on the device under test, `WARPSMITH_TEST_DEVICE`, against plain sums in double precision.
//!
//! The bound of each element: 4 epsilon times the sum of the magnitudes of its terms, and one rounding of the result. `f16`
//! and `bf16` are summed up in single precision, but cuSPARSE may round what parts of a row amount to: one epsilon of the
//! type times the sum of the magnitudes.

use crate::numbers::number;
use crate::under_test::device;
use half::{bf16, f16};
use warpsmith_runtime::driver::emulated::EmulatedDriver;
use warpsmith_runtime::library::sparse::{self, Csr, Index, Product, Value};
use warpsmith_runtime::library::{LibraryError, Vendor};
use warpsmith_runtime::{Device, DeviceBuffer, Error, Graph, GraphError, Result, Stream};

trait Number: Value {
    /// Of the type, and of what it is summed up in.
    const EPSILONS: [f64; 2];
    fn of(number: f64) -> Self;
    fn double(self) -> f64;
}

macro_rules! number {
    ($type:ty, $epsilons:expr, $of:expr, $double:expr) => {
        impl Number for $type {
            const EPSILONS: [f64; 2] = $epsilons;
            fn of(number: f64) -> Self {
                $of(number)
            }
            fn double(self) -> f64 {
                $double(self)
            }
        }
    };
}

number!(f32, [1.2e-7, 1.2e-7], |x| x as f32, f64::from);
number!(f64, [2.3e-16, 2.3e-16], |x| x, |x| x);
number!(f16, [9.8e-4, 1.2e-7], f16::from_f64, f16::to_f64);
number!(bf16, [7.9e-3, 1.2e-7], bf16::from_f64, bf16::to_f64);

/// A matrix on the host.
struct Sparse<T> {
    shape: [usize; 2],
    offsets: Vec<i64>,
    columns: Vec<i64>,
    values: Vec<T>,
}

impl<T: Number> Sparse<T> {
    /// Rows of 0 to twice `mean` elements and no more than columns, some of them in one place.
    fn new(shape: [usize; 2], mean: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut offsets, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
        for _ in 0..shape[0] {
            for _ in 0..random.usize(..=(2 * mean).min(shape[1])) {
                columns.push(random.usize(..shape[1]) as i64);
                values.push(T::of(number(&mut random)));
            }
            offsets.push(columns.len() as i64);
        }
        Self { shape, offsets, columns, values }
    }

    fn upload<I: Index + TryFrom<i64>>(&self, stream: &Stream) -> Result<Csr<T, I>> {
        let convert = |from: &[i64]| -> Vec<I> {
            from.iter().map(|x| I::try_from(*x).unwrap_or_else(|_| panic!("{x} fits"))).collect()
        };
        Csr::from_host(stream, self.shape, &convert(&self.offsets), &convert(&self.columns), &self.values)
    }

    /// Each element of the product with `columns` columns, and the sum of the magnitudes of its terms.
    fn product(&self, b: &[T], c: &[T], columns: usize, product: Product) -> Vec<[f64; 2]> {
        let before = |x: &T| if product.beta == 0.0 { 0.0 } else { product.beta * x.double() };
        let mut sums: Vec<[f64; 2]> = c.iter().map(|x| [before(x), before(x).abs()]).collect();
        for row in 0..self.shape[0] {
            for element in self.offsets[row] as usize..self.offsets[row + 1] as usize {
                let (column, value) = (self.columns[element] as usize, self.values[element].double());
                let (to, from) = if product.transpose { (column, row) } else { (row, column) };
                for j in 0..columns {
                    let term = product.alpha * value * b[from * columns + j].double();
                    let sum = &mut sums[to * columns + j];
                    *sum = [sum[0] + term, sum[1] + term.abs()];
                }
            }
        }
        sums
    }
}

fn numbers<T: Number>(len: usize, seed: u64) -> Vec<T> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| T::of(number(&mut random))).collect()
}

fn check<T: Number>(found: &[T], expected: &[[f64; 2]], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let [rounding, summing] = T::EPSILONS;
    for (at, (found, [expected, terms])) in found.iter().zip(expected).enumerate() {
        // Narrow types: cuSPARSE rounds what parts of a sum amount to, and adds them up in the type where it is transposed.
        let parts = if rounding > summing { 4.0 * rounding * terms } else { 0.0 };
        let bound =
            4.0 * summing * terms + rounding * expected.abs() + parts + 1e-7 * f64::from(rounding > 1e-4);
        let error = (found.double() - expected).abs();
        assert!(error <= bound, "{what}: element {at} is {}, not {expected}", found.double());
    }
}

const PRODUCTS: [Product; 5] = [
    Product { alpha: 1.0, beta: 0.0, transpose: false, deterministic: false },
    Product { alpha: -0.5, beta: 2.0, transpose: false, deterministic: false },
    Product { alpha: 1.5, beta: 1.0, transpose: false, deterministic: true },
    Product { alpha: 1.0, beta: 0.0, transpose: true, deterministic: false },
    Product { alpha: 2.0, beta: -1.0, transpose: true, deterministic: false },
];

fn products_of<T: Number, I: Index + TryFrom<i64>>(stream: &Stream) -> Result<()> {
    let name = format!("{} by {}", std::any::type_name::<T>(), std::any::type_name::<I>());
    for (shape, mean) in [([1, 1], 2), ([7, 300], 5), ([300, 7], 3), ([500, 400], 20)] {
        let host = Sparse::<T>::new(shape, mean, 11);
        let matrix = host.upload::<I>(stream)?;
        for product in PRODUCTS {
            let [rows, inner] = if product.transpose { [shape[1], shape[0]] } else { shape };
            for round in 0..2 {
                let (x, mut y) = (numbers::<T>(inner, round), numbers::<T>(rows, 5));
                if product.beta == 0.0 {
                    y.fill(T::of(f64::NAN));
                }
                let expected = host.product(&x, &y, 1, product);
                let x = DeviceBuffer::from_host(stream, &x)?;
                let mut y = DeviceBuffer::from_host(stream, &y)?;
                sparse::spmv(stream, &matrix, &x, &mut y, product)?;
                check(&y.to_host()?, &expected, &format!("{name}, {shape:?}, {product:?}"));
            }
            for columns in [1, 6, 33] {
                let (b, mut c) = (numbers::<T>(inner * columns, 6), numbers::<T>(rows * columns, 7));
                if product.beta == 0.0 {
                    c.fill(T::of(f64::NAN));
                }
                let expected = host.product(&b, &c, columns, product);
                let b = DeviceBuffer::from_host(stream, &b)?;
                let mut c = DeviceBuffer::from_host(stream, &c)?;
                let (rows, output) =
                    (b.as_slice().rows(columns, columns)?, c.as_mut_slice().rows_mut(columns, columns)?);
                sparse::spmm(stream, &matrix, rows, output, product)?;
                let what = format!("{name}, {shape:?} by {columns} columns, {product:?}");
                check(&c.to_host()?, &expected, &what);
            }
        }
    }
    Ok(())
}

#[test]
fn products_of_every_type_are_within_the_bound() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    products_of::<f32, i32>(&stream)?;
    products_of::<f32, i64>(&stream)?;
    products_of::<f64, i32>(&stream)?;
    products_of::<f16, i32>(&stream)?;
    products_of::<bf16, i32>(&stream)?;
    Ok(())
}

#[test]
fn what_lies_between_rows_is_neither_read_nor_written() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    let host = Sparse::<f32>::new([9, 8], 3, 4);
    let matrix = host.upload::<i32>(&stream)?;
    let (columns, b_stride, c_stride) = (5, 8, 7);
    let spread = |rows: &[f32], stride: usize| -> Vec<f32> {
        rows.chunks(columns)
            .flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(f32::NAN, stride - columns)))
            .collect()
    };
    let (b, c) = (numbers::<f32>(8 * columns, 1), numbers::<f32>(9 * columns, 2));
    let product = Product { beta: 1.0, ..Product::default() };
    let expected = host.product(&b, &c, columns, product);
    let b = DeviceBuffer::from_host(&stream, &spread(&b, b_stride))?;
    let mut c = DeviceBuffer::from_host(&stream, &spread(&c, c_stride))?;
    let rows = b.as_slice().rows(columns, b_stride)?;
    sparse::spmm(&stream, &matrix, rows, c.as_mut_slice().rows_mut(columns, c_stride)?, product)?;
    let found = c.to_host()?;
    let (inside, between): (Vec<_>, Vec<_>) =
        found.chunks(c_stride).map(|row| (row[..columns].to_vec(), row[columns..].to_vec())).unzip();
    check(&inside.concat(), &expected, "rows that lie apart");
    assert!(between.concat().iter().all(|x| x.is_nan()));
    // The same for a matrix without elements.
    let none = Csr::<f32, i32>::from_host(&stream, [9, 8], &[0; 10], &[], &[])?;
    for beta in [3.0, 0.0] {
        let before = c.to_host()?;
        let product = Product { beta, ..Product::default() };
        let rows = b.as_slice().rows(columns, b_stride)?;
        sparse::spmm(&stream, &none, rows, c.as_mut_slice().rows_mut(columns, c_stride)?, product)?;
        for (at, (found, before)) in c.to_host()?.iter().zip(&before).enumerate() {
            let inside = at % c_stride < columns;
            assert!(if inside { *found == before * beta as f32 } else { found.is_nan() }, "element {at}");
        }
    }
    Ok(())
}

#[test]
fn a_matrix_without_elements_rows_or_columns_gives_what_was_there_times_beta() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    for shape in [[3, 4], [3, 0]] {
        let matrix = Csr::<f64, i32>::from_host(&stream, shape, &[0; 4], &[], &[])?;
        let x = DeviceBuffer::<f64>::zeros(&stream, shape[1])?;
        for (beta, expected) in [(2.0, [2.0, 4.0, 6.0]), (1.0, [1.0, 2.0, 3.0]), (0.0, [0.0; 3])] {
            let mut y = DeviceBuffer::from_host(&stream, &[1.0, 2.0, 3.0])?;
            sparse::spmv(&stream, &matrix, &x, &mut y, Product { beta, ..Product::default() })?;
            assert_eq!(y.to_host()?, expected);
        }
    }
    // Numbers that are not finite touch no others, as they would in a complex number.
    let matrix = Csr::<f32, i32>::from_host(&stream, [4, 3], &[0; 5], &[], &[])?;
    let x = DeviceBuffer::<f32>::zeros(&stream, 3)?;
    let mut y = DeviceBuffer::from_host(&stream, &[f32::INFINITY, 1.0, 2.0, f32::NAN])?;
    sparse::spmv(&stream, &matrix, &x, &mut y, Product { beta: 2.0, ..Product::default() })?;
    let y = y.to_host()?;
    assert!(y[..3] == [f32::INFINITY, 2.0, 4.0] && y[3].is_nan(), "{y:?}");
    let matrix = Csr::<f64, i32>::from_host(&stream, [0, 4], &[0], &[], &[])?;
    let x = DeviceBuffer::<f64>::zeros(&stream, 4)?;
    let mut y = DeviceBuffer::<f64>::zeros(&stream, 0)?;
    sparse::spmv(&stream, &matrix, &x, &mut y, Product::default())?;
    Ok(())
}

#[test]
fn plans_that_are_used_again_or_forgotten_change_no_result() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    let host = Sparse::<f32>::new([2000, 1000], 30, 2);
    let mut matrix = host.upload::<i32>(&stream)?;
    let product = Product { deterministic: true, ..Product::default() };
    let x = DeviceBuffer::from_host(&stream, &numbers::<f32>(1000, 3))?;
    let mut results = Vec::new();
    for round in 0..4 {
        let mut y = DeviceBuffer::uninit(&stream, 2000)?;
        sparse::spmv(&stream, &matrix, &x, &mut y, product)?;
        results.push(y.to_host()?);
        if round == 1 {
            matrix.forget_plans();
        }
    }
    // A captured one is not prepared, and has the same bits.
    let mut y = DeviceBuffer::uninit(&stream, 2000)?;
    let graph = Graph::capture(&stream, || sparse::spmv(&stream, &matrix, &x, &mut y, product))?;
    graph.instantiate()?.launch(&stream)?;
    results.push(y.to_host()?);
    assert!(results.windows(2).all(|two| two[0] == two[1]));
    // New values, in the same places.
    let doubled: Vec<f32> = host.values.iter().map(|x| x * 2.0).collect();
    matrix.values_mut().copy_from_host(&doubled)?;
    let mut y = DeviceBuffer::uninit(&stream, 2000)?;
    sparse::spmv(&stream, &matrix, &x, &mut y, product)?;
    let expected: Vec<f32> = results[0].iter().map(|x| x * 2.0).collect();
    assert_eq!(y.to_host()?, expected);
    Ok(())
}

#[test]
fn two_streams_and_many_threads_use_one_matrix_at_once() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    let host = Sparse::<f32>::new([3000, 2000], 20, 5);
    let matrix = host.upload::<i32>(&stream)?;
    stream.synchronize()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|seed| {
                let (device, matrix, host, shared) = (&device, &matrix, &host, &stream);
                scope.spawn(move || {
                    // Two streams of the thread's own, and one that all threads use.
                    let streams = [Stream::new(device)?, Stream::new(device)?, shared.clone()];
                    let x = numbers::<f32>(2000, seed);
                    let y = vec![0.0; 3000];
                    let expected = host.product(&x, &y, 1, Product::default());
                    let x = DeviceBuffer::from_host(&streams[0], &x)?;
                    let mut outputs = Vec::new();
                    for stream in streams.iter().cycle().take(15) {
                        let mut y = DeviceBuffer::uninit(stream, 3000)?;
                        sparse::spmv(stream, matrix, &x, &mut y, Product::default())?;
                        outputs.push(y);
                    }
                    for y in outputs {
                        check(&y.to_host()?, &expected, "threads");
                    }
                    Ok::<_, Error>(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it has not panicked"))
    })?;
    assert!(device.take_drop_error().is_none());
    Ok(())
}

#[test]
fn a_captured_product_runs_with_what_its_buffers_have_at_each_launch() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    let host = Sparse::<f32>::new([600, 500], 10, 6);
    let matrix = host.upload::<i32>(&stream)?;
    let columns = 12;
    let mut x = DeviceBuffer::<f32>::zeros(&stream, 500 * columns)?;
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 600)?;
    let mut c = DeviceBuffer::<f32>::zeros(&stream, 600 * columns)?;
    let graph = Graph::capture(&stream, || {
        sparse::spmv(&stream, &matrix, x.slice(..500), &mut y, Product::default())?;
        let (rows, output) =
            (x.as_slice().rows(columns, columns)?, c.as_mut_slice().rows_mut(columns, columns)?);
        sparse::spmm(&stream, &matrix, rows, output, Product::default())
    })?;
    let exec = graph.instantiate()?;
    for seed in 0..3 {
        let b = numbers::<f32>(500 * columns, seed);
        x.copy_from_host(&b)?;
        exec.launch(&stream)?;
        check(&y.to_host()?, &host.product(&b[..500], &[0.0; 600], 1, Product::default()), "captured vector");
        let expected = host.product(&b, &vec![0.0; 600 * columns], columns, Product::default());
        check(&c.to_host()?, &expected, "captured matrix");
    }
    drop(matrix);
    assert!(matches!(exec.launch(&stream), Err(Error::Graph(GraphError::BufferDropped { .. }))));
    Ok(())
}

/// A product with sides that begin at element `start` of their buffers, as a vector's or with `columns` and gaps in both.
/// What surrounds the output, and lies between its rows, stays.
fn unaligned<T: Number>(
    stream: &Stream,
    start: usize,
    columns: Option<usize>,
    product: Product,
    captured: bool,
) -> Result<()> {
    let host = Sparse::<T>::new([20, 15], 4, 3);
    let matrix = host.upload::<i32>(stream)?;
    let [rows, inner] = if product.transpose { [15, 20] } else { [20, 15] };
    let (width, gap) = columns.map_or((1, 0), |columns| (columns, 3));
    let stride = width + gap;
    let around = T::of(77.0);
    let spread = |dense: &[T], filler: T| -> Vec<T> {
        let rows = dense.chunks(width).flat_map(|row| row.iter().copied().chain(vec![filler; gap]));
        std::iter::repeat_n(filler, start).chain(rows).chain([filler]).collect()
    };
    let (x, y) = (numbers::<T>(inner * width, 1), numbers::<T>(rows * width, 2));
    let before = if product.beta == 0.0 { vec![T::of(f64::NAN); y.len()] } else { y.clone() };
    let input = DeviceBuffer::from_host(stream, &spread(&x, T::of(f64::NAN)))?;
    let mut output = DeviceBuffer::from_host(stream, &spread(&before, around))?;
    let mut enqueue = || {
        let x = input.slice(start..start + inner * stride);
        let mut y = output.slice_mut(start..start + rows * stride);
        match columns {
            None => sparse::spmv(stream, &matrix, x, y, product),
            Some(columns) => {
                let c = y.reborrow().rows_mut(columns, stride)?;
                sparse::spmm(stream, &matrix, x.rows(columns, stride)?, c, product)
            }
        }
    };
    if captured {
        Graph::capture(stream, enqueue)?.instantiate()?.launch(stream)?;
    } else {
        enqueue()?;
    }
    let found = output.to_host()?;
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for (at, number) in found.into_iter().enumerate() {
        let is_inside = at.checked_sub(start).is_some_and(|at| at % stride < width && at / stride < rows);
        if is_inside { inside.push(number) } else { outside.push(number) }
    }
    let what = format!(
        "{} from {start} on, {columns:?}, captured: {captured}, {product:?}",
        std::any::type_name::<T>()
    );
    check(&inside, &host.product(&x, &y, width, product), &what);
    assert!(outside.iter().all(|number| number.double() == 77.0), "{what}");
    Ok(())
}

#[test]
fn vectors_and_matrices_may_begin_at_any_element() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    for (start, product) in (0..6).flat_map(|start| PRODUCTS.map(|product| (start, product))) {
        for (columns, captured) in [(None, false), (None, true), (Some(5), false), (Some(5), true)] {
            unaligned::<f16>(&stream, start, columns, product, captured)?;
            unaligned::<f32>(&stream, start, columns, product, captured)?;
            unaligned::<f64>(&stream, start, columns, product, captured)?;
        }
    }
    Ok(())
}

#[test]
fn a_matrix_that_a_host_function_drops_leaves_nothing_behind() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    let host = Sparse::<f32>::new([40, 30], 4, 8);
    let x = DeviceBuffer::from_host(&stream, &numbers::<f32>(30, 1))?;
    let mut y = DeviceBuffer::<f32>::uninit(&stream, 40)?;
    let matrix = host.upload::<i32>(&stream)?;
    sparse::spmv(&stream, &matrix, &x, &mut y, Product::default())?;
    stream.host_function(move || drop(matrix))?;
    stream.synchronize()?;
    // The device is as good as before.
    let matrix = host.upload::<i32>(&stream)?;
    sparse::spmv(&stream, &matrix, &x, &mut y, Product::default())?;
    let expected = host.product(&x.to_host()?, &[0.0; 40], 1, Product::default());
    check(&y.to_host()?, &expected, "after the drop");
    assert!(device.take_drop_error().is_none());
    Ok(())
}

#[test]
fn a_matrix_of_what_is_on_the_device_is_checked_and_is_a_copy() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    let mut offsets = DeviceBuffer::from_host(&stream, &[0i32, 1, 2])?;
    let mut columns = DeviceBuffer::from_host(&stream, &[1i32, 0])?;
    let values = || DeviceBuffer::from_host(&stream, &[2.0f32, 3.0]);
    let matrix = Csr::new(&stream, [2, 2], &offsets, &columns, values()?)?;
    offsets.copy_from_host(&[0, 100, 200])?;
    columns.copy_from_host(&[7, 7])?;
    let x = DeviceBuffer::from_host(&stream, &[1.0f32, 10.0])?;
    let mut y = DeviceBuffer::uninit(&stream, 2)?;
    sparse::spmv(&stream, &matrix, &x, &mut y, Product::default())?;
    assert_eq!(y.to_host()?, [20.0, 3.0]);
    let failed = Csr::new(&stream, [2, 2], &offsets, &columns, values()?).unwrap_err();
    assert!(failed.to_string().contains("offset 1 is 100, but there are 2 elements"), "{failed}");
    assert_eq!(failed.memory.to_host()?, [2.0, 3.0], "the values come back");
    offsets.copy_from_host(&[0, 1, 2])?;
    let found = Csr::new(&stream, [2, 2], &offsets, &columns, values()?);
    assert!(found.is_err_and(|error| error.to_string().contains("element 0 is in no column of the 2")));
    Ok(())
}

#[test]
fn what_does_not_fit_is_told_and_nothing_is_enqueued() -> Result<()> {
    let device = device();
    let stream = Stream::new(&device)?;
    let matrix = Csr::from_host(&stream, [2, 3], &[0i32, 2, 3], &[0, 2, 2], &[5.0f32, 1.0, 2.0])?;
    let x = DeviceBuffer::<f32>::zeros(&stream, 3)?;
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 2)?;
    let text = |result: Result<()>| match result {
        Ok(()) => "it worked".to_owned(),
        Err(error) => error.to_string(),
    };
    let transposed = Product { transpose: true, ..Product::default() };
    let both = Product { deterministic: true, ..transposed };
    let make = |offsets: &[i32], columns: &[i32], values: &[f32]| {
        text(Csr::from_host(&stream, [2, 3], offsets, columns, values).map(|_| ()))
    };
    let cases = [
        (make(&[0, 4, 7], &[0; 7], &[1.0; 7]), "7 elements are more than the places of 2 x 3"),
        (
            text(sparse::spmv(&stream, &matrix, x.slice(1..), &mut y, Product::default())),
            "2 x 3, wants 3 and 2",
        ),
        (
            text(sparse::spmv(&stream, &matrix, &x, &mut y, transposed)),
            "3 x 2 when transposed, wants 2 and 3",
        ),
        (text(sparse::spmv(&stream, &matrix, &x, &mut y, both)), "wants 2 and 3"),
        (
            text(sparse::spmm(
                &stream,
                &matrix,
                x.as_slice().rows(1, 1)?,
                DeviceBuffer::zeros(&stream, 4)?.as_mut_slice().rows_mut(2, 2)?,
                Product::default(),
            )),
            "wants 3 x n and 2 x n",
        ),
        (make(&[0, 3], &[0; 3], &[0.0; 3]), "2 rows have 3"),
        (make(&[0, 1, 3], &[0; 3], &[0.0; 2]), "3 columns and 2 values"),
        (make(&[0, 1, 3], &[0, 1, 3], &[0.0; 3]), "element 2 is in no column"),
        (make(&[0, 2, 1], &[0], &[0.0]), "offset 1 is 2"),
    ];
    for (found, expected) in cases {
        assert!(found.contains(expected), "{found}, not {expected}");
    }
    let (wide, mut narrow) =
        (DeviceBuffer::<f32>::zeros(&stream, 2)?, DeviceBuffer::<f32>::zeros(&stream, 3)?);
    let found = text(sparse::spmv(&stream, &matrix, &wide, &mut narrow, both));
    assert!(found.contains("deterministic"), "{found}");
    let elsewhere = Device::with_driver(EmulatedDriver::builder().memory(1 << 20).build(), 0)?;
    let other = Stream::new(&elsewhere)?;
    let found = sparse::spmv(&other, &matrix, &x, &mut y, Product::default());
    assert!(matches!(found, Err(Error::DifferentDevices { .. })), "{found:?}");
    Ok(())
}

#[test]
fn cusparse_is_there_where_it_is_needed_and_told_missing_elsewhere() {
    match Vendor::Cusparse.version() {
        Ok(version) => assert!(version.major >= 12, "{version}"),
        Err(error) => {
            assert!(device().is_emulated(), "{error}");
            let error = error.downcast_ref::<LibraryError>();
            assert!(matches!(error, Some(LibraryError::Missing { library: "cuSPARSE", .. })), "{error:?}");
        }
    }
}
