//! Tests grouped GEMM with poisoned outputs.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, Stream};
use warpsmith_tensor::{
    Activation, Epilogue, GroupedElement, Matrix, TensorError, matmul_grouped, matmul_grouped_mma,
};

use crate::number::{Stored, TestNumber, random_integers};
use crate::under_test;

/// Returns the row ranges of the groups for these offsets, as the documentation defines them.
fn groups(offsets: &[u32], m: usize) -> Vec<std::ops::Range<usize>> {
    let mut end = (offsets[0] as usize).min(m);
    let group = |offset: &u32| {
        let begin = end;
        end = end.max((*offset as usize).min(m));
        begin..end
    };
    offsets[1..].iter().map(group).collect()
}

/// Tests integers, with a bias per group, into rows with gaps.
fn exact<T>(offsets: &[u32], [m, n, k]: [usize; 3], b_transposed: bool)
where
    T: TestNumber<Output = T> + GroupedElement,
{
    let stream = Stream::new(&under_test::device()).unwrap();
    let count = offsets.len() - 1;
    let a = Stored::<T>::new([m, k], false, random_integers(1, m * k));
    let b: Vec<Stored<T>> =
        (0..count).map(|i| Stored::new([k, n], b_transposed, random_integers(2 + i as u64, n * k))).collect();
    let bias = random_integers::<T>(77, count * n);
    let all: Vec<T> = b.iter().flat_map(|matrix| matrix.elements.iter().copied()).collect();
    let (on_a, on_b) = (a.on(&stream), DeviceBuffer::from_host(&stream, &all).unwrap());
    let on_bias = DeviceBuffer::from_host(&stream, &bias).unwrap();
    let on_offsets = DeviceBuffer::from_host(&stream, offsets).unwrap();
    let pitch = n + 3;
    let b_view = if b_transposed {
        Matrix::from(on_b.as_3d(count, n, k).unwrap()).transposed()
    } else {
        on_b.as_3d(count, k, n).unwrap().into()
    };
    let epilogue = Epilogue {
        scale: 0.5,
        bias: Some(on_bias.as_slice()),
        activation: Activation::Relu,
        ..Epilogue::default()
    };
    let groups = groups(offsets, m);
    let sums: Vec<_> = b.iter().map(|b| a.times(b)).collect();
    let outputs = [false, true].map(|is_mma| {
        let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; m * pitch]).unwrap();
        let (a, offsets) = (a.view(&on_a), on_offsets.as_slice());
        let c_view = c.as_2d_strided_mut(m, n, pitch).unwrap();
        if is_mma {
            matmul_grouped_mma(&stream, &epilogue, a, offsets, b_view, c_view).unwrap();
        } else {
            matmul_grouped(&stream, &epilogue, a, offsets, b_view, c_view).unwrap();
        }
        c.to_host().unwrap()
    });
    for (i, value) in outputs.into_iter().flatten().enumerate() {
        let (is_mma, row, column) = (i >= m * pitch, i / pitch % m, i % pitch);
        let found = T::number_of(value);
        let group = groups.iter().position(|group| group.contains(&row)).filter(|_| column < n);
        let case = format!("{offsets:?}, {m} x {n} x {k}, row {row}, column {column}, mma {is_mma}");
        match group {
            Some(group) => {
                let bias = T::number_of(bias[group * n + column]);
                let expected = (0.5 * sums[group][row * n + column].0 + bias).max(0.0);
                assert_eq!(found, T::rounded(expected), "{case}");
            }
            None => assert!(found.is_nan(), "{case} is in no group and was written"),
        }
    }
}

#[test]
fn groups_of_any_size_are_exact() {
    for b_transposed in [true, false] {
        exact::<bf16>(&[0, 0, 5, 69, 134, 134, 135, 265], [265, 136, 72], b_transposed);
        exact::<f16>(&[0, 130, 200], [200, 264, 136], b_transposed);
        exact::<f16>(&[0, 1], [1, 8, 8], b_transposed);
    }
}

#[test]
fn many_groups_are_exact() {
    let offsets: Vec<u32> = (0..=70).map(|i| i * i % 7 + 3 * i).collect();
    let m = *offsets.last().unwrap() as usize;
    exact::<bf16>(&offsets, [m, 24, 16], true);
}

#[test]
fn rows_of_no_group_are_kept() {
    exact::<bf16>(&[3, 10, 10, 17], [20, 8, 8], true);
}

/// No row may belong to two groups, and no row after the last group may be written.
#[test]
fn offsets_that_fall_or_are_beyond_the_rows_do_no_harm() {
    exact::<bf16>(&[5, 2, 9, 4, 1000], [16, 16, 8], true);
    exact::<bf16>(&[u32::MAX, 0, 7], [16, 16, 8], false);
}

#[test]
fn wrong_groups_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let x = DeviceBuffer::<bf16>::zeros(&stream, 256).unwrap();
    let offsets = DeviceBuffer::<u32>::zeros(&stream, 4).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 64).unwrap();
    let mut refused = |a_transposed: bool, from, count, bias: Option<usize>| {
        let a = x.slice(from..from + 64);
        let a = Matrix::from(a.as_2d(8, 8).unwrap());
        let a = if a_transposed { a.transposed() } else { a };
        let epilogue = Epilogue { bias: bias.map(|len| x.slice(..len)), ..Epilogue::default() };
        let b = x.slice(..128);
        let (b, c) = (b.as_3d(2, 8, 8).unwrap(), c.as_2d_mut(8, 8).unwrap());
        let error = matmul_grouped(&stream, &epilogue, a, offsets.slice(..count), b, c).unwrap_err();
        (error.downcast_ref::<TensorError>().cloned().unwrap(), error.to_string())
    };
    let (error, text) = refused(false, 0, 4, None);
    assert!(matches!(error, TensorError::Groups { .. }) && text.contains("4 offsets for 2 groups"), "{text}");
    let (error, text) = refused(false, 0, 3, Some(8));
    assert!(
        matches!(error, TensorError::Groups { .. }) && text.contains("8 elements, but 2 groups"),
        "{text}"
    );
    let (error, text) = refused(true, 0, 3, None);
    assert!(matches!(error, TensorError::Layout { matrix: "a", .. }), "{text}");
    let (error, text) = refused(false, 1, 3, None);
    assert!(matches!(error, TensorError::Alignment { matrix: "a", .. }), "{text}");
}

/// `mma.sync` copies whole pieces of 16 bytes.
#[test]
fn rows_without_tma_end_on_16_byte_boundaries() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let x = DeviceBuffer::<bf16>::zeros(&stream, 64).unwrap();
    let offsets = DeviceBuffer::<u32>::zeros(&stream, 2).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 64).unwrap();
    let a = x.as_slice();
    let (a, b) = (a.as_2d_strided(8, 7, 8).unwrap(), x.slice(..56));
    let (b, c) = (b.as_3d(1, 7, 8).unwrap(), c.as_2d_mut(8, 8).unwrap());
    let error = matmul_grouped_mma(&stream, &Epilogue::default(), a, offsets.as_slice(), b, c).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error.downcast_ref(), Some(TensorError::Groups { .. })), "{text}");
    assert!(text.contains("the rows of a have 7 elements"), "{text}");
}
