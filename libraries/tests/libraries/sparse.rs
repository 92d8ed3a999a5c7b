//! Sparse products on the device under test, `WARPSMITH_TEST_DEVICE`, against direct sums in double precision.
//!
//! The bound of each element is 4 epsilon times the sum of the magnitudes of its terms, plus one rounding of the
//! result. `f16` and `bf16` are accumulated in single precision, but cuSPARSE may round partial sums of a row. This
//! adds one epsilon of the type times the sum of the magnitudes.

use crate::numbers::{self, assert_refused, buffer, name, random, stream, uninit};
use half::{bf16, f16};
use warpsmith_libraries::sparse::{self, Csr, FloatType, Index, Product};
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::{Device, DeviceBuffer, DeviceSlice, Error, Graph, GraphError, Result, Stream};

trait TestNumber: numbers::TestValue + FloatType {}

impl<T: numbers::TestValue + FloatType> TestNumber for T {}

/// A matrix on the host.
struct Sparse<T> {
    shape: [usize; 2],
    offsets: Vec<i64>,
    columns: Vec<i64>,
    values: Vec<T>,
}

impl<T: TestNumber> Sparse<T> {
    /// Creates rows of 0 to `2 * mean` elements, limited by the number of columns, with some duplicate entries.
    fn new(shape: [usize; 2], mean: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut offsets, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
        for _ in 0..shape[0] {
            for _ in 0..random.usize(..=(2 * mean).min(shape[1])) {
                columns.push(random.usize(..shape[1]) as i64);
                values.push(T::of(random.f64() * 2.0 - 1.0));
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

    /// Returns each element of the product with `columns` columns, and the sum of the magnitudes of its terms.
    fn product(&self, b: &[T], c: &[T], columns: usize, product: Product) -> Vec<[f64; 2]> {
        let before = |x: &T| if product.beta == 0.0 { 0.0 } else { product.beta * x.value() };
        let mut sums: Vec<[f64; 2]> = c.iter().map(|x| [before(x), before(x).abs()]).collect();
        for row in 0..self.shape[0] {
            for element in self.offsets[row] as usize..self.offsets[row + 1] as usize {
                let (column, value) = (self.columns[element] as usize, self.values[element].value());
                let (to, from) = if product.transpose { (column, row) } else { (row, column) };
                for j in 0..columns {
                    let term = product.alpha * value * b[from * columns + j].value();
                    let sum = &mut sums[to * columns + j];
                    *sum = [sum[0] + term, sum[1] + term.abs()];
                }
            }
        }
        sums
    }
}

fn check<T: TestNumber>(found: &[T], expected: &[[f64; 2]], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let (rounding, summing) = (2.0 * T::UNIT, 2.0 * T::SUM_UNIT);
    for (at, (found, [expected, terms])) in found.iter().zip(expected).enumerate() {
        // For narrow types, cuSPARSE rounds partial sums, and adds them in the narrow type if the matrix is transposed.
        let parts = if rounding > summing { 4.0 * rounding * terms } else { 0.0 };
        let bound =
            4.0 * summing * terms + rounding * expected.abs() + parts + 1e-7 * f64::from(rounding > 1e-4);
        let error = (found.value() - expected).abs();
        assert!(error <= bound, "{what}: element {at} is {}, not {expected}", found.value());
    }
}

const PRODUCTS: [Product; 5] = [
    Product { alpha: 1.0, beta: 0.0, transpose: false, deterministic: false },
    Product { alpha: -0.5, beta: 2.0, transpose: false, deterministic: false },
    Product { alpha: 1.5, beta: 1.0, transpose: false, deterministic: true },
    Product { alpha: 1.0, beta: 0.0, transpose: true, deterministic: false },
    Product { alpha: 2.0, beta: -1.0, transpose: true, deterministic: false },
];

fn products_of<T: TestNumber, I: Index + TryFrom<i64>>(stream: &Stream) -> Result<()> {
    let name = format!("{} by {}", name::<T>(), name::<I>());
    for (shape, mean) in [([1, 1], 2), ([7, 300], 5), ([300, 7], 3), ([500, 400], 20)] {
        let host = Sparse::<T>::new(shape, mean, 11);
        let matrix = host.upload::<I>(stream)?;
        for product in PRODUCTS {
            let [rows, inner] = if product.transpose { [shape[1], shape[0]] } else { shape };
            // Each product runs twice as a vector, the second time with a cached plan, and then as matrices.
            for (round, columns) in [(0, 0), (1, 0), (0, 1), (0, 6), (0, 33)] {
                let width = columns.max(1);
                let (b, mut c) = (random::<T>(inner * width, round), random::<T>(rows * width, 5));
                if product.beta == 0.0 {
                    c.fill(T::of(f64::NAN));
                }
                let expected = host.product(&b, &c, width, product);
                let (b, mut c) = (buffer(stream, &b), buffer(stream, &c));
                if columns == 0 {
                    sparse::spmv(stream, product, &matrix, &b, &mut c)?;
                } else {
                    let output = c.as_2d_mut(rows, columns)?;
                    sparse::spmm(stream, product, &matrix, b.as_2d(inner, columns)?, output)?;
                }
                let what = format!("{name}, {shape:?} by {columns} columns, {product:?}");
                check(&c.to_host()?, &expected, &what);
            }
        }
    }
    Ok(())
}

#[test]
fn products_of_every_type_are_within_the_bound() -> Result<()> {
    let stream = stream();
    products_of::<f32, i32>(&stream)?;
    products_of::<f32, i64>(&stream)?;
    products_of::<f64, i32>(&stream)?;
    products_of::<f16, i32>(&stream)?;
    products_of::<bf16, i32>(&stream)?;
    Ok(())
}

#[test]
fn what_lies_between_rows_is_neither_read_nor_written() -> Result<()> {
    let stream = stream();
    let host = Sparse::<f32>::new([9, 8], 3, 4);
    let matrix = host.upload::<i32>(&stream)?;
    let (columns, b_stride, c_stride) = (5, 8, 7);
    let spread = |rows: &[f32], stride: usize| -> Vec<f32> {
        rows.chunks(columns)
            .flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(f32::NAN, stride - columns)))
            .collect()
    };
    let (b, c) = (random::<f32>(8 * columns, 1), random::<f32>(9 * columns, 2));
    let product = Product { beta: 1.0, ..Product::default() };
    let expected = host.product(&b, &c, columns, product);
    let b = buffer(&stream, &spread(&b, b_stride));
    let mut c = buffer(&stream, &spread(&c, c_stride));
    let rows = b.as_2d_strided(8, columns, b_stride)?;
    sparse::spmm(&stream, product, &matrix, rows, c.as_2d_strided_mut(9, columns, c_stride)?)?;
    let found = c.to_host()?;
    let (inside, between): (Vec<_>, Vec<_>) =
        found.chunks(c_stride).map(|row| (row[..columns].to_vec(), row[columns..].to_vec())).unzip();
    check(&inside.concat(), &expected, "rows that lie apart");
    assert!(between.concat().iter().all(|x| x.is_nan()));
    // The same must hold for a matrix without elements.
    let none = Csr::<f32, i32>::from_host(&stream, [9, 8], &[0; 10], &[], &[])?;
    for beta in [3.0, 0.0] {
        let before = c.to_host()?;
        let product = Product { beta, ..Product::default() };
        let rows = b.as_2d_strided(8, columns, b_stride)?;
        sparse::spmm(&stream, product, &none, rows, c.as_2d_strided_mut(9, columns, c_stride)?)?;
        for (at, (found, before)) in c.to_host()?.iter().zip(&before).enumerate() {
            let inside = at % c_stride < columns;
            assert!(if inside { *found == before * beta as f32 } else { found.is_nan() }, "element {at}");
        }
    }
    Ok(())
}

#[test]
fn empty_matrices_scale_the_output_by_beta() -> Result<()> {
    let stream = stream();
    for shape in [[3, 4], [3, 0]] {
        let matrix = Csr::<f64, i32>::from_host(&stream, shape, &[0; 4], &[], &[])?;
        let x = DeviceBuffer::<f64>::zeros(&stream, shape[1])?;
        for (beta, expected) in [(2.0, [2.0, 4.0, 6.0]), (1.0, [1.0, 2.0, 3.0]), (0.0, [0.0; 3])] {
            let mut y = buffer(&stream, &[1.0, 2.0, 3.0]);
            sparse::spmv(&stream, Product { beta, ..Product::default() }, &matrix, &x, &mut y)?;
            assert_eq!(y.to_host()?, expected);
        }
    }
    // Non-finite numbers do not affect their neighbors, as they would if scaled as complex numbers.
    let matrix = Csr::<f32, i32>::from_host(&stream, [4, 3], &[0; 5], &[], &[])?;
    let x = DeviceBuffer::<f32>::zeros(&stream, 3)?;
    let mut y = buffer(&stream, &[f32::INFINITY, 1.0, 2.0, f32::NAN]);
    sparse::spmv(&stream, Product { beta: 2.0, ..Product::default() }, &matrix, &x, &mut y)?;
    let y = y.to_host()?;
    assert!(y[..3] == [f32::INFINITY, 2.0, 4.0] && y[3].is_nan(), "{y:?}");
    let matrix = Csr::<f64, i32>::from_host(&stream, [0, 4], &[0], &[], &[])?;
    let x = DeviceBuffer::<f64>::zeros(&stream, 4)?;
    let mut y = DeviceBuffer::<f64>::zeros(&stream, 0)?;
    sparse::spmv(&stream, Product::default(), &matrix, &x, &mut y)?;
    Ok(())
}

#[test]
fn kept_plans_change_no_result() -> Result<()> {
    let stream = stream();
    let host = Sparse::<f32>::new([2000, 1000], 30, 2);
    let mut matrix = host.upload::<i32>(&stream)?;
    let product = Product { deterministic: true, ..Product::default() };
    let x = buffer(&stream, &random::<f32>(1000, 3));
    let mut results = Vec::new();
    for _ in 0..2 {
        let mut y = DeviceBuffer::uninit(&stream, 2000)?;
        sparse::spmv(&stream, product, &matrix, &x, &mut y)?;
        results.push(y.to_host()?);
    }
    // A captured product is not preprocessed, and must give the same bits.
    let mut y = DeviceBuffer::uninit(&stream, 2000)?;
    let graph = Graph::capture(&stream, || sparse::spmv(&stream, product, &matrix, &x, &mut y))?;
    graph.instantiate()?.launch(&stream)?;
    results.push(y.to_host()?);
    assert!(results.windows(2).all(|two| two[0] == two[1]));
    // The values are new, at the same positions.
    let doubled: Vec<f32> = host.values.iter().map(|x| x * 2.0).collect();
    matrix.values_mut().copy_from_host(&doubled)?;
    let mut y = DeviceBuffer::uninit(&stream, 2000)?;
    sparse::spmv(&stream, product, &matrix, &x, &mut y)?;
    let expected: Vec<f32> = results[0].iter().map(|x| x * 2.0).collect();
    assert_eq!(y.to_host()?, expected);
    Ok(())
}

#[test]
fn threads_use_one_matrix_at_once() -> Result<()> {
    let stream = stream();
    let device = stream.device();
    let host = Sparse::<f32>::new([3000, 2000], 20, 5);
    let matrix = host.upload::<i32>(&stream)?;
    stream.synchronize()?;
    let run = |seed| {
        // These are two streams created by the thread, and one shared by all threads.
        let streams = [Stream::new(device)?, Stream::new(device)?, stream.clone()];
        let x = random::<f32>(2000, seed);
        let expected = host.product(&x, &[0.0; 3000], 1, Product::default());
        let x = buffer(&streams[0], &x);
        let mut outputs = Vec::new();
        for stream in streams.iter().cycle().take(15) {
            let mut y = uninit(stream, 3000);
            sparse::spmv(stream, Product::default(), &matrix, &x, &mut y)?;
            outputs.push(y);
        }
        outputs.iter().try_for_each(|y| y.to_host().map(|y| check(&y, &expected, "threads")))
    };
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..4u64).map(|seed| scope.spawn(move || run(seed))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it has not panicked"))
    })?;
    assert!(device.take_drop_error().is_none());
    Ok(())
}

#[test]
fn captured_products_read_their_buffers_at_launch() -> Result<()> {
    let stream = stream();
    let host = Sparse::<f32>::new([600, 500], 10, 6);
    let matrix = host.upload::<i32>(&stream)?;
    let columns = 12;
    let mut x = DeviceBuffer::<f32>::zeros(&stream, 500 * columns)?;
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 600)?;
    let mut c = DeviceBuffer::<f32>::zeros(&stream, 600 * columns)?;
    let graph = Graph::capture(&stream, || {
        sparse::spmv(&stream, Product::default(), &matrix, x.slice(..500), &mut y)?;
        let (rows, output) = (x.as_2d(500, columns)?, c.as_2d_mut(600, columns)?);
        sparse::spmm(&stream, Product::default(), &matrix, rows, output)
    })?;
    let exec = graph.instantiate()?;
    for seed in 0..3 {
        let b = random::<f32>(500 * columns, seed);
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

/// Runs a product whose operands start at element `start` of their buffers, as a vector or with `columns` and gaps in
/// both. Memory around the output and between its rows must stay unchanged.
fn unaligned<T: TestNumber>(
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
    let (x, y) = (random::<T>(inner * width, 1), random::<T>(rows * width, 2));
    let before = if product.beta == 0.0 { vec![T::of(f64::NAN); y.len()] } else { y.clone() };
    let input = buffer(stream, &spread(&x, T::of(f64::NAN)));
    let mut output = buffer(stream, &spread(&before, around));
    let mut enqueue = || {
        let x = input.slice(start..start + inner * stride);
        let mut y = output.slice_mut(start..start + rows * stride);
        match columns {
            None => sparse::spmv(stream, product, &matrix, x, y),
            Some(columns) => {
                let c = y.as_2d_strided_mut(rows, columns, stride)?;
                sparse::spmm(stream, product, &matrix, x.as_2d_strided(inner, columns, stride)?, c)
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
    let what = format!("{} from {start} on, {columns:?}, captured: {captured}, {product:?}", name::<T>());
    check(&inside, &host.product(&x, &y, width, product), &what);
    assert!(outside.iter().all(|number| number.value() == 77.0), "{what}");
    Ok(())
}

#[test]
fn vectors_and_matrices_may_begin_at_any_element() -> Result<()> {
    let stream = stream();
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
fn a_host_function_may_drop_a_matrix() -> Result<()> {
    let stream = stream();
    let host = Sparse::<f32>::new([40, 30], 4, 8);
    let x = buffer(&stream, &random::<f32>(30, 1));
    let mut y = DeviceBuffer::<f32>::uninit(&stream, 40)?;
    let matrix = host.upload::<i32>(&stream)?;
    sparse::spmv(&stream, Product::default(), &matrix, &x, &mut y)?;
    stream.host_function(move || drop(matrix))?;
    stream.synchronize()?;
    // The device still works.
    let matrix = host.upload::<i32>(&stream)?;
    sparse::spmv(&stream, Product::default(), &matrix, &x, &mut y)?;
    let expected = host.product(&x.to_host()?, &[0.0; 40], 1, Product::default());
    check(&y.to_host()?, &expected, "after the drop");
    assert!(stream.device().take_drop_error().is_none());
    Ok(())
}

#[test]
fn matrices_copy_and_check_device_indices() -> Result<()> {
    let stream = stream();
    let mut offsets = buffer(&stream, &[0i32, 1, 2]);
    let mut columns = buffer(&stream, &[1i32, 0]);
    let values = || buffer(&stream, &[2.0f32, 3.0]);
    let matrix = Csr::new(&stream, [2, 2], &offsets, &columns, values())?;
    offsets.copy_from_host(&[0, 100, 200])?;
    columns.copy_from_host(&[7, 7])?;
    let x = buffer(&stream, &[1.0f32, 10.0]);
    let mut y = DeviceBuffer::uninit(&stream, 2)?;
    sparse::spmv(&stream, Product::default(), &matrix, &x, &mut y)?;
    assert_eq!(y.to_host()?, [20.0, 3.0]);
    let make = |offsets: &DeviceBuffer<i32>| Csr::new(&stream, [2, 2], offsets, &columns, values());
    assert_refused(make(&offsets), "row offset 1 is 100, but there are only 2 elements");
    offsets.copy_from_host(&[0, 1, 2])?;
    assert_refused(make(&offsets), "the column index of element 0 is not below 2");
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let stream = stream();
    let matrix = Csr::from_host(&stream, [2, 3], &[0i32, 2, 3], &[0, 2, 2], &[5.0f32, 1.0, 2.0])?;
    let x = DeviceBuffer::<f32>::zeros(&stream, 3)?;
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 2)?;
    let transposed = Product { transpose: true, ..Product::default() };
    let both = Product { deterministic: true, ..transposed };
    let spmv = |x: DeviceSlice<'_, f32>, y: &mut DeviceBuffer<f32>, product, text| {
        assert_refused(sparse::spmv(&stream, product, &matrix, x, y), text);
    };
    spmv(x.slice(1..), &mut y, Product::default(), "2 x 3, requires 3 and 2");
    spmv(x.as_slice(), &mut y, transposed, "3 x 2 when transposed, requires 2 and 3");
    spmv(x.as_slice(), &mut y, both, "requires 2 and 3");
    let (wide, mut narrow) = (DeviceBuffer::zeros(&stream, 2)?, DeviceBuffer::zeros(&stream, 3)?);
    spmv(wide.as_slice(), &mut narrow, both, "deterministic");
    let mut square = DeviceBuffer::zeros(&stream, 4)?;
    let (rows, output) = (x.as_2d(x.len(), 1)?, square.as_2d_mut(2, 2)?);
    assert_refused(
        sparse::spmm(&stream, Product::default(), &matrix, rows, output),
        "requires 3 x n and 2 x n",
    );
    let make = |offsets: &[i32], columns: &[i32], values: usize, text| {
        assert_refused(Csr::from_host(&stream, [2, 3], offsets, columns, &vec![1f32; values]), text);
    };
    make(&[0, 4, 7], &[0; 7], 7, "7 elements exceed the size of a 2 x 3 matrix");
    make(&[0, 3], &[0; 3], 3, "2 rows need 3");
    make(&[0, 1, 3], &[0; 3], 2, "3 column indices but 2 values");
    make(&[0, 1, 3], &[0, 1, 3], 3, "the column index of element 2");
    make(&[0, 2, 1], &[0], 1, "offset 1 is 2");
    let elsewhere = Device::with_driver(EmulatedDriver::builder().memory(1 << 20).build(), 0)?;
    let other = Stream::new(&elsewhere)?;
    let found = sparse::spmv(&other, Product::default(), &matrix, &x, &mut y);
    assert!(matches!(found, Err(Error::DifferentDevices { .. })), "{found:?}");
    Ok(())
}
