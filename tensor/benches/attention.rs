//! Attention benchmark, forward and backward, with 16384 tokens in total and 2048 elements per token, as in
//! FlashAttention's benchmark. Sequences have 1024 to 16384 tokens and heads have 128 elements, with and without a
//! causal mask. `benches/peers/attention.py` measures PyTorch and FlashAttention in the same way, and prints the same
//! lines.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device; the emulated device runs only short sequences. Arguments are cases of the
//! form `TYPE:DIM:LENGTH:MASK`, such as `bf16:128:4096:causal` or `f16:64:1000:full`. `:backward` at the end selects
//! the backward pass, and `:mma` the kernels with `mma.sync`. `:mma1` and `:mma2` select one and two stages of the
//! forward kernels, and the small and large tiling of the backward kernels.
//!
//! In the FLOP counts, a causal mask halves the number of operations, and the backward pass counts as five GEMMs,
//! regardless of recomputation. Inputs are normally distributed, because the power draw depends on them. Each figure is
//! the median of the rounds. Each round is timed by events around several calls, after the clock has settled; power and
//! clock are read after each round. `WARPSMITH_BENCH_SECONDS` is the time per case, 3 by default.

use half::{bf16, f16};
use warpsmith_runtime::{Device, DeviceBuffer, Result, Stream};
use warpsmith_tensor::{
    Attended, Attention, Gradients, HeadElement, Heads, HeadsMut, attention, attention_backward,
    attention_backward_mma, attention_mma, attention_with_lse,
};

const ROUNDS: usize = 15;
/// Total number of tokens over all sequences. `WIDTH` is the number of elements of all heads per token.
const TOKENS: usize = 16384;
const WIDTH: usize = 2048;

fn main() -> Result<()> {
    let name = std::env::var("WARPSMITH_BENCH_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = Device::open(&name)?;
    let stream = Stream::new(&device)?;
    println!("{}", device.name());
    // The arguments of cargo itself, such as `--bench`, are not cases.
    let mut cases: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if device.is_emulated() {
        let of = [
            "bf16:64:130:full",
            "f16:128:130:causal",
            "bf16:64:130:causal:mma",
            "bf16:64:130:causal:backward",
            "bf16:64:130:causal:mma:backward",
        ];
        cases = of.map(str::to_owned).to_vec();
    } else if cases.is_empty() {
        let lengths = [1024, 2048, 4096, 8192, 16384];
        let of = |mask: &'static str| lengths.map(|length| format!("bf16:128:{length}:{mask}"));
        let masks = [
            "full",
            "causal",
            "full:mma",
            "causal:mma",
            "full:backward",
            "causal:backward",
            "full:mma:backward",
            "causal:mma:backward",
        ];
        cases = masks.map(of).concat();
    }
    for text in &cases {
        match Case::of(text, device.is_emulated()) {
            Some(case) if case.element == "bf16" => measure(&stream, &case, bf16::from_f32)?,
            Some(case) if case.element == "f16" => measure(&stream, &case, f16::from_f32)?,
            _ => println!("{text}: no case, such as bf16:128:4096:causal or f16:64:1000:full"),
        }
    }
    Ok(())
}

/// Problem of one case.
struct Case {
    name: String,
    element: String,
    dim: usize,
    length: usize,
    heads: usize,
    sequences: usize,
    is_causal: bool,
    is_backward: bool,
    /// For the kernels with `mma.sync`, the number of stages, or `None` for the default.
    mma: Option<Option<usize>>,
}

impl Case {
    /// Parses a case. Returns `None` if the text is not a case.
    fn of(text: &str, is_emulated: bool) -> Option<Self> {
        let (forward, is_backward) =
            text.strip_suffix(":backward").map_or((text, false), |text| (text, true));
        let mma = [(":mma", None), (":mma1", Some(1)), (":mma2", Some(2))];
        let mma = mma.into_iter().find_map(|(end, stages)| Some((forward.strip_suffix(end)?, Some(stages))));
        let (forward, mma) = mma.unwrap_or((forward, None));
        let [element, dim, length, mask] = forward.split(':').collect::<Vec<_>>()[..] else { return None };
        let (dim, length): (usize, usize) = (dim.parse().ok()?, length.parse().ok()?);
        let is_causal = match mask {
            "causal" => true,
            "full" => false,
            _ => return None,
        };
        let heads = if is_emulated { 1 } else { WIDTH.checked_div(dim)?.max(1) };
        let sequences = if is_emulated { 1 } else { TOKENS.checked_div(length)?.max(1) };
        let (name, element) = (text.to_owned(), element.to_owned());
        Some(Self { name, element, dim, length, heads, sequences, is_causal, is_backward, mma })
    }

    fn operations(&self) -> f64 {
        let products = if self.is_backward { 10.0 } else { 4.0 };
        let all = products * (self.sequences * self.heads * self.dim) as f64 * (self.length as f64).powi(2);
        if self.is_causal { all / 2.0 } else { all }
    }
}

/// Returns normally distributed numbers from a table of a million.
fn normals<T: Copy>(seed: u64, len: usize, of: fn(f32) -> T) -> Vec<T> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut pair = || {
        let radius = (-2.0 * (1.0 - random.f32()).ln()).sqrt();
        let angle = random.f32() * std::f32::consts::TAU;
        [radius * angle.cos(), radius * angle.sin()]
    };
    let table: Vec<T> = (0..(1 << 20).min(len.div_ceil(2))).flat_map(|_| pair()).map(of).collect();
    let mut numbers = Vec::with_capacity(len);
    while numbers.len() < len {
        // Reading starts at a random position in the table, so that rows do not repeat.
        let from = random.usize(..table.len());
        let count = (table.len() - from).min(len - numbers.len());
        numbers.extend_from_slice(&table[from..from + count]);
    }
    numbers
}

fn measure<T: HeadElement>(stream: &Stream, case: &Case, of: fn(f32) -> T) -> Result<()> {
    let Case { dim, length, heads, sequences, .. } = *case;
    let tokens = sequences * length;
    let input = |seed| DeviceBuffer::from_host(stream, &normals(seed, tokens * heads * dim, of));
    let (q, k, v) = (input(1)?, input(2)?, input(3)?);
    let mut out = DeviceBuffer::<T>::uninit(stream, tokens * heads * dim)?;
    let options = Attention { is_causal: case.is_causal, ..Attention::default() };
    let view = |buffer| Heads::by_token(DeviceBuffer::as_3d(buffer, tokens, heads, dim)?, sequences);
    fn to<T: HeadElement>(
        buffer: &mut DeviceBuffer<T>,
        [dim, heads, tokens]: [usize; 3],
        sequences: usize,
    ) -> Result<HeadsMut<'_, T>> {
        HeadsMut::by_token(buffer.as_3d_mut(tokens, heads, dim)?, sequences)
    }
    let sides = [dim, heads, tokens];
    if !case.is_backward {
        return report(stream, case, || {
            let (q, k, v, out) = (view(&q)?, view(&k)?, view(&v)?, to(&mut out, sides, sequences)?);
            match case.mma {
                Some(stages) => attention_mma(stream, stages, &options, q, k, v, out, None),
                None => attention(stream, &options, q, k, v, out),
            }
        });
    }
    let mut lse = DeviceBuffer::<f32>::uninit(stream, tokens * heads)?;
    let to_out = to(&mut out, sides, sequences)?;
    let inputs = (view(&q)?, view(&k)?, view(&v)?);
    match case.mma {
        Some(_) => {
            let lse = Some(lse.as_mut_slice());
            attention_mma(stream, None, &options, inputs.0, inputs.1, inputs.2, to_out, lse)?;
        }
        None => {
            let lse = lse.as_mut_slice();
            attention_with_lse(stream, &options, inputs.0, inputs.1, inputs.2, to_out, lse)?;
        }
    }
    let dout = input(4)?;
    let [mut dq, mut dk, mut dv] = [q.clone_on(stream)?, q.clone_on(stream)?, q.clone_on(stream)?];
    report(stream, case, || {
        let (q, k, v, out) = (view(&q)?, view(&k)?, view(&v)?, view(&out)?);
        let attended = Attended { q, k, v, out, lse: lse.as_slice() };
        let gradients = Gradients {
            q: to(&mut dq, sides, sequences)?,
            k: to(&mut dk, sides, sequences)?,
            v: to(&mut dv, sides, sequences)?,
        };
        let dout = view(&dout)?;
        match case.mma {
            Some(stages) => {
                let is_small = stages.map(|stages| stages == 1);
                attention_backward_mma(stream, is_small, &options, attended, dout, gradients)
            }
            None => attention_backward(stream, &options, attended, dout, gradients),
        }
    })
}

/// Times a call and prints its line.
fn report(stream: &Stream, case: &Case, mut call: impl FnMut() -> Result<()>) -> Result<()> {
    let Case { heads, sequences, .. } = *case;
    let mut time = |count: usize| -> Result<f64> {
        let start = stream.record_timed_event()?;
        (0..count).try_for_each(|_| call())?;
        let end = stream.record_timed_event()?;
        stream.synchronize()?;
        Ok(end.elapsed_us(&start)? / count as f64)
    };
    time(2)?;
    let once = time(2)?.max(1.0);
    let is_emulated = stream.device().is_emulated();
    let seconds =
        std::env::var("WARPSMITH_BENCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3.0);
    let settle_us = if is_emulated { 0.0 } else { seconds * 0.5e6 };
    let count = ((settle_us / ROUNDS as f64 / once) as usize).clamp(1, 2000);
    let mut settled = 0.0;
    while settled < settle_us {
        settled += time(count)? * count as f64;
    }
    let (mut times, mut power, mut clocks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..if is_emulated { 1 } else { ROUNDS } {
        times.push(time(count)?);
        let now = stream.device().telemetry()?;
        power.extend(now.power_w);
        clocks.extend(now.sm_clock_mhz.map(f64::from));
    }
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    let median_us = median(times);
    let rate = |us: f64| case.operations() / us / 1e6;
    println!(
        "{} {heads} heads, {sequences} sequences: {median_us:9.1} us {:7.1} TFLOP/s, best {:7.1}, {} W, {} MHz",
        case.name,
        rate(median_us),
        rate(best),
        median(power).round(),
        median(clocks).round(),
    );
    Ok(())
}

/// Returns the median of the values; NaN if there are none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
