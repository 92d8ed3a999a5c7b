//! Tests attention gradients of small heads for every size, type and layout, against an `f64` reference, with poisoned
//! outputs.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, Stream};
use warpsmith_tensor::{
    Attended, Attention, Gradients, Heads, HeadsMut, Offsets, TensorError, attention_backward,
    attention_backward_mma,
};

use crate::attention::{Case, Data, Precise};
use crate::under_test;

/// Gradient of `out`, and the gradients of q, k and v from the device.
pub struct Backward<T> {
    pub dout: Vec<T>,
    pub gradients: [Vec<T>; 3],
}

impl<T: Precise> Backward<T> {
    pub fn run(stream: &Stream, case: &Case, data: &Data<T>) -> Self {
        let mut random = fastrand::Rng::with_seed(99);
        let dout: Vec<T> = (0..case.len(0)).map(|_| T::of(random.f32() * 2.0 - 1.0)).collect();
        Self::of(stream, case, data, dout)
    }

    pub fn of(stream: &Stream, case: &Case, data: &Data<T>, dout: Vec<T>) -> Self {
        let (out, lse) = data.attend(stream, case);
        let on = |numbers: &[T]| DeviceBuffer::from_host(stream, numbers).unwrap();
        let (q, k, v, out, on_dout) = (on(&data.q), on(&data.k), on(&data.v), on(&out), on(&dout));
        let lse = DeviceBuffer::from_host(stream, &lse).unwrap();
        let offsets = [0, 1].map(|which| DeviceBuffer::from_host(stream, &case.offsets(which)).unwrap());
        let given = Offsets { q: offsets[0].as_slice(), k: offsets[1].as_slice() };
        let options = Attention {
            scale: case.scale,
            is_causal: case.is_causal,
            offsets: case.is_packed.then_some(given),
        };
        let [mut dq, mut dk, mut dv] = [0, 1, 1].map(|which| on(&vec![T::POISON; case.len(which)]));
        let attended = Attended {
            q: case.view(0, &q),
            k: case.view(1, &k),
            v: case.view(1, &v),
            out: case.view(0, &out),
            lse: lse.as_slice(),
        };
        let gradients = Gradients {
            q: case.view_mut(0, &mut dq),
            k: case.view_mut(1, &mut dk),
            v: case.view_mut(1, &mut dv),
        };
        let dout_view = case.view(0, &on_dout);
        match case.mma {
            Some(tiling) => attention_backward_mma(stream, tiling, &options, attended, dout_view, gradients),
            None => attention_backward(stream, &options, attended, dout_view, gradients),
        }
        .unwrap();
        Self { dout, gradients: [dq, dk, dv].map(|gradient| gradient.to_host().unwrap()) }
    }

    /// Fails if a gradient of a sequence is incorrect.
    pub fn check(&self, case: &Case, data: &Data<T>, sequences: impl IntoIterator<Item = usize>) {
        Self::check_all(&[(case.clone(), self)], data, sequences);
    }

    /// Like [`Self::check`], for the results of several kernels for the same `dout`.
    fn check_all(found: &[(Case, &Self)], data: &Data<T>, sequences: impl IntoIterator<Item = usize>) {
        let (case, Self { dout: all_dout, .. }) = &found[0];
        let are_near = |which: usize, at: usize, expected: &[[f64; 2]], place: &str| {
            found.iter().for_each(|(case, found)| found.is_near(case, which, at, expected, place));
        };
        let (dim, group) = (case.dim, case.heads[0] / case.heads[1]);
        let scale = case.scale.map_or(1.0 / (dim as f64).sqrt(), f64::from);
        for sequence in sequences {
            let [rows, keys] = case.lengths[sequence];
            for kv_head in 0..case.heads[1] {
                let k_at = |key| case.at(1, sequence, kv_head, key);
                let row_of = |numbers: &[T], at: usize| -> Vec<f64> {
                    numbers[at..at + dim].iter().map(|x| x.value()).collect()
                };
                let k: Vec<_> = (0..keys).map(|key| row_of(&data.k, k_at(key))).collect();
                let v: Vec<_> = (0..keys).map(|key| row_of(&data.v, k_at(key))).collect();
                // The second number of each gradient is the magnitude that its error is relative to.
                let mut dk = vec![vec![[0.0; 2]; dim]; keys];
                let mut dv = vec![vec![[0.0; 2]; dim]; keys];
                for head in kv_head * group..(kv_head + 1) * group {
                    for row in 0..rows {
                        let at = case.at(0, sequence, head, row);
                        let (q, dout) = (row_of(&data.q, at), row_of(all_dout, at));
                        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
                        let count = case.attended(sequence, row);
                        let scores: Vec<f64> = k[..count].iter().map(|k| dot(&q, k) * scale).collect();
                        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                        let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                        let sum: f64 = weights.iter().sum();
                        let weights: Vec<f64> = weights.into_iter().map(|weight| weight / sum).collect();
                        let slopes: Vec<f64> = v[..count].iter().map(|v| dot(&dout, v)).collect();
                        let delta: f64 =
                            weights.iter().zip(&slopes).map(|(weight, slope)| weight * slope).sum();
                        // The kernel reads `out` after rounding.
                        let rounded: f64 = (0..dim)
                            .map(|i| {
                                (0..count).map(|key| weights[key] * v[key][i].abs()).sum::<f64>()
                                    * dout[i].abs()
                            })
                            .sum();
                        let mut dq = vec![[0.0; 2]; dim];
                        for key in 0..count {
                            let weight = weights[key];
                            let slope = weight * (slopes[key] - delta) * scale;
                            let part = weight * (slopes[key].abs() + delta.abs() + rounded) * scale;
                            for i in 0..dim {
                                dq[i] = [dq[i][0] + slope * k[key][i], dq[i][1] + part * k[key][i].abs()];
                                let [sum, all] = dk[key][i];
                                dk[key][i] = [sum + slope * q[i], all + part * q[i].abs()];
                                let [sum, all] = dv[key][i];
                                dv[key][i] = [sum + weight * dout[i], all + weight * dout[i].abs()];
                            }
                        }
                        are_near(0, at, &dq, &format!("q, sequence {sequence}, head {head}, row {row}"));
                    }
                }
                for key in 0..keys {
                    let place = |of: &str| format!("{of}, sequence {sequence}, head {kv_head}, row {key}");
                    are_near(1, k_at(key), &dk[key], &place("k"));
                    are_near(2, k_at(key), &dv[key], &place("v"));
                }
            }
        }
    }

    fn is_near(&self, case: &Case, which: usize, at: usize, expected: &[[f64; 2]], place: &str) {
        for (i, [expected, all]) in expected.iter().enumerate() {
            let value = self.gradients[which][at + i].value();
            let allowed = (expected.abs() + 2.0 * all) * T::PRECISION + 1e-6;
            assert!(
                (value - expected).abs() <= allowed,
                "{case:?}, the gradient of {place}, element {i}: {value} instead of {expected}, allowed {allowed}"
            );
        }
    }
}

/// Returns the case for all kernels that support it.
pub fn on_all_paths(case: &Case) -> impl Iterator<Item = Case> + use<> {
    let paths: &[Option<Option<bool>>] = match case.dim {
        64 => &[None, Some(None)],
        128 => &[None, Some(Some(false)), Some(Some(true))],
        _ => &[None, Some(Some(true))],
    };
    let case = case.clone();
    paths.iter().map(move |&mma| Case { mma, ..case.clone() })
}

fn is_correct<T: Precise>(case: &Case) {
    is_correct_on::<T>(&Stream::new(&under_test::device()).unwrap(), case);
}

/// Fails if a gradient of one of the kernels that support the case is incorrect.
pub fn is_correct_on<T: Precise>(stream: &Stream, case: &Case) {
    let data = Data::<T>::random(case, case.lengths[0].iter().sum::<usize>() as u64);
    let found: Vec<_> =
        on_all_paths(case).map(|case| (case.clone(), Backward::run(stream, &case, &data))).collect();
    let found: Vec<_> = found.iter().map(|(case, found)| (case.clone(), found)).collect();
    Backward::check_all(&found, &data, 0..case.lengths.len());
}

#[test]
fn gradients_of_all_sizes_and_types_are_correct() {
    for dim in [64, 128] {
        is_correct::<bf16>(&Case::new(dim, [70, 150]));
        is_correct::<f16>(&Case::new(dim, [65, 130]).causal());
    }
    for dim in [96, 192, 256] {
        is_correct::<bf16>(&Case::new(dim, [33, 70]));
        is_correct::<f16>(&Case::new(dim, [65, 130]).causal());
    }
}

#[test]
fn gradients_of_lengths_around_tiles_are_correct() {
    for lengths in
        [[1, 1], [1, 200], [63, 64], [64, 63], [65, 127], [128, 128], [129, 129], [200, 1], [150, 257]]
    {
        is_correct::<bf16>(&Case::new(64, lengths));
    }
}

#[test]
fn gradients_of_masked_rows_are_correct() {
    for lengths in [[1, 1], [1, 130], [64, 64], [129, 129], [130, 200], [200, 130], [257, 64], [70, 3]] {
        is_correct::<bf16>(&Case::new(64, lengths).causal());
    }
    is_correct::<f16>(&Case::new(128, [150, 170]).causal());
}

#[test]
fn gradients_of_shared_heads_are_those_of_all_that_read_them() {
    for is_by_head in [false, true] {
        let lengths = vec![[40, 72]; 2];
        is_correct::<bf16>(&Case { lengths, is_by_head, ..Case::new(64, [1, 1]).heads([6, 2]) });
        is_correct::<f16>(&Case { is_by_head, ..Case::new(64, [130, 64]).heads([4, 1]).causal() });
    }
}

#[test]
fn gradients_of_sequences_of_their_own_lengths_are_correct() {
    let lengths = vec![[0, 0], [5, 70], [130, 129], [0, 40], [1, 1], [64, 0], [33, 64]];
    for (is_causal, is_by_head) in [(false, false), (true, false), (true, true)] {
        let case = Case {
            lengths: lengths.clone(),
            is_packed: true,
            is_causal,
            is_by_head,
            ..Case::new(64, [1, 1]).heads([2, 1])
        };
        is_correct::<bf16>(&case);
    }
    let lengths = (0..70).map(|i| [i % 3, (i * 5) % 7]).collect();
    is_correct::<bf16>(&Case { lengths, is_packed: true, ..Case::new(64, [1, 1]) });
}

#[test]
fn gradients_have_the_scale() {
    for scale in [1e-30, 0.01, 1.0] {
        is_correct::<bf16>(&Case { scale: Some(scale), ..Case::new(64, [3, 140]) });
    }
}

/// Tests the gradients of rows that attend to no rows, and of rows that no row attends to.
#[test]
fn gradients_of_nothing_are_zero() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let cases =
        [Case::new(64, [3, 0]), Case::new(64, [0, 3]), Case::new(64, [0, 0]), Case::new(64, [3, 0]).causal()];
    for case in cases.iter().flat_map(on_all_paths) {
        let data = Data::<bf16>::random(&case, 1);
        let found = Backward::run(&stream, &case, &data);
        let is_zero = |gradient: &Vec<bf16>| gradient.iter().all(|x| *x == bf16::ZERO);
        assert!(found.gradients.iter().all(is_zero), "{case:?}");
    }
}

/// The rows after a sequence in the same tile belong to the next sequence. NaN in them must not propagate.
#[test]
fn nan_of_a_sequence_reaches_no_gradient_of_another() {
    let stream = Stream::new(&under_test::device()).unwrap();
    for is_packed in [false, true] {
        let lengths = vec![[20, 30]; 3];
        let case = Case { lengths, is_packed, ..Case::new(64, [1, 1]) };
        let mut data = Data::<bf16>::random(&case, 2);
        let mut dout = data.q.clone();
        for (which, numbers) in [(0, &mut data.q), (1, &mut data.k), (1, &mut data.v), (0, &mut dout)] {
            numbers[case.at(which, 1, 0, 0)..case.at(which, 2, 0, 0)].fill(bf16::NAN);
        }
        for case in on_all_paths(&case) {
            let found = Backward::of(&stream, &case, &data, dout.clone());
            found.check(&case, &data, [0, 2]);
            for (which, gradient) in [0, 1, 1].into_iter().zip(&found.gradients) {
                let of_nan = &gradient[case.at(which, 1, 0, 0)..case.at(which, 2, 0, 0)];
                assert!(of_nan.iter().all(|x| x.is_nan()), "{case:?}");
            }
        }
    }
}

/// Offsets are read only on the device. Invalid offsets must not cause accesses outside the buffers. Rows that belong
/// to no sequence must be unchanged.
#[test]
fn wrong_offsets_reach_no_other_memory() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let rows = 150;
    let ones = DeviceBuffer::from_host(&stream, &vec![bf16::ONE; rows * 64]).unwrap();
    let lse = DeviceBuffer::from_host(&stream, &vec![0.0f32; rows]).unwrap();
    let offsets = [
        ([0, 4000, u32::MAX], [0, 4000, u32::MAX], 0..150, 0..150),
        ([100, 140, 20], [0, 30, 3], 100..140, 0..30),
        ([u32::MAX, 0, 7], [5, 6, 7], 0..0, 5..7),
        ([10, 20, 70], [90, 140, 140], 10..70, 90..140),
    ];
    for ((q, k, of_q, of_k), is_mma) in
        offsets.into_iter().flat_map(|case| [(case.clone(), false), (case, true)])
    {
        let (q, k) =
            (DeviceBuffer::from_host(&stream, &q).unwrap(), DeviceBuffer::from_host(&stream, &k).unwrap());
        let offsets = Some(Offsets { q: q.as_slice(), k: k.as_slice() });
        let all = Heads::by_token(ones.as_3d(rows, 1, 64).unwrap(), 1).unwrap();
        let poison = vec![bf16::from_f32(7.5); rows * 64];
        let [mut dq, mut dk, mut dv] = [0; 3].map(|_| DeviceBuffer::from_host(&stream, &poison).unwrap());
        let to =
            |buffer| HeadsMut::by_token(DeviceBuffer::as_3d_mut(buffer, rows, 1, 64).unwrap(), 1).unwrap();
        let gradients = Gradients { q: to(&mut dq), k: to(&mut dk), v: to(&mut dv) };
        let attended = Attended { q: all, k: all, v: all, out: all, lse: lse.as_slice() };
        let options = Attention { offsets, ..Attention::default() };
        match is_mma {
            true => attention_backward_mma(&stream, None, &options, attended, all, gradients),
            false => attention_backward(&stream, &options, attended, all, gradients),
        }
        .unwrap();
        for (gradient, written) in [(dq, of_q), (dk, of_k.clone()), (dv, of_k)] {
            for (row, values) in gradient.to_host().unwrap().chunks(64).enumerate() {
                let is_kept = values.iter().all(|x| *x == bf16::from_f32(7.5));
                assert_eq!(is_kept, !written.contains(&row), "row {row}, {written:?}");
            }
        }
    }
}

#[test]
fn wrong_gradients_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let x = DeviceBuffer::<bf16>::zeros(&stream, 1 << 14).unwrap();
    let lse = DeviceBuffer::<f32>::zeros(&stream, 24).unwrap();
    let view =
        |dim, rows| Heads::by_token(x.slice(..dim * 4 * rows).as_3d(rows, 4, dim).unwrap(), 1).unwrap();
    let refused = |dim, of_dout, of_dk, count| {
        let case = Case::new(dim, [6, 6]).heads([4, 4]);
        let of = |rows| Case::new(dim, [rows; 2]).heads([4, 4]);
        let [mut dq, mut dk, mut dv] =
            [6, of_dk, 6].map(|rows| DeviceBuffer::<bf16>::zeros(&stream, rows * 4 * dim).unwrap());
        let gradients = Gradients {
            q: case.view_mut(0, &mut dq),
            k: of(of_dk).view_mut(1, &mut dk),
            v: case.view_mut(1, &mut dv),
        };
        let all = view(dim, 6);
        let attended = Attended { q: all, k: all, v: all, out: all, lse: lse.slice(..count) };
        let options = Attention::default();
        let error =
            attention_backward(&stream, &options, attended, view(dim, of_dout), gradients).unwrap_err();
        (error.downcast_ref::<TensorError>().cloned().unwrap(), error.to_string())
    };
    for ((dim, of_dout, of_dk, count), what) in [
        ((64, 5, 6, 24), "dout is 1 sequences of 4 heads of 5 rows of 64, and out 1 of 4 of 6 of 64"),
        ((64, 6, 7, 24), "the gradient of k is 1 sequences of 4 heads of 7 rows"),
        ((64, 6, 6, 23), "23 LSE values: there must be one per row, 24 in total"),
        ((32, 6, 6, 24), "a row has 32 elements: it must have 64, 96, 128, 192 or 256"),
    ] {
        let (error, text) = refused(dim, of_dout, of_dk, count);
        let is_named = matches!(&error, TensorError::Heads { operation: "attention_backward", .. });
        assert!(is_named && text.contains(what), "{text}");
    }
}
