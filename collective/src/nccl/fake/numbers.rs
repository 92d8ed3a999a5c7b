//! Elements of NCCL's types as numbers.

use std::ffi::c_int;

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

/// The bytes of an element of NCCL's type.
pub(super) fn element_bytes(data_type: c_int) -> usize {
    match data_type {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        2 | 3 | 7 => 4,
        _ => 8,
    }
}

/// The elements as numbers.
pub(super) fn decode(data_type: c_int, bytes: &[u8]) -> Vec<f64> {
    macro_rules! of {
        ($type:ty) => {
            bytes.chunks_exact(size_of::<$type>()).map(bytemuck::pod_read_unaligned::<$type>)
        };
    }
    match data_type {
        0 => of!(i8).map(f64::from).collect(),
        1 => of!(u8).map(f64::from).collect(),
        2 => of!(i32).map(f64::from).collect(),
        3 => of!(u32).map(f64::from).collect(),
        4 => of!(i64).map(|x| x as f64).collect(),
        5 => of!(u64).map(|x| x as f64).collect(),
        6 => of!(f16).map(f64::from).collect(),
        7 => of!(f32).map(f64::from).collect(),
        8 => of!(f64).collect(),
        10 => of!(F8E4M3).map(|x| x.to_f64()).collect(),
        11 => of!(F8E5M2).map(|x| x.to_f64()).collect(),
        _ => of!(bf16).map(f64::from).collect(),
    }
}

/// The numbers as elements.
pub(super) fn encode(data_type: c_int, values: &[f64]) -> Vec<u8> {
    macro_rules! of {
        ($convert:expr) => {
            values.iter().flat_map(|x| bytemuck::bytes_of(&$convert(*x)).to_vec()).collect()
        };
    }
    match data_type {
        0 => of!(|x| x as i8),
        1 => of!(|x| x as u8),
        2 => of!(|x| x as i32),
        3 => of!(|x| x as u32),
        4 => of!(|x| x as i64),
        5 => of!(|x| x as u64),
        6 => of!(f16::from_f64),
        7 => of!(|x| x as f32),
        8 => of!(|x: f64| x),
        10 => of!(F8E4M3::from_f64),
        11 => of!(F8E5M2::from_f64),
        _ => of!(bf16::from_f64),
    }
}

/// What all ranks' elements become.
pub(super) fn reduced(
    data_type: c_int,
    operator: c_int,
    contributions: impl ExactSizeIterator<Item = Vec<u8>>,
) -> Vec<u8> {
    let world = contributions.len() as f64;
    let all = contributions.map(|bytes| decode(data_type, &bytes));
    let reduced = all.reduce(|x, y| {
        let both = x.into_iter().zip(y);
        match operator {
            1 => both.map(|(x, y)| x * y).collect(),
            2 => both.map(|(x, y)| x.max(y)).collect(),
            3 => both.map(|(x, y)| x.min(y)).collect(),
            _ => both.map(|(x, y)| x + y).collect(),
        }
    });
    let mut reduced = reduced.unwrap_or_default();
    if operator == 4 {
        reduced.iter_mut().for_each(|x| *x /= world);
    }
    encode(data_type, &reduced)
}
