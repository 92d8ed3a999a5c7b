//! Benchmark of skinny GEMM with 16-bit and quantized weights, whose time is the time to read the weights.
//!
//! Each figure is the time per call in a graph of several calls, whose weights differ, so that no call finds its
//! weights in the L2 cache. The read probe reads the same number of bytes. Both alternate, and each figure is the
//! median of the rounds.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device; the emulated device runs only small shapes. Arguments are cases of the
//! form `TYPE:ROWSxKxN`, such as `w4g32:8x4096x28672`. The types are `bf16`, and `w4` (int4), `w8` (int8) or `f8` (FP8)
//! with the group size, such as `w4g128` and `f8g32`, or `f4` (FP4) with `g32` (MXFP4) or `g16` (NVFP4), such as
//! `f4g16`. `:swiglu` and `:add` at the end apply SwiGLU or add to `c`. `WARPSMITH_BENCH_SECONDS` is the time per case,
//! 1 by default.

mod graphs;

use half::bf16;
use warpsmith_runtime::{Device, DeviceBuffer, Graph, Result, Stream};
use warpsmith_tensor::{
    Activation, Epilogue, Fp8Weights, Int4Weights, Int8Weights, Matrix, Mxfp4Weights, Nvfp4Weights,
    matmul_4bit, matmul_8bit, matmul_fused,
};

use self::graphs::{calls, medians, normals, probe};

/// Layers of Llama 3 8B: k and n.
const SHAPES: [[usize; 2]; 5] = [[4096, 6144], [4096, 4096], [4096, 28672], [14336, 4096], [4096, 128_256]];

fn main() -> Result<()> {
    let name = std::env::var("WARPSMITH_BENCH_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = Device::open(&name)?;
    let stream = Stream::new(&device)?;
    println!("{}", device.name());
    // The arguments of cargo itself, such as `--bench`, are not cases.
    let mut cases: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if device.is_emulated() {
        cases = [
            "bf16:1x128x96:swiglu",
            "w4g128:2x128x96",
            "w4g32:1x128x96",
            "w8g32:9x128x96:add",
            "f8g128:33x128x96",
            "f4g32:1x128x96",
            "f4g16:33x128x96",
        ]
        .map(String::from)
        .to_vec();
    } else if cases.is_empty() {
        for element in ["bf16", "w8g32", "w8g128", "f8g128", "w4g128", "w4g32", "f4g32", "f4g16"] {
            for m in [1, 8] {
                cases.extend(SHAPES.map(|[k, n]| format!("{element}:{m}x{k}x{n}")));
            }
        }
    }
    for text in &cases {
        match Case::of(text) {
            Some(case) => measure(&stream, &case)?,
            None => println!("{text}: no case, such as bf16:1x4096x4096 or w4g128:8x4096x28672:swiglu"),
        }
    }
    Ok(())
}

/// Problem of one case.
struct Case<'a> {
    name: &'a str,
    /// Number of bits of the weights, and number of weights per scale.
    bits: usize,
    is_float: bool,
    group: usize,
    /// m, k and n.
    shape: [usize; 3],
    activation: Activation,
    accumulate: bool,
}

impl<'a> Case<'a> {
    /// Parses a case. Returns `None` if the text is not a case.
    fn of(name: &'a str) -> Option<Self> {
        let mut parts = name.split(':');
        let element = parts.next()?;
        let is_float = element.starts_with('f');
        let (bits, group) = match element.strip_prefix(['w', 'f']) {
            Some(text) => text.split_once('g')?,
            None => ("16", "1"),
        };
        let shape: Vec<usize> =
            parts.next()?.split('x').map(|text| text.parse().ok()).collect::<Option<_>>()?;
        let end = parts.next();
        Some(Self {
            name,
            is_float,
            bits: bits.parse().ok().filter(|bits| [4, 8, 16].contains(bits))?,
            group: group.parse().ok()?,
            shape: shape.try_into().ok()?,
            activation: if end == Some("swiglu") { Activation::SwiGlu } else { Activation::None },
            accumulate: end == Some("add"),
        })
    }
}

fn measure(stream: &Stream, case: &Case<'_>) -> Result<()> {
    let Case { bits, is_float, group, shape: [m, k, n], activation, accumulate, .. } = *case;
    let of_call = n * k * bits / 8;
    let scale_bytes = if bits == 4 && is_float { 1 } else { 2 };
    let scales_of_call = if bits == 16 { 0 } else { n * k / group * scale_bytes };
    let calls = calls(stream, of_call + scales_of_call);
    let weights = normals(stream, calls * of_call / 2)?;
    let scales = DeviceBuffer::from_host(stream, &vec![bf16::from_f32(0.125); calls * scales_of_call / 2])?
        .cast::<u8>()?;
    let a = normals(stream, m * k)?;
    let columns = if activation == Activation::SwiGlu { n / 2 } else { n };
    let mut c = DeviceBuffer::<bf16>::zeros(stream, m * columns)?;
    let epilogue = Epilogue { activation, accumulate, ..Epilogue::default() };
    let mut multiply = |call: usize| {
        let part = weights.slice(call * of_call / 2..(call + 1) * of_call / 2);
        let scales = scales.slice(call * scales_of_call..(call + 1) * scales_of_call);
        let (a, c) = (a.as_2d(m, k)?, c.as_2d_mut(m, columns)?);
        match bits {
            4 if is_float && group == 32 => {
                matmul_4bit(stream, &epilogue, a, &Mxfp4Weights { codes: part.cast()?, scales }, c)
            }
            4 if is_float => {
                let (codes, scales) = (part.cast()?, scales.cast()?);
                matmul_4bit(stream, &epilogue, a, &Nvfp4Weights { codes, scales, tensor_scale: 1.0 }, c)
            }
            4 => {
                let scales = scales.cast()?;
                let weights = Int4Weights { codes: part.cast()?, scales, zeros: None };
                matmul_4bit(stream, &epilogue, a, &weights, c)
            }
            8 if is_float => matmul_8bit(
                stream,
                &epilogue,
                a,
                &Fp8Weights { numbers: part.cast()?, scales: scales.cast()? },
                c,
            ),
            8 => matmul_8bit(
                stream,
                &epilogue,
                a,
                &Int8Weights { codes: part.cast()?, scales: scales.cast()? },
                c,
            ),
            _ => matmul_fused(stream, &epilogue, a, Matrix::from(part.as_2d(n, k)?).transposed(), c),
        }
    };
    // The first call loads the kernel.
    multiply(0)?;
    let ours = Graph::capture(stream, || (0..calls).try_for_each(&mut multiply))?.instantiate()?;
    // The probe reads as many bytes as the weights and the scales have, within the weights of all calls.
    let read = of_call + scales_of_call;
    let all = calls * of_call / read;
    let (probe, _found) = probe(stream, all.max(1), |call| {
        let first = call * read / 2;
        weights.slice(first..(first + read / 2).min(weights.len())).cast()
    })?;
    let times = medians(stream, [(calls, &ours), (all.max(1), &probe)])?;
    let [ours_us, probe_us] = times;
    println!(
        "{}: {ours_us:9.2} us {:7.1} GB/s, read probe {probe_us:9.2} us {:7.1} GB/s, ratio {:.3}",
        case.name,
        read as f64 / ours_us / 1e3,
        read as f64 / probe_us / 1e3,
        probe_us / ours_us
    );
    Ok(())
}
