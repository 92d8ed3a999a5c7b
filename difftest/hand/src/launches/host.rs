//! Launches of these kernels, and their expected output.

use difftest_runner::{Case, DeviceBuffer, Error, Launch, Session, SharedLen, data};
use difftest_support::*;

use super::*;

/// Creates a buffer of words that a kernel must overwrite.
fn out(session: &Session, len: usize) -> Result<DeviceBuffer<u64>, Error> {
    DeviceBuffer::from_host(session.stream(), &vec![0xBAD; len])
}

fn words<T: Copy>(values: &[T], f: impl Fn(T) -> u64) -> Vec<u64> {
    values.iter().map(|value| f(*value)).collect()
}

fn barriers_model(order: u32) -> Vec<u64> {
    let data = data();
    let mut all = Vec::new();
    for block in 0..3 {
        let mut values: Vec<u64> = data[block * 70..(block + 1) * 70].to_vec();
        for k in 0..4 {
            let results = match ((order >> (2 * k)) & 3) % 3 {
                0 => collective::model::exchange(&values, 5),
                1 => {
                    let odd = values.iter().filter(|value| **value & 1 == 1).count() as u64;
                    collective::model::block_reduce(&values, 3).into_iter().map(|x| x ^ odd).collect()
                }
                _ => collective::model::exchange(&values, order),
            };
            values.iter_mut().zip(results).for_each(|(value, result)| *value = mix(*value, result));
        }
        all.extend(values);
    }
    all
}

fn large_stack_model(thread: usize) -> u64 {
    let mut list = vec![0u64; 5000];
    let mut at = thread;
    for (i, x) in data().iter().enumerate() {
        at = (at * 31 + *x as usize % 977) % 5000;
        list[at] = mix(list[at], *x ^ i as u64);
    }
    list.iter().step_by(7).fold(0, |h, x| mix(h, *x))
}

fn window_model(reach: usize) -> Vec<u64> {
    let data = data();
    let at = |i: usize| i.checked_sub(reach).and_then(|i| data.get(i)).copied().unwrap_or(1);
    (0..210).map(|t| (t..=t + 2 * reach).fold(0, |sum, i| mix(sum, at(i)))).collect()
}

fn run_windows(session: &Session, reach: usize) -> Result<Vec<u64>, Error> {
    let mut result = out(session, 210)?;
    let arguments = (reach as u32, session.data(), SharedLen(70 + 2 * reach), &mut result);
    session.by_hand()?.kernel::<window_sums>()?.launch(
        session.stream(),
        Launch::grid_block(3, 70),
        arguments,
    )?;
    result.to_host()
}

fn run_barriers(session: &Session, order: u32) -> Result<Vec<u64>, Error> {
    let mut result = out(session, 210)?;
    let kernel = session.by_hand()?.kernel::<barriers_behind_dyn>()?;
    kernel.launch(session.stream(), Launch::grid_block(3, 70), (order, session.data(), &mut result))?;
    result.to_host()
}

fn running_model() -> Vec<u64> {
    let data = data();
    let running = |block: &[u64]| {
        block
            .iter()
            .scan(0u64, |sum, x| {
                *sum = sum.wrapping_add(*x);
                Some(*sum)
            })
            .collect::<Vec<_>>()
    };
    data[..288].chunks(96).flat_map(running).collect()
}

fn run_running(session: &Session) -> Result<Vec<u64>, Error> {
    let mut result = out(session, 288)?;
    let kernel = session.by_hand()?.kernel::<running_sums>()?;
    kernel.launch(
        session.stream(),
        Launch::grid_block(3, 96),
        (session.data(), SharedLen(96), &mut result),
    )?;
    result.to_host()
}

/// Width and height of the transposed image.
const SIDES: [usize; 2] = [40, 12];

fn transpose_model() -> Vec<u64> {
    let ([width, height], data) = (SIDES, data());
    (0..width * height).map(|i| data[i % height * width + i / height]).collect()
}

fn run_transpose(session: &Session) -> Result<Vec<u64>, Error> {
    let [width, height] = SIDES;
    let image = DeviceBuffer::from_host(session.stream(), &data()[..width * height])?;
    let mut result = out(session, width * height)?;
    let arguments = (image.as_2d(height, width)?, result.as_2d_mut(width, height)?);
    let launch = Launch::cover((width, height)).tile((32, 32));
    session.by_hand()?.kernel::<transpose>()?.launch(session.stream(), launch, arguments)?;
    result.to_host()
}

fn product_model() -> Vec<u64> {
    let data = data();
    let (a, b) = (&data[..19 * 21], &data[..21 * 17]);
    let element = |row: usize, column: usize| {
        (0..21).fold(0u64, |sum, k| sum.wrapping_add(a[row * 21 + k].wrapping_mul(b[k * 17 + column])))
    };
    (0..19 * 17).map(|i| element(i / 17, i % 17)).collect()
}

fn run_product(session: &Session) -> Result<Vec<u64>, Error> {
    let a = DeviceBuffer::from_host(session.stream(), &data()[..19 * 21])?;
    let b = DeviceBuffer::from_host(session.stream(), &data()[..21 * 17])?;
    let mut result = out(session, 19 * 17)?;
    let arguments = (a.as_2d(19, 21)?, b.as_2d(21, 17)?, result.as_2d_mut(19, 17)?);
    session.by_hand()?.kernel::<product>()?.launch(session.stream(), Launch::cover((17, 19)), arguments)?;
    result.to_host()
}

fn count_model() -> Vec<u64> {
    let mut counts = vec![0; 16];
    data().iter().for_each(|x| counts[*x as usize % 16] += 1);
    counts
}

fn run_count(session: &Session) -> Result<Vec<u64>, Error> {
    let mut totals = DeviceBuffer::<u64>::zeros(session.stream(), 16)?;
    let kernel = session.by_hand()?.kernel::<count>()?;
    kernel.launch(session.stream(), Launch::grid_block(5, 70), (session.data(), &mut totals))?;
    totals.to_host()
}

fn parameters_model() -> Vec<u64> {
    let data = data();
    (0..64)
        .map(|t| {
            let first =
                [3, 65_000, 4_000_000_000, u64::MAX - 5, -3i8 as u64, -300i16 as u64, -70_000i32 as u64];
            let second = [
                i64::MIN as u64,
                1,
                bits32(0.1),
                bits64(-0.0),
                'ß' as u64,
                1,
                2,
                255,
                9,
                8,
                7,
                6,
                65_535,
                10,
                11,
            ];
            let wide = [
                5,
                1 << 63,
                -9i128 as u64,
                u64::MAX,
                bits16(f16::from_f32(1.5)),
                bitsb16(bf16::from_f32(-2.0)),
            ];
            let last = [1, 2, 3, 4, -5isize as u64];
            let s = first.iter().chain(&second).chain(&wide).chain(&last).fold(t as u64, |s, x| mix(s, *x));
            mix(mix(s, data[t] ^ data[3]), 512)
        })
        .collect()
}

fn run_parameters(session: &Session) -> Result<Vec<u64>, Error> {
    let mut result = out(session, 64)?;
    let first = (3u8, 65_000u16, 4_000_000_000u32, u64::MAX - 5, -3i8, -300i16, -70_000i32, i64::MIN, true);
    let (a, b, c, d, e, f, g, h, i) = first;
    let (o, p) = (1u128 << 127 | 5, -9i128);
    let (q, r) = (f16::from_f32(1.5), bf16::from_f32(-2.0));
    let data = session.data();
    let arguments = (
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
        i,
        0.1f32,
        -0.0f64,
        'ß',
        [1u8, 2, 255],
        [9u16, 8, 7, 6, 65_535],
        o,
        p,
        q,
        r,
        data,
        data,
        1u8,
        2u64,
        3u8,
        [10u64, 11],
        4usize,
        -5isize,
        Some(data),
        &mut result,
    );
    session.by_hand()?.kernel::<many_parameters>()?.launch(
        session.stream(),
        Launch::grid_block(2, 32),
        arguments,
    )?;
    result.to_host()
}

fn run_large_value(session: &Session) -> Result<Vec<u64>, Error> {
    let mut result = out(session, 192)?;
    let kernel = session.by_hand()?.kernel::<large_value>()?;
    kernel.launch(session.stream(), Launch::grid_block(3, 64), (Large::new(), &mut result))?;
    result.to_host()
}

fn per_block_model() -> Vec<u64> {
    let all = |block: &[u64]| {
        let sum = block.iter().fold(0u64, |sum, x| sum.wrapping_add(*x));
        [sum, block.iter().copied().max().unwrap_or(0), block.len() as u64]
    };
    data()[..350].chunks(70).flat_map(all).collect()
}

fn run_per_block(session: &Session) -> Result<Vec<u64>, Error> {
    let mut result = DeviceBuffer::from_host(session.stream(), &[[0xBADu64; 3]; 5])?;
    let kernel = session.by_hand()?.kernel::<per_block>()?;
    kernel.launch(session.stream(), Launch::grid_block(5, 70), (session.data(), &mut result))?;
    Ok(result.to_host()?.into_iter().flatten().collect())
}

fn planes_model() -> Vec<u64> {
    (0..5 * 7 * 9).map(|i| mix(mix(i / 63, i / 9 % 7), i % 9)).collect()
}

fn run_planes(session: &Session) -> Result<Vec<u64>, Error> {
    let mut result = out(session, 5 * 7 * 9)?;
    let launch = Launch::grid_block((3, 2, 3), (4, 4, 2));
    session.by_hand()?.kernel::<planes>()?.launch(session.stream(), launch, (result.as_3d_mut(5, 7, 9)?,))?;
    result.to_host()
}

fn early_model() -> Vec<u64> {
    let value = |t: u64| (0..5).fold(0, |sum, round| mix(sum, mix((t + 1) % 77, round)));
    (0..256).map(|t| if t < 77 { value(t) } else { 0xBAD }).collect()
}

fn run_early(session: &Session) -> Result<Vec<u64>, Error> {
    let mut result = out(session, 256)?;
    let kernel = session.by_hand()?.kernel::<early_return>()?;
    kernel.launch(session.stream(), Launch::grid_block(1, 256), (77u32, &mut result))?;
    result.to_host()
}

fn run_large_stack(session: &Session) -> Result<Vec<u64>, Error> {
    let mut result = out(session, 64)?;
    let kernel = session.by_hand()?.kernel::<large_stack>()?;
    kernel.launch(session.stream(), Launch::grid_block(2, 32), (session.data(), &mut result))?;
    result.to_host()
}

fn rounds_model() -> Vec<u64> {
    let mut values: Vec<u64> = (0..256).collect();
    for round in 0..6 {
        values = (0..256).map(|own| mix(values[(own + 64) % 256], round)).collect();
    }
    values
}

fn run_rounds(session: &Session) -> Result<Vec<u64>, Error> {
    let (mut values, mut result) = (out(session, 256)?, out(session, 256)?);
    let kernel = session.by_hand()?.kernel::<grid_rounds>()?;
    kernel.launch(session.stream(), Launch::grid_block(4, 64), (6u32, &mut values, &mut result))?;
    result.to_host()
}

fn run_locked(session: &Session) -> Result<Vec<u64>, Error> {
    let mut state = DeviceBuffer::<u64>::zeros(session.stream(), 2)?;
    let kernel = session.by_hand()?.kernel::<locked_counter>()?;
    kernel.launch(session.stream(), Launch::grid_block(20, 32), (50u32, &mut state))?;
    state.to_host()
}

fn extremes_model() -> Vec<u64> {
    let data = data();
    let (min, max) = (|x: &u64| *x as i64, |x: &u64| *x as i64);
    let sum: u64 = data.iter().map(|x| x & 15).sum();
    vec![
        data.iter().map(min).min().unwrap_or(0) as u64,
        data.iter().map(max).max().unwrap_or(0) as u64,
        data.iter().map(|x| *x as i32).min().unwrap_or(0) as u64,
        data.iter().map(|x| (x >> 32) as i32).max().unwrap_or(0) as u64,
        bits32(data.iter().map(|x| *x as i32).max().unwrap_or(0) as f32),
        bits32(data.iter().map(|x| *x as i16).min().unwrap_or(0) as f32),
        bits32(sum as f32),
    ]
}

fn run_extremes(session: &Session) -> Result<Vec<u64>, Error> {
    let stream = session.stream();
    let mut ints = DeviceBuffer::from_host(stream, &[i64::MAX, i64::MIN])?;
    let mut narrow = DeviceBuffer::from_host(stream, &[i32::MAX, i32::MIN])?;
    let mut floats = DeviceBuffer::from_host(stream, &[f32::NEG_INFINITY, f32::INFINITY, 0.0])?;
    let kernel = session.by_hand()?.kernel::<extremes>()?;
    kernel.launch(
        stream,
        Launch::grid_block(3, 70),
        (session.data(), &mut ints, &mut narrow, &mut floats),
    )?;
    let mut all = words(&ints.to_host()?, |x| x as u64);
    all.extend(words(&narrow.to_host()?, |x| x as u64));
    all.extend(words(&floats.to_host()?, bits32));
    Ok(all)
}

fn striped_model() -> Vec<u64> {
    let data = data();
    let element = |i: usize| {
        let (tile, k, lane) = (i / 280, i % 280 / 70, i % 70);
        mix((tile * 70 + lane) as u64, k as u64 ^ data[k])
    };
    (0..840).map(element).collect()
}

fn run_striped(session: &Session) -> Result<Vec<u64>, Error> {
    let mut result = out(session, 840)?;
    let kernel = session.by_hand()?.kernel::<striped>()?;
    kernel.launch(session.stream(), Launch::grid_block(3, 70), (session.data(), &mut result))?;
    result.to_host()
}

fn rows_model() -> Vec<u64> {
    let mut rows = data();
    rows.chunks_mut(16).for_each(<[u64]>::sort);
    rows
}

fn run_rows(session: &Session) -> Result<Vec<u64>, Error> {
    let mut rows = DeviceBuffer::from_host(session.stream(), &data())?;
    let kernel = session.by_hand()?.kernel::<sorted_rows>()?;
    kernel.launch(session.stream(), Launch::grid_block(1, 32), (rows.as_2d_mut(32, 16)?,))?;
    rows.to_host()
}

/// Test cases of the kernels.
pub fn cases() -> Vec<Case> {
    macro_rules! case {
        ($name:literal, $expected:expr, $run:expr) => {
            Case::by_hand($name, concat!("difftest/hand/src/launches: ", $name), $expected, $run)
        };
    }
    vec![
        case!("window_sums_0", || window_model(0), |session| run_windows(session, 0)),
        case!("window_sums_13", || window_model(13), |session| run_windows(session, 13)),
        case!("running_sums", running_model, run_running),
        case!("transpose", transpose_model, run_transpose),
        case!("product", product_model, run_product),
        case!("count", count_model, run_count),
        case!("barriers_behind_dyn_1", || barriers_model(0b01_00_10_01), |session| run_barriers(
            session,
            0b01_00_10_01
        )),
        case!("barriers_behind_dyn_2", || barriers_model(0b10_10_00_01), |session| run_barriers(
            session,
            0b10_10_00_01
        )),
        case!("many_parameters", parameters_model, run_parameters),
        case!("large_value", || (0..192).map(|t| Large::new().at(t)).collect(), run_large_value),
        case!("per_block", per_block_model, run_per_block),
        case!("planes", planes_model, run_planes),
        case!("early_return", early_model, run_early),
        case!("large_stack", || (0..64).map(large_stack_model).collect(), run_large_stack),
        case!("grid_rounds", rounds_model, run_rounds),
        case!("locked_counter", || vec![0, 3000], run_locked),
        case!("extremes", extremes_model, run_extremes),
        case!("striped", striped_model, run_striped),
        case!("sorted_rows", rows_model, run_rows),
    ]
}
