//! GELU of every 16-bit float compared with float64: the error, apart from the rounding of the result, is at most a
//! sixteenth of a unit.

use half::{bf16, f16};
use warpsmith::ops;
use warpsmith::prelude::*;

use crate::common::{TestNumber, for_types, stream};

/// Distance of a 16-bit float from the next one away from 0.
fn spacing<T: TestNumber>(value: T) -> f64 {
    let next: T = bytemuck::pod_read_unaligned(&((value.bits() & 0x7FFF) as u16 + 1).to_le_bytes());
    let this: T = bytemuck::pod_read_unaligned(&((value.bits() & 0x7FFF) as u16).to_le_bytes());
    next.to_f64() - this.to_f64()
}

fn all_of<T: TestNumber + ops::Float>() {
    let stream = stream();
    let all: Vec<T> = (0..=u16::MAX).map(|bits| bytemuck::pod_read_unaligned(&bits.to_le_bytes())).collect();
    let x = DeviceBuffer::from_host(&stream, &all).unwrap();
    let mut out = DeviceBuffer::uninit(&stream, all.len()).unwrap();
    ops::gelu(&stream, &x, &mut out).unwrap();
    for (x, found) in all.iter().zip(out.to_host().unwrap()) {
        let (value, found_value) = (x.to_f64(), found.to_f64());
        // Replaces arguments far below the relevant range, including -∞.
        let value_or_smallest = value.max(-1e3);
        let exact =
            0.5 * value_or_smallest * libm::erfc(-value_or_smallest * std::f64::consts::FRAC_1_SQRT_2);
        let exact = if value.is_nan() { value } else { exact };
        if exact.is_nan() || exact.is_infinite() {
            let same = exact.is_nan() && found_value.is_nan() || exact == found_value;
            assert!(same, "gelu({value}) is {found_value}, not {exact}");
            continue;
        }
        // Subnormal f32 results lose some of their bits.
        let bound = spacing(found) * (0.5 + 1.0 / 16.0) + 1e-41;
        let error = (found_value - exact).abs();
        assert!(
            error <= bound,
            "gelu({value:e}) is {found_value:e}, not {exact:e}: off by {error:e} of {bound:e}"
        );
    }
}

#[test]
fn every_16_bit_float_is_nearly_rounded() {
    for_types!(all_of: f16, bf16);
}
