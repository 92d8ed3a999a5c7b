//! Elements of NCCL's data types. The tests check only results of type `f32`.

use std::ffi::c_int;

const F32: c_int = 7;

/// Returns the size in bytes of an NCCL data type.
pub(super) fn element_bytes(data_type: c_int) -> usize {
    match data_type {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        2 | 3 | 7 => 4,
        _ => 8,
    }
}

/// Decodes `f32` elements.
fn decode(data_type: c_int, bytes: &[u8]) -> Vec<f32> {
    assert_eq!(data_type, F32, "only f32 is calculated with");
    bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
}

/// Reduces the elements of all ranks. For types other than `f32`, returns the elements of the first rank.
pub(super) fn reduced(
    data_type: c_int,
    operator: c_int,
    mut contributions: impl ExactSizeIterator<Item = Vec<u8>>,
) -> Vec<u8> {
    if data_type != F32 {
        return contributions.next().unwrap_or_default();
    }
    let world = contributions.len() as f32;
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
    bytemuck::cast_slice(&reduced).to_vec()
}
