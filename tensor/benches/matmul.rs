//! GEMM benchmark: this crate's kernels and the fastest of 16 algorithms from cuBLASLt's heuristics, interleaved in one
//! run.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device; the emulated device runs only small shapes. Arguments are cases of the
//! form `TYPE:LAYOUT:SHAPE`, such as `bf16:ab:4096` or `f16:abt+gelu:4096x11008x4096` (m, n, k).
//!
//! Types, with the cuBLAS baseline:
//!
//! - `bf16`, `f16`, `tf32`, `f32`
//! - `f32x3`: 3xTF32, vs cuBLASLt's `f32`
//! - `e4m3`: FP8; `e4m3s`: block-scaled FP8, vs cuBLASLt's unscaled FP8
//! - `i8`: vs cuBLAS, without an algorithm search
//! - `w4`: `bf16` with weight-only int4 (W4A16), vs cuBLASLt's `bf16`
//! - `group`: grouped GEMM, vs one cuBLASLt GEMM per group. `group:abt:128*64x2048x4096` has 128 groups of `bf16` with
//!   a mean of 64 rows.
//!
//! Layouts are `ab` (both row-major), and `abt`, `atb` and `atbt` with transposed operands. `+gelu` adds a bias and
//! applies GELU; `+schedules` also times each available `Schedule`; `+mma` uses the `mma.sync` kernels, and prints the
//! rate of `mma.sync` with operands in registers (for FP8, which is converted, that of 16 bits). A shape `8*1024` is a
//! batch of eight. Skinny GEMMs are memory-bound, so their `b` should be larger than the L2 cache, as in
//! `bf16:abt:4x28672x8192`.
//!
//! Inputs are normally distributed, because the power draw of a GEMM depends on them. Each figure is the median of the
//! rounds. Each round is timed by events around several GEMMs, after the clock has settled; power and clock are read
//! after each round. `WARPSMITH_BENCH_SECONDS` is the time per case, 6 by default.

use gpu_std::{Kernel, param};
use half::{bf16, f16};
use test_kernels::tensor_cores::{RATE_BYTES, RATE_THREADS, mma_rate};
use warpsmith_libraries::blas::{self, Layout, Math, Matmul, Search};
use warpsmith_runtime::{Device, DeviceBuffer, DeviceCopy, Launch, Result, Stream};
use warpsmith_tensor::{
    Activation, BlockScales, Epilogue, F8E4M3, GemmElement, Int4Weights, Matrix, MatrixMut, Schedule,
};

const ROUNDS: usize = 15;

fn main() -> Result<()> {
    let name = std::env::var("WARPSMITH_BENCH_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = Device::open(&name)?;
    let stream = Stream::new(&device)?;
    println!("{}", device.name());
    // The arguments of cargo itself, such as `--bench`, are not cases.
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let mut cases: Vec<Case> = arguments.iter().filter_map(|text| Case::of(text)).collect();
    if device.is_emulated() {
        cases = [
            "bf16:abt+schedules:128x256x64",
            "bf16:ab+gelu:2*64x128x64",
            "bf16:abt+mma:128x136x64",
            "tf32:abt+mma:64",
            "i8:abt+mma:128",
            "tf32:abt:64",
            "f32:ab:64",
            "e4m3:abt:128",
            "i8:abt:128",
            "bf16:abt:4x96x64",
            "w4:abt:4x96x256",
            "f32x3:ab:64",
            "e4m3s:abt:128",
            "group:abt:4*8x64x64",
        ]
        .into_iter()
        .filter_map(Case::of)
        .collect();
    } else if cases.is_empty() {
        cases = ["bf16:abt:4096", "bf16:abt:8192"].into_iter().filter_map(Case::of).collect();
    }
    for case in &cases {
        if case.is_mma {
            let rate = match &*case.element {
                "tf32" => mma_tflops::<mma_rate<f32>, f32>(&stream)?,
                "i8" => mma_tflops::<mma_rate<i8>, i8>(&stream)?,
                _ => mma_tflops::<mma_rate<bf16>, bf16>(&stream)?,
            };
            println!("{} mma.sync in registers: {rate:.1} TFLOP/s", case.name);
        }
        match &*case.element {
            "bf16" => compare::<bf16>(&stream, case)?,
            "f16" => compare::<f16>(&stream, case)?,
            "tf32" | "f32" | "f32x3" => compare::<f32>(&stream, case)?,
            "e4m3" | "e4m3s" => compare::<F8E4M3>(&stream, case)?,
            "i8" => compare::<i8>(&stream, case)?,
            "w4" => compare_4bit(&stream, case)?,
            "group" => compare_grouped(&stream, case)?,
            other => println!("{other}: no type of bf16, f16, tf32, f32, f32x3, e4m3, e4m3s, i8, w4, group"),
        }
    }
    Ok(())
}

/// Problem of one case.
struct Case {
    name: String,
    element: String,
    are_transposed: [bool; 2],
    is_fused: bool,
    /// True if every schedule is timed.
    is_swept: bool,
    /// True if the `mma.sync` kernels are timed instead of the default kernels.
    is_mma: bool,
    /// Schedule of the GEMM; `None` selects the default schedule.
    schedule: Option<Schedule>,
    batches: usize,
    shape: [usize; 3],
}

impl Case {
    /// Parses a case. Returns `None` if the text is not a case.
    fn of(text: &str) -> Option<Self> {
        let [element, layout, shape] = text.split(':').collect::<Vec<_>>()[..] else { return None };
        let without = |layout: &'_ str, suffix| match layout.strip_suffix(suffix) {
            Some(rest) => (rest.to_owned(), true),
            None => (layout.to_owned(), false),
        };
        let (layout, is_swept) = without(layout, "+schedules");
        let (layout, is_mma) = without(&layout, "+mma");
        let (layout, is_fused) = without(&layout, "+gelu");
        let (batches, sides) = shape.split_once('*').unwrap_or(("1", shape));
        let sides: Vec<usize> = sides.split('x').map(|side| side.parse().ok()).collect::<Option<_>>()?;
        let shape = match sides[..] {
            [side] => [side; 3],
            [m, n, k] => [m, n, k],
            _ => return None,
        };
        let are_transposed = match &*layout {
            "ab" => [false, false],
            "abt" => [false, true],
            "atb" => [true, false],
            "atbt" => [true, true],
            _ => return None,
        };
        let (name, element, batches) = (text.to_owned(), element.to_owned(), batches.parse().ok()?);
        Some(Self {
            name,
            element,
            are_transposed,
            is_fused,
            is_swept,
            is_mma,
            schedule: None,
            batches,
            shape,
        })
    }
}

/// Element type of matrices, as our GEMM and cuBLAS take it.
trait TestNumber: GemmElement {
    fn of(number: f32) -> Self;
    fn widen(output: Self::Output) -> f32;
    fn ours(
        stream: &Stream,
        case: &Case,
        fused: Option<&DeviceBuffer<Self::Output>>,
        product: Ours<'_, Self>,
    ) -> Result<()>;
    fn theirs(
        stream: &Stream,
        case: &Case,
        fused: Option<&DeviceBuffer<Self::Output>>,
        a: blas::Matrix<'_, Self>,
        b: blas::Matrix<'_, Self>,
        c: blas::MatrixMut<'_, Self::Output>,
    ) -> Result<()>;
}

/// Operands of a GEMM.
struct Ours<'a, T: GemmElement> {
    a: Matrix<'a, T>,
    b: Matrix<'a, T>,
    c: MatrixMut<'a, T::Output>,
}

macro_rules! floats {
    ($($ty:ty, $of:expr, $math:expr, $multiply:expr;)*) => { $(
        impl TestNumber for $ty {
            fn of(number: f32) -> Self {
                let of: fn(f32) -> Self = $of;
                of(number)
            }
            fn widen(output: Self::Output) -> f32 {
                output.into()
            }
            fn ours(
                stream: &Stream,
                case: &Case,
                fused: Option<&DeviceBuffer<Self::Output>>,
                Ours { a, b, c }: Ours<'_, Self>,
            ) -> Result<()> {
                let epilogue = match fused {
                    Some(bias) => {
                        let (bias, activation) = (Some(bias.as_slice()), Activation::Gelu);
                        Epilogue { bias, activation, ..Epilogue::default() }
                    }
                    None => Epilogue::default(),
                };
                let multiply: fn(&Stream, &Case, &Epilogue<'_, Self::Output>, Ours<'_, Self>) -> Result<()> = $multiply;
                multiply(stream, case, &epilogue, Ours { a, b, c })
            }
            fn theirs(
                stream: &Stream,
                case: &Case,
                fused: Option<&DeviceBuffer<Self::Output>>,
                a: blas::Matrix<'_, Self>,
                b: blas::Matrix<'_, Self>,
                c: blas::MatrixMut<'_, Self::Output>,
            ) -> Result<()> {
                let activation = if fused.is_some() { blas::Activation::Gelu } else { blas::Activation::None };
                let bias = fused.map(|bias| bias.as_slice());
                let search = Search::Timed { candidates: 16, repeats: 5 };
                let math: fn(&Case) -> Option<Math> = $math;
                let options = Matmul { search, bias, activation, math: math(case), ..Matmul::default() };
                blas::matmul(stream, &options, a, b, c)
            }
        }
    )* };
}

/// Runs this crate's GEMM on tensor cores.
fn fused<T: GemmElement<Sum = f32>>(
    stream: &Stream,
    case: &Case,
    epilogue: &Epilogue<'_, T::Output>,
    Ours { a, b, c }: Ours<'_, T>,
) -> Result<()> {
    if case.is_mma {
        return warpsmith_tensor::matmul_mma(stream, case.schedule, epilogue, a, b, c);
    }
    warpsmith_tensor::matmul_with(stream, case.schedule, epilogue, a, b, c)
}

/// Returns every available schedule. The `mma.sync` kernels have no clusters, and split-K for few tiles only.
fn schedules(case: &Case) -> impl Iterator<Item = Schedule> {
    let [m, n, _] = case.shape;
    let (is_mma, is_small) = (case.is_mma, case.batches * m * n <= 1 << 24);
    Schedule::TILES
        .into_iter()
        .flat_map(|tile| [1, 2].map(|cluster| (tile, cluster)))
        .flat_map(|(tile, cluster)| Schedule::SPLIT_K.map(|split_k| Schedule { tile, cluster, split_k }))
        .filter(Schedule::exists)
        .filter(move |of| !is_mma || of.cluster == 1 && of.tile[1] != 192 && (of.split_k == 1 || is_small))
}

thread_local! {
    /// Buffer of scales, all 1. It grows to the size of the largest matrix so far.
    static SCALES: std::cell::RefCell<Option<DeviceBuffer<f32>>> = const { std::cell::RefCell::new(None) };
}

/// Runs this crate's block-scaled FP8 GEMM with all scales equal to 1.
fn scaled(stream: &Stream, epilogue: &Epilogue<'_, bf16>, Ours { a, b, c }: Ours<'_, F8E4M3>) -> Result<()> {
    let blocks = a.columns().div_ceil(128);
    let [of_a, of_b] = [a.rows() * blocks, b.columns().div_ceil(128) * blocks];
    SCALES.with_borrow_mut(|scales| {
        if scales.as_ref().is_none_or(|scales| scales.len() < of_a.max(of_b)) {
            *scales = Some(DeviceBuffer::from_host(stream, &vec![1.0; of_a.max(of_b)])?);
        }
        let Some(ones) = scales else { return Ok(()) };
        let scales = BlockScales { a: ones.slice(..of_a), b: ones.slice(..of_b) };
        warpsmith_tensor::matmul_scaled(stream, epilogue, a, b, scales, c)
    })
}

floats! {
    bf16, bf16::from_f32, |_| None, fused;
    f16, f16::from_f32, |_| None, fused;
    f32, |x| x, |case| Some(Math { allow_tf32: case.element == "tf32", ..Math::default() }),
        |stream, case, epilogue, product| match &*case.element {
            "tf32" => fused(stream, case, epilogue, product),
            "f32x3" => warpsmith_tensor::matmul_tf32x3(stream, epilogue, product.a, product.b, product.c),
            _ => warpsmith_tensor::matmul_f32(stream, epilogue, product.a, product.b, product.c),
        };
    F8E4M3, F8E4M3::from_f32, |_| None, |stream, case, epilogue, product| match &*case.element {
        "e4m3s" => scaled(stream, epilogue, product),
        _ => fused(stream, case, epilogue, product),
    };
}

impl TestNumber for i8 {
    fn of(number: f32) -> Self {
        (32.0 * number) as i8
    }
    fn widen(output: i32) -> f32 {
        output as f32
    }
    fn ours(
        stream: &Stream,
        case: &Case,
        _: Option<&DeviceBuffer<i32>>,
        Ours { a, b, c }: Ours<'_, i8>,
    ) -> Result<()> {
        if case.is_mma {
            return warpsmith_tensor::matmul_mma(stream, case.schedule, &Epilogue::default(), a, b, c);
        }
        warpsmith_tensor::matmul(stream, a, b, c)
    }
    fn theirs(
        stream: &Stream,
        _: &Case,
        _: Option<&DeviceBuffer<i32>>,
        a: blas::Matrix<'_, i8>,
        b: blas::Matrix<'_, i8>,
        c: blas::MatrixMut<'_, i32>,
    ) -> Result<()> {
        blas::matmul(stream, &Matmul::default(), a, b, c)
    }
}

/// Returns normally distributed numbers from a table of a million.
fn normals<T: TestNumber>(seed: u64, len: usize) -> Vec<T> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut pair = || {
        let radius = (-2.0 * (1.0 - random.f32()).ln()).sqrt();
        let angle = random.f32() * std::f32::consts::TAU;
        [radius * angle.cos(), radius * angle.sin()]
    };
    let table: Vec<T> = (0..(1 << 20).min(len.div_ceil(2))).flat_map(|_| pair()).map(T::of).collect();
    let mut numbers = Vec::with_capacity(len);
    while numbers.len() < len {
        // Reading starts at a random position in the table, so that rows do not repeat.
        let from = random.usize(..table.len());
        let count = (table.len() - from).min(len - numbers.len());
        numbers.extend_from_slice(&table[from..from + count]);
    }
    numbers
}

/// Function that enqueues one GEMM.
type Call<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

fn compare<T: TestNumber>(stream: &Stream, case: &Case) -> Result<()> {
    let ([m, n, k], batches) = (case.shape, case.batches);
    let (a_host, b_host) = (normals::<T>(1, batches * m * k), normals::<T>(2, batches * n * k));
    let (a, b) = (DeviceBuffer::from_host(stream, &a_host)?, DeviceBuffer::from_host(stream, &b_host)?);
    let (a_theirs, b_theirs) =
        (DeviceBuffer::from_host(stream, &a_host)?, DeviceBuffer::from_host(stream, &b_host)?);
    let bias = DeviceBuffer::<T::Output>::zeros(stream, n)?;
    let bias = case.is_fused.then_some(&bias);
    let mut ours = DeviceBuffer::<T::Output>::zeros(stream, batches * m * n)?;
    let mut theirs = DeviceBuffer::<T::Output>::zeros(stream, batches * m * n)?;
    {
        let matrix = |rows: usize, columns: usize, is_transposed: bool| {
            let (rows, columns) = if is_transposed { (columns, rows) } else { (rows, columns) };
            let layout = Layout::new(rows, columns).with_batch(batches, rows * columns);
            if is_transposed { layout.transposed() } else { layout }
        };
        let [a_transposed, b_transposed] = case.are_transposed;
        let view = |buffer, rows, columns, is_transposed| -> Result<Matrix<'_, T>> {
            let (width, height) = if is_transposed { (rows, columns) } else { (columns, rows) };
            let matrix = Matrix::from(DeviceBuffer::as_3d(buffer, batches, height, width)?);
            Ok(if is_transposed { matrix.transposed() } else { matrix })
        };
        let (a_view, b_view) = (view(&a, m, k, a_transposed)?, view(&b, k, n, b_transposed)?);
        let mut c_view = ours.as_3d_mut(batches, m, n)?;
        let a_matrix = blas::Matrix::with_layout(&a_theirs, matrix(m, k, a_transposed))?;
        let b_matrix = blas::Matrix::with_layout(&b_theirs, matrix(k, n, b_transposed))?;
        let mut c_matrix = blas::MatrixMut::with_layout(&mut theirs, matrix(m, n, false))?;
        let mut calls: [(&str, Call<'_>); 2] = [
            (
                "warpsmith",
                Box::new(|| {
                    T::ours(stream, case, bias, Ours { a: a_view, b: b_view, c: (&mut c_view).into() })
                }),
            ),
            ("cuBLASLt", Box::new(|| T::theirs(stream, case, bias, a_matrix, b_matrix, c_matrix.reborrow()))),
        ];
        let bytes = batches * (m * k + n * k) * size_of::<T>();
        measure(stream, case, [bytes, bytes], &mut calls)?;
        drop(calls);
        for schedule in schedules(case).filter(|_| case.is_swept) {
            let with = Case {
                schedule: Some(schedule),
                name: String::new(),
                element: case.element.clone(),
                ..*case
            };
            let call =
                || T::ours(stream, &with, bias, Ours { a: a_view, b: b_view, c: (&mut c_view).into() });
            sweep(stream, &case.name, schedule, &mut (Box::new(call) as Call<'_>))?;
        }
    }
    let (ours, theirs) = (ours.to_host()?, theirs.to_host()?);
    let differences = ours.iter().zip(&theirs).map(|(&x, &y)| (T::widen(x) - T::widen(y)).abs());
    println!("{} largest difference of the results: {}", case.name, differences.fold(0.0, f32::max));
    if case.element.starts_with("f32") {
        let (a, b) = (bytemuck_cast(&a_host), bytemuck_cast(&b_host));
        let errors = [&ours, &theirs].map(|c| error(case, a, b, bytemuck_cast(c)));
        println!("{} root mean square error: {:.2e}, of cuBLASLt {:.2e}", case.name, errors[0], errors[1]);
    }
    Ok(())
}

/// Returns the root mean square error of sampled elements of a GEMM.
fn error(case: &Case, a: &[f32], b: &[f32], c: &[f32]) -> f64 {
    let [m, n, k] = case.shape;
    let at = |of: &[f32], [height, width]: [usize; 2], row, column, is_transposed| {
        f64::from(if is_transposed { of[column * height + row] } else { of[row * width + column] })
    };
    let mut random = fastrand::Rng::with_seed(7);
    const SAMPLES: usize = 500;
    let squares = (0..SAMPLES).map(|_| {
        let (row, column) = (random.usize(..m), random.usize(..n));
        let of_a = |l| at(a, [m, k], row, l, case.are_transposed[0]);
        let of_b = |l| at(b, [k, n], l, column, case.are_transposed[1]);
        let exact: f64 = (0..k).map(|l| of_a(l) * of_b(l)).sum();
        (f64::from(c[row * n + column]) - exact).powi(2)
    });
    (squares.sum::<f64>() / SAMPLES as f64).sqrt()
}

/// Benchmarks grouped GEMM in `bf16`, vs one cuBLASLt GEMM per group. Group sizes are between zero and twice the
/// average.
fn compare_grouped(stream: &Stream, case: &Case) -> Result<()> {
    let ([average, n, k], count) = (case.shape, case.batches);
    let mut random = fastrand::Rng::with_seed(4);
    let mut offsets = vec![0];
    for _ in 0..count {
        offsets.push(offsets[offsets.len() - 1] + random.usize(..=2 * average));
    }
    let m = offsets[count];
    let a = DeviceBuffer::from_host(stream, &normals::<bf16>(1, m * k))?;
    let b = DeviceBuffer::from_host(stream, &normals::<bf16>(2, count * n * k))?;
    let on_device: Vec<u32> = offsets.iter().map(|offset| *offset as u32).collect();
    let on_device = DeviceBuffer::from_host(stream, &on_device)?;
    let mut ours = DeviceBuffer::<bf16>::zeros(stream, m * n)?;
    let mut theirs = DeviceBuffer::<bf16>::zeros(stream, m * n)?;
    let a_view = a.as_2d(m, k)?;
    let b_view = Matrix::from(b.as_3d(count, n, k)?).transposed();
    {
        let mut c_view = ours.as_2d_mut(m, n)?;
        let mut groups = Vec::new();
        let mut rest = theirs.as_mut_slice();
        for (i, rows) in offsets.windows(2).enumerate().filter(|(_, rows)| rows[0] < rows[1]) {
            let height = rows[1] - rows[0];
            let (c, after) = rest.split_at_mut(height * n);
            rest = after;
            groups.push((
                blas::Matrix::with_layout(a.slice(rows[0] * k..rows[1] * k), Layout::new(height, k))?,
                blas::Matrix::with_layout(
                    b.slice(i * n * k..(i + 1) * n * k),
                    Layout::new(n, k).transposed(),
                )?,
                blas::MatrixMut::with_layout(c, Layout::new(height, n))?,
            ));
        }
        let epilogue = Epilogue::default();
        let mut calls: [(&str, Call<'_>); 2] = [
            (
                "warpsmith",
                Box::new(|| {
                    let offsets = on_device.as_slice();
                    warpsmith_tensor::matmul_grouped(stream, &epilogue, a_view, offsets, b_view, &mut c_view)
                }),
            ),
            (
                "cuBLASLt",
                Box::new(|| {
                    groups.iter_mut().try_for_each(|(a, b, c)| {
                        blas::matmul(stream, &Matmul::default(), *a, *b, c.reborrow())
                    })
                }),
            ),
        ];
        let bytes = 2 * (m * k + count * n * k);
        // The FLOP count uses the actual number of rows, not the mean.
        let case = Case {
            shape: [m, n, k],
            batches: 1,
            name: case.name.clone(),
            element: case.element.clone(),
            ..*case
        };
        measure(stream, &case, [bytes, bytes], &mut calls)?;
    }
    let (ours, theirs) = (ours.to_host()?, theirs.to_host()?);
    let differences = ours.iter().zip(&theirs).map(|(x, y)| (x.to_f32() - y.to_f32()).abs());
    println!("{} largest difference of the results: {}", case.name, differences.fold(0.0, f32::max));
    Ok(())
}

/// Benchmarks `bf16` with int4 weights (W4A16), vs a `bf16` GEMM of the same shape.
fn compare_4bit(stream: &Stream, case: &Case) -> Result<()> {
    let [m, n, k] = case.shape;
    let mut random = fastrand::Rng::with_seed(3);
    let codes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(n * k / 2).collect();
    let codes = DeviceBuffer::from_host(stream, &codes)?;
    let scales = DeviceBuffer::from_host(stream, &vec![bf16::from_f32(0.125); n * k / 128])?;
    let weights = Int4Weights { codes: codes.as_slice(), scales: scales.as_slice(), zeros: None };
    let a = DeviceBuffer::from_host(stream, &normals::<bf16>(1, m * k))?;
    let b = DeviceBuffer::from_host(stream, &normals::<bf16>(2, n * k))?;
    let mut ours = DeviceBuffer::<bf16>::zeros(stream, m * n)?;
    let mut theirs = DeviceBuffer::<bf16>::zeros(stream, m * n)?;
    let a_view = a.as_2d(m, k)?;
    let mut c_view = ours.as_2d_mut(m, n)?;
    let a_matrix = blas::Matrix::with_layout(&a, Layout::new(m, k))?;
    let b_matrix = blas::Matrix::with_layout(&b, Layout::new(n, k).transposed())?;
    let mut c_matrix = blas::MatrixMut::with_layout(&mut theirs, Layout::new(m, n))?;
    let epilogue = Epilogue::default();
    let mut calls: [(&str, Call<'_>); 2] = [
        (
            "warpsmith",
            Box::new(|| warpsmith_tensor::matmul_4bit(stream, &epilogue, a_view, &weights, &mut c_view)),
        ),
        ("cuBLASLt", Box::new(|| bf16::theirs(stream, case, None, a_matrix, b_matrix, c_matrix.reborrow()))),
    ];
    let of_a = 2 * m * k;
    measure(stream, case, [of_a + n * k / 2 + n * k / 64, of_a + 2 * n * k], &mut calls)
}

/// Parameters of [`mma_rate()`].
type RateParams = (param::Slice<u32>, param::SliceMut<f32>, param::Value<u32>);

/// Returns the rate of `mma.sync` on normally distributed numbers in registers, measured by the kernel `K`.
fn mma_tflops<K: Kernel<Params = RateParams>, T: TestNumber>(stream: &Stream) -> Result<f64> {
    let device = stream.device();
    let (blocks, rounds, count) =
        if device.is_emulated() { (1, 1, 1) } else { (device.properties().multiprocessors, 20_000u32, 20) };
    let numbers = normals::<T>(4, 32 * RATE_THREADS as usize * 4 / size_of::<T>());
    // SAFETY: numbers consist of bytes.
    let bytes = unsafe { numbers.align_to::<u8>().1 };
    let words: Vec<u32> = bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    let words = DeviceBuffer::from_host(stream, &words)?;
    let mut out = DeviceBuffer::<f32>::zeros(stream, (blocks * RATE_THREADS) as usize)?;
    let kernel = device.load(&test_kernels::IMAGE)?.kernel::<K>()?;
    let launch = Launch::grid_block(blocks, RATE_THREADS);
    // SAFETY: the kernel gets the words that it requires.
    let call = || unsafe { kernel.launch_unsafe(stream, launch, (&words, &mut out, rounds)) };
    let us = time(stream, &mut (Box::new(call) as Call<'_>), count)?;
    Ok(f64::from(blocks) * f64::from(rounds) * RATE_BYTES / size_of::<T>() as f64 / us / 1e6)
}

/// Reinterprets the bytes as another type.
fn bytemuck_cast<T: DeviceCopy, U: DeviceCopy>(numbers: &[T]) -> &[U] {
    assert_eq!((size_of::<T>(), align_of::<T>()), (size_of::<U>(), align_of::<U>()));
    // SAFETY: all bit patterns are valid values of both types, which have the same size and alignment.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len()) }
}

/// Times a schedule if it is valid for the GEMM.
fn sweep(stream: &Stream, name: &str, schedule: Schedule, call: &mut Call<'_>) -> Result<()> {
    let Schedule { tile: [height, width], cluster, split_k } = schedule;
    if call().is_err() {
        return Ok(());
    }
    let count = if stream.device().is_emulated() { 1 } else { 50 };
    let mut times = (0..5).map(|_| time(stream, call, count)).collect::<Result<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    println!("{name} {height} x {width}, clusters of {cluster}, split_k {split_k}: {:9.1} us", times[2]);
    Ok(())
}

/// Returns the microseconds per call for `count` calls that are enqueued together.
fn time(stream: &Stream, call: &mut Call<'_>, count: usize) -> Result<f64> {
    let start = stream.record_timed_event()?;
    (0..count).try_for_each(|_| call())?;
    let end = stream.record_timed_event()?;
    stream.synchronize()?;
    Ok(end.elapsed_us(&start)? / count as f64)
}

/// Times both calls; `bytes` is the number of bytes that each of them reads.
fn measure(stream: &Stream, case: &Case, bytes: [usize; 2], calls: &mut [(&str, Call<'_>); 2]) -> Result<()> {
    let time = |call: &mut Call<'_>, count: usize| time(stream, call, count);
    let mut once = 1.0f64;
    for (_, call) in calls.iter_mut() {
        time(call, 2)?;
        once = once.max(time(call, 2)?);
    }
    let is_emulated = stream.device().is_emulated();
    let seconds =
        std::env::var("WARPSMITH_BENCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6.0);
    let settle_us = if is_emulated { 0.0 } else { seconds * 0.5e6 };
    let round_us = settle_us / ROUNDS as f64 / 2.0;
    let count = ((round_us / once) as usize).clamp(1, 2000);
    let mut settled = 0.0;
    while settled < settle_us {
        for (_, call) in calls.iter_mut() {
            settled += time(call, count)? * count as f64;
        }
    }
    let mut times = [Vec::new(), Vec::new()];
    let mut power = [Vec::new(), Vec::new()];
    let mut clocks = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        // Each call goes first equally often.
        for which in [round % 2, 1 - round % 2] {
            times[which].push(time(&mut calls[which].1, count)?);
            let now = stream.device().telemetry()?;
            power[which].extend(now.power_w);
            clocks[which].extend(now.sm_clock_mhz.map(f64::from));
        }
    }
    let flops = 2.0 * (case.batches * case.shape.iter().product::<usize>()) as f64;
    let name = &case.name;
    let [ours, theirs] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        (median(times.clone()), times[0])
    });
    for (((whose, _), bytes), ((median_us, best), (power, clocks))) in
        calls.iter().zip(bytes).zip([ours, theirs].into_iter().zip(power.into_iter().zip(clocks)))
    {
        println!(
            "{name} {whose:9} {median_us:9.1} us {:7.1} TFLOP/s, best {:7.1}, reads {:.0} GB/s, {} W, {} MHz",
            flops / median_us / 1e6,
            flops / best / 1e6,
            bytes as f64 / median_us / 1e3,
            median(power).round(),
            median(clocks).round(),
        );
    }
    println!("{name} ratio to cuBLASLt {:.3} ({ROUNDS} rounds of {count}, interleaved)", theirs.0 / ours.0);
    Ok(())
}

/// Returns the median of the values; NaN if there are none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
