//! Tests attention of small heads for every size, type and layout, against an `f64` reference, with poisoned outputs.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, DeviceSliceMut, Stream};
use warpsmith_tensor::{
    Attention, GemmElement, HeadElement, Heads, HeadsMut, Offsets, TensorError, attention, attention_mma,
    attention_with_lse,
};

use crate::number::TestNumber;
use crate::under_test;

/// Problem of one test.
#[derive(Debug, Clone)]
pub struct Case {
    pub dim: usize,
    /// Number of heads of q, and of k and v.
    pub heads: [usize; 2],
    /// Rows of q and of k per sequence.
    pub lengths: Vec<[usize; 2]>,
    /// True if the lengths are passed as offsets on the device.
    pub is_packed: bool,
    /// True if heads are stored consecutively.
    pub is_by_head: bool,
    pub is_causal: bool,
    pub scale: Option<f32>,
    /// Number of stages of the kernels with `mma.sync`. `None` for the kernels that the library selects.
    pub stages: Option<usize>,
    /// True for the small tiling of the backward kernels with `mma.sync`, or the default tiling. `None` for the kernels
    /// that the library selects.
    pub mma: Option<Option<bool>>,
}

/// Computes attention with `mma.sync` and this number of stages, or with the kernels that the library selects.
fn forward<T: HeadElement>(
    stages: Option<usize>,
    stream: &Stream,
    options: &Attention<'_>,
    [q, k, v]: [Heads<'_, T>; 3],
    out: HeadsMut<'_, T>,
    lse: DeviceSliceMut<'_, f32>,
) {
    if stages.is_some() {
        attention_mma(stream, stages, options, q, k, v, out, Some(lse)).unwrap();
    } else {
        attention_with_lse(stream, options, q, k, v, out, lse).unwrap();
    }
}

impl Case {
    pub fn new(dim: usize, lengths: [usize; 2]) -> Self {
        let lengths = vec![lengths];
        Self {
            dim,
            heads: [1, 1],
            lengths,
            is_packed: false,
            is_by_head: false,
            is_causal: false,
            scale: None,
            stages: None,
            mma: None,
        }
    }

    pub fn causal(self) -> Self {
        Self { is_causal: true, ..self }
    }

    /// Returns the case for all kernels that support it.
    pub fn on_all_paths(&self) -> impl Iterator<Item = Self> + use<> {
        let stages: &[Option<usize>] = match self.dim {
            64 | 128 => &[None, Some(1), Some(2)],
            96 => &[Some(1), Some(2)],
            192 => &[None],
            _ => &[None, Some(1)],
        };
        let case = self.clone();
        stages.iter().map(move |&stages| Self { stages, ..case.clone() })
    }

    pub fn heads(self, heads: [usize; 2]) -> Self {
        Self { heads, ..self }
    }

    /// Number of planes, and rows per plane, of q or of k.
    pub fn planes(&self, which: usize) -> [usize; 2] {
        match self.is_packed {
            true => [1, self.lengths.iter().map(|lengths| lengths[which]).sum()],
            false => [self.lengths.len(), self.lengths[0][which]],
        }
    }

    pub fn offsets(&self, which: usize) -> Vec<u32> {
        let ends = self.lengths.iter().scan(0, |end, lengths| {
            *end += lengths[which] as u32;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    /// Number of elements of q or `out`, or of k or v.
    pub fn len(&self, which: usize) -> usize {
        self.planes(which).iter().product::<usize>() * self.heads[which] * self.dim
    }

    /// Offset of row `row` of a head of a sequence, in q or `out`, or in k or v.
    pub fn at(&self, which: usize, sequence: usize, head: usize, row: usize) -> usize {
        let [_, rows] = self.planes(which);
        let (plane, row) = match self.is_packed {
            true => (0, self.offsets(which)[sequence] as usize + row),
            false => (sequence, row),
        };
        let heads = self.heads[which];
        let index = if self.is_by_head {
            (plane * heads + head) * rows + row
        } else {
            (plane * rows + row) * heads + head
        };
        index * self.dim
    }

    pub fn view<'a, T: HeadElement>(&self, which: usize, buffer: &'a DeviceBuffer<T>) -> Heads<'a, T> {
        let [planes, rows] = self.planes(which);
        let heads = self.heads[which];
        match self.is_by_head {
            true => Heads::by_head(buffer.as_3d(heads * planes, rows, self.dim).unwrap(), planes),
            false => Heads::by_token(buffer.as_3d(rows * planes, heads, self.dim).unwrap(), planes),
        }
        .unwrap()
    }

    pub fn view_mut<'a, T: HeadElement>(
        &self,
        which: usize,
        buffer: &'a mut DeviceBuffer<T>,
    ) -> HeadsMut<'a, T> {
        let ([planes, rows], heads) = (self.planes(which), self.heads[which]);
        match self.is_by_head {
            true => HeadsMut::by_head(buffer.as_3d_mut(heads * planes, rows, self.dim).unwrap(), planes),
            false => HeadsMut::by_token(buffer.as_3d_mut(rows * planes, heads, self.dim).unwrap(), planes),
        }
        .unwrap()
    }

    /// Number of rows that a row of q attends to.
    pub fn attended(&self, sequence: usize, row: usize) -> usize {
        let [q, k] = self.lengths[sequence];
        if self.is_causal { (row + 1 + k).saturating_sub(q).min(k) } else { k }
    }
}

/// Host data of q, k and v.
pub struct Data<T> {
    pub q: Vec<T>,
    pub k: Vec<T>,
    pub v: Vec<T>,
}

/// Precision of the element types of heads.
pub trait Precise: HeadElement + TestNumber + GemmElement<Output = Self> {
    const PRECISION: f64;
}
impl Precise for bf16 {
    const PRECISION: f64 = 1.0 / 256.0;
}
impl Precise for f16 {
    const PRECISION: f64 = 1.0 / 2048.0;
}

impl<T: Precise> Data<T> {
    pub fn random(case: &Case, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut numbers = |len: usize, largest: f32| -> Vec<T> {
            (0..len).map(|_| T::of((random.f32() * 2.0 - 1.0) * largest)).collect()
        };
        Self { q: numbers(case.len(0), 3.0), k: numbers(case.len(1), 1.0), v: numbers(case.len(1), 1.0) }
    }

    /// Computes `out` and the log-sum-exp on the device.
    pub fn attend(&self, stream: &Stream, case: &Case) -> (Vec<T>, Vec<f32>) {
        let on = |numbers: &[T]| DeviceBuffer::from_host(stream, numbers).unwrap();
        let (q, k, v) = (on(&self.q), on(&self.k), on(&self.v));
        let mut out = on(&vec![T::POISON; self.q.len()]);
        let mut lse = DeviceBuffer::from_host(stream, &vec![f32::NAN; self.q.len() / case.dim]).unwrap();
        let offsets = [0, 1].map(|which| DeviceBuffer::from_host(stream, &case.offsets(which)).unwrap());
        let given = Offsets { q: offsets[0].as_slice(), k: offsets[1].as_slice() };
        let options = Attention {
            scale: case.scale,
            is_causal: case.is_causal,
            offsets: case.is_packed.then_some(given),
        };
        let (q, k, v) = (case.view(0, &q), case.view(1, &k), case.view(1, &v));
        let to = case.view_mut(0, &mut out);
        // As on devices without `wgmma`, `mma.sync` computes both passes.
        let stages = case.stages.or(case.mma.and(Some(1)));
        forward(stages, stream, &options, [q, k, v], to, lse.as_mut_slice());
        (out.to_host().unwrap(), lse.to_host().unwrap())
    }

    /// Returns the expected row of `out` with the mean of the absolute values, and the log-sum-exp.
    fn expected(&self, case: &Case, sequence: usize, head: usize, row: usize) -> (Vec<[f64; 2]>, f64) {
        let kv_head = head / (case.heads[0] / case.heads[1]);
        let dim = case.dim;
        let scale = case.scale.map_or(1.0 / (dim as f64).sqrt(), f64::from);
        let slice = |numbers: &[T], at: usize| -> Vec<f64> {
            numbers[at..at + dim].iter().map(|x| x.value()).collect()
        };
        let q = slice(&self.q, case.at(0, sequence, head, row));
        let keys: Vec<usize> =
            (0..case.attended(sequence, row)).map(|key| case.at(1, sequence, kv_head, key)).collect();
        let dot = |k: Vec<f64>| q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() * scale;
        let scores: Vec<f64> = keys.iter().map(|&at| dot(slice(&self.k, at))).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mut out = vec![[0.0; 2]; dim];
        for (&at, weight) in keys.iter().zip(&weights) {
            for (out, v) in out.iter_mut().zip(slice(&self.v, at)) {
                out[0] += weight / sum * v;
                out[1] += weight / sum * v.abs();
            }
        }
        (out, largest + sum.ln())
    }

    /// Fails if a row of a sequence is incorrect.
    pub fn check(
        &self,
        case: &Case,
        (out, lse): &(Vec<T>, Vec<f32>),
        rows: impl IntoIterator<Item = [usize; 3]>,
    ) {
        for [sequence, head, row] in rows {
            let at = case.at(0, sequence, head, row);
            let [_, all_rows] = case.planes(0);
            let (expected, expected_lse) = self.expected(case, sequence, head, row);
            for (i, [expected, mean]) in expected.into_iter().enumerate() {
                let value = out[at + i].value();
                let allowed = (expected.abs() + mean) * T::PRECISION + 1e-6;
                let place = format!("sequence {sequence}, head {head}, row {row}, element {i}");
                assert!(
                    (value - expected).abs() <= allowed,
                    "{case:?}, {place}: {value} instead of {expected}"
                );
            }
            let (plane, row) = match case.is_packed {
                true => (0, case.offsets(0)[sequence] as usize + row),
                false => (sequence, row),
            };
            let found = f64::from(lse[(plane * case.heads[0] + head) * all_rows + row]);
            let is_correct =
                found == expected_lse || (found - expected_lse).abs() <= 1e-4 + expected_lse.abs() * 1e-5;
            assert!(
                is_correct,
                "{case:?}, head {head}, row {row}: the LSE is {found} instead of {expected_lse}"
            );
        }
    }
}

impl Case {
    /// Returns the sequence, head and row of all rows.
    fn all_rows(&self) -> impl Iterator<Item = [usize; 3]> + '_ {
        self.lengths.iter().enumerate().flat_map(move |(sequence, lengths)| {
            (0..self.heads[0]).flat_map(move |head| (0..lengths[0]).map(move |row| [sequence, head, row]))
        })
    }
}

fn is_correct<T: Precise>(case: &Case) {
    let stream = Stream::new(&under_test::device()).unwrap();
    let data = Data::<T>::random(case, case.lengths[0].iter().sum::<usize>() as u64);
    for case in case.on_all_paths() {
        data.check(&case, &data.attend(&stream, &case), case.all_rows());
    }
}

#[test]
fn heads_of_all_sizes_and_types_are_attended() {
    for dim in [64, 96, 128, 192, 256] {
        is_correct::<bf16>(&Case::new(dim, [70, 150]));
        is_correct::<f16>(&Case::new(dim, [65, 130]).causal());
    }
}

#[test]
fn lengths_around_tiles_are_attended() {
    for lengths in [
        [1, 1],
        [1, 200],
        [63, 64],
        [64, 63],
        [65, 127],
        [127, 65],
        [128, 128],
        [129, 129],
        [200, 1],
        [200, 257],
    ] {
        is_correct::<bf16>(&Case::new(64, lengths));
    }
    is_correct::<bf16>(&Case::new(96, [129, 65]));
    is_correct::<bf16>(&Case::new(256, [129, 65]));
}

#[test]
fn later_rows_are_masked() {
    for lengths in [[1, 1], [1, 130], [64, 64], [128, 128], [129, 129], [130, 200], [200, 130], [257, 64]] {
        is_correct::<bf16>(&Case::new(64, lengths).causal());
    }
    is_correct::<f16>(&Case::new(128, [150, 270]).causal());
    is_correct::<bf16>(&Case::new(192, [140, 140]).causal());
    is_correct::<bf16>(&Case::new(256, [140, 140]).causal());
}

#[test]
fn heads_of_q_share_heads_of_k_in_both_layouts() {
    for is_by_head in [false, true] {
        let lengths = vec![[40, 72]; 3];
        is_correct::<bf16>(&Case { lengths, is_by_head, ..Case::new(64, [1, 1]).heads([6, 2]) });
        is_correct::<f16>(&Case { is_by_head, ..Case::new(64, [130, 64]).heads([4, 1]).causal() });
    }
}

#[test]
fn sequences_of_their_own_lengths_are_attended() {
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
    // There are more sequences than a warp examines at once.
    let lengths = (0..70).map(|i| [i % 3, (i * 5) % 7]).collect();
    is_correct::<bf16>(&Case { lengths, is_packed: true, ..Case::new(64, [1, 1]) });
    let lengths = vec![[20, 20], [150, 150]];
    is_correct::<f16>(&Case { lengths, is_packed: true, is_causal: true, ..Case::new(256, [1, 1]) });
}

#[test]
fn scales_are_those_given() {
    for scale in [1e-30, 0.01, 1.0, 4.0] {
        is_correct::<bf16>(&Case { scale: Some(scale), ..Case::new(64, [3, 140]) });
    }
}

#[test]
fn rows_that_attend_to_nothing_are_zero() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let cases = [Case::new(64, [3, 0]).causal(), Case::new(64, [3, 0]), Case::new(64, [200, 70]).causal()];
    for case in cases.iter().flat_map(Case::on_all_paths) {
        let data = Data::<bf16>::random(&case, 1);
        let (out, lse) = data.attend(&stream, &case);
        let empty = case.lengths[0][0] - case.lengths[0][1];
        assert!(out[..empty * 64].iter().all(|x| *x == bf16::ZERO), "{case:?}");
        assert!(lse[..empty].iter().all(|lse| *lse == f32::NEG_INFINITY), "{case:?}");
        assert!(lse[empty..].iter().all(|lse| lse.is_finite()), "{case:?}");
    }
}

/// The rows after a sequence in the same tile belong to the next sequence, or do not exist. NaN in them must not
/// propagate.
#[test]
fn nan_stays_in_its_sequence() {
    let stream = Stream::new(&under_test::device()).unwrap();
    for is_packed in [false, true] {
        let lengths = vec![[20, 30]; 3];
        let case = Case { lengths, is_packed, ..Case::new(64, [1, 1]) };
        let mut data = Data::<bf16>::random(&case, 2);
        let second = case.at(1, 1, 0, 0)..case.at(1, 2, 0, 0);
        data.k[second.clone()].fill(bf16::NAN);
        data.v[second].fill(bf16::INFINITY);
        for case in case.on_all_paths() {
            let found = data.attend(&stream, &case);
            data.check(&case, &found, case.all_rows().filter(|[sequence, ..]| *sequence != 1));
            assert!(found.0[case.at(0, 1, 0, 0)..case.at(0, 2, 0, 0)].iter().all(|x| x.is_nan()));
        }
    }
}

#[test]
fn infinite_scores_are_as_in_softmax() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let case = Case::new(64, [2, 140]);
    let mut data = Data::<bf16>::random(&case, 3);
    // The first row has one score of -inf, which does not contribute. The second row has one score of inf, which leads
    // to inf - inf.
    data.q.fill(bf16::ONE);
    data.q[64..].fill(bf16::NEG_ONE);
    data.k[..64].fill(bf16::NEG_INFINITY);
    data.v[..64].fill(bf16::ZERO);
    let rest = Case::new(64, [1, 139]);
    let of_rest = Data { q: data.q[..64].to_vec(), k: data.k[64..].to_vec(), v: data.v[64..].to_vec() };
    for case in case.on_all_paths() {
        let (out, lse) = data.attend(&stream, &case);
        of_rest.check(&rest, &(out[..64].to_vec(), lse[..1].to_vec()), rest.all_rows());
        assert!(out[64..].iter().all(|x| x.is_nan()));
    }
}

/// Offsets are read only on the device. Invalid offsets must not cause accesses outside the buffers.
#[test]
fn wrong_offsets_reach_no_other_memory() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let rows = 150;
    let ones = DeviceBuffer::from_host(&stream, &vec![bf16::ONE; rows * 64]).unwrap();
    let cases = [
        // The end is beyond the rows, so it is clamped.
        ([0, 4000, u32::MAX], [0, 4000, u32::MAX], 0..150),
        // The offsets descend, so the second sequence is empty.
        ([100, 140, 20], [0, 30, 3], 100..140),
        ([u32::MAX, 0, 7], [5, 6, 7], 0..0),
    ];
    let on_path = |stages| cases.clone().map(|case| (stages, case));
    for (stages, (q, k, written)) in [None, Some(1), Some(2)].into_iter().flat_map(on_path) {
        let mut out = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; rows * 64]).unwrap();
        let (q, k) =
            (DeviceBuffer::from_host(&stream, &q).unwrap(), DeviceBuffer::from_host(&stream, &k).unwrap());
        let offsets = Some(Offsets { q: q.as_slice(), k: k.as_slice() });
        let heads = || Heads::by_token(ones.as_3d(rows, 1, 64).unwrap(), 1).unwrap();
        let to = HeadsMut::by_token(out.as_3d_mut(rows, 1, 64).unwrap(), 1).unwrap();
        let options = Attention { offsets, ..Attention::default() };
        if stages.is_some() {
            attention_mma(&stream, stages, &options, heads(), heads(), heads(), to, None).unwrap();
        } else {
            attention(&stream, &options, heads(), heads(), heads(), to).unwrap();
        }
        for (row, values) in out.to_host().unwrap().chunks(64).enumerate() {
            let is_correct = |x: &bf16| if written.contains(&row) { *x == bf16::ONE } else { x.is_nan() };
            assert!(values.iter().all(is_correct), "row {row}, {written:?}");
        }
    }
}

#[test]
fn parts_of_one_buffer_are_attended() {
    let stream = Stream::new(&under_test::device()).unwrap();
    // Each token has two heads of q, one of k and one of v, and unused space for one more.
    let case = Case::new(64, [100, 100]).heads([2, 1]).causal();
    let data = Data::<f16>::random(&case, 4);
    let mut tokens = vec![f16::NAN; 100 * 5 * 64];
    for (i, token) in tokens.chunks_mut(5 * 64).enumerate() {
        token[..128].copy_from_slice(&data.q[128 * i..][..128]);
        token[128..192].copy_from_slice(&data.k[64 * i..][..64]);
        token[192..256].copy_from_slice(&data.v[64 * i..][..64]);
    }
    let tokens = DeviceBuffer::from_host(&stream, &tokens).unwrap();
    let by_token = |first: usize, heads| {
        let view = tokens.slice(first * 64..).as_3d_strided([100, heads, 64], [320, 64]).unwrap();
        Heads::by_token(view, 1).unwrap()
    };
    let by_row = |first: usize, heads| {
        let columns = first * 64..(first + heads) * 64;
        Heads::by_row(tokens.as_2d(100, 320).unwrap().part(.., columns), heads, 1).unwrap()
    };
    let options = Attention { is_causal: true, ..Attention::default() };
    for stages in [None, Some(1), Some(2)] {
        let part =
            |first, heads| if stages.is_none() { by_row(first, heads) } else { by_token(first, heads) };
        let mut out = DeviceBuffer::<f16>::zeros(&stream, 100 * 128).unwrap();
        let mut lse = DeviceBuffer::<f32>::zeros(&stream, 200).unwrap();
        let to = HeadsMut::by_token(out.as_3d_mut(100, 2, 64).unwrap(), 1).unwrap();
        let inputs = [part(0, 2), part(2, 1), part(3, 1)];
        forward(stages, &stream, &options, inputs, to, lse.as_mut_slice());
        data.check(&case, &(out.to_host().unwrap(), lse.to_host().unwrap()), case.all_rows());
    }
}

#[test]
fn no_rows_are_no_work() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let cases = [Case::new(64, [0, 5]), Case::new(128, [0, 0])];
    for case in cases.iter().flat_map(Case::on_all_paths) {
        let data = Data::<bf16>::random(&case, 5);
        assert!(data.attend(&stream, &case).0.is_empty());
    }
}

#[test]
fn wrong_heads_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let x = DeviceBuffer::<bf16>::zeros(&stream, 1 << 14).unwrap();
    let offsets = DeviceBuffer::<u32>::zeros(&stream, 3).unwrap();
    let view = |[dim, heads, rows]: [usize; 3], sequences| {
        Heads::by_token(x.slice(..dim * heads * rows).as_3d(rows, heads, dim).unwrap(), sequences)
    };
    let refused =
        |options: &Attention<'_>, q: [usize; 3], k: [usize; 3], v: [usize; 3], to: [usize; 3], sequences| {
            let mut out = DeviceBuffer::<bf16>::zeros(&stream, to.iter().product()).unwrap();
            let to = HeadsMut::by_token(out.as_3d_mut(to[2], to[1], to[0]).unwrap(), sequences).unwrap();
            let [q, k, v] = [q, k, v].map(|sides| view(sides, sequences).unwrap());
            let error = attention(&stream, options, q, k, v, to).unwrap_err();
            (error.downcast_ref::<TensorError>().cloned().unwrap(), error.to_string())
        };
    let (plain, right) = (Attention::default(), [64, 4, 6]);
    for (q, k, v, out, sequences, what) in [
        (right, right, right, [64, 4, 8], 1, "out is 1 sequences of 4 heads of 8 rows of 64"),
        (right, right, [64, 4, 8], right, 1, "v is 1 sequences of 4 heads of 8 rows of 64"),
        (right, [64, 3, 6], [64, 3, 6], right, 1, "k is 1 sequences of 3 heads"),
        (right, [128, 4, 6], [128, 4, 6], right, 1, "rows of 128"),
        (right, [64, 0, 6], [64, 0, 6], right, 1, "k is 1 sequences of 0 heads"),
        ([80, 4, 6], [80, 4, 6], [80, 4, 6], [80, 4, 6], 2, "a row has 80 elements"),
    ] {
        let (error, text) = refused(&plain, q, k, v, out, sequences);
        assert!(matches!(error, TensorError::Heads { .. }) && text.contains(what), "{text}");
    }
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let options = Attention { scale: Some(scale), ..plain };
        let (error, text) = refused(&options, right, right, right, right, 1);
        assert!(matches!(error, TensorError::Scale { .. }) && text.contains(&scale.to_string()), "{text}");
    }
    let given = |q: usize, k: usize| {
        let offsets = Offsets { q: offsets.slice(..q), k: offsets.slice(..k) };
        Attention { offsets: Some(offsets), ..plain }
    };
    for (options, sequences, what) in [
        (given(3, 3), 2, "the views have 2 sequences"),
        (given(3, 2), 1, "q has 3 offsets, but k has 2"),
        (given(0, 0), 1, "there are 0 offsets"),
    ] {
        let (error, text) = refused(&options, right, right, right, right, sequences);
        assert!(matches!(error, TensorError::Heads { .. }) && text.contains(what), "{text}");
    }
    let error = view(right, 4).unwrap_err().to_string();
    assert!(error.contains("6 tokens cannot be divided evenly among 4 sequences"), "{error}");
    let rows_of_heads = DeviceBuffer::<bf16>::zeros(&stream, 64 * 6).unwrap();
    let error = Heads::by_row(rows_of_heads.as_2d(6, 64).unwrap(), 3, 1).unwrap_err().to_string();
    assert!(error.contains("64 columns cannot be divided evenly among 3 heads"), "{error}");

    let mut out = DeviceBuffer::<bf16>::zeros(&stream, 64 * 24).unwrap();
    fn to(out: &mut DeviceBuffer<bf16>) -> HeadsMut<'_, bf16> {
        HeadsMut::by_token(out.as_3d_mut(6, 4, 64).unwrap(), 1).unwrap()
    }
    let right = || view([64, 4, 6], 1).unwrap();
    let mut lse = DeviceBuffer::<f32>::zeros(&stream, 23).unwrap();
    let lse = lse.as_mut_slice();
    let error =
        attention_with_lse(&stream, &plain, right(), right(), right(), to(&mut out), lse).unwrap_err();
    assert!(error.to_string().contains("23 LSE values: there must be one per row, 24 in total"), "{error}");
    let unaligned = |first: usize, pitch: usize| {
        Heads::by_token(x.slice(first..).as_3d_strided([6, 4, 64], [4 * pitch, pitch]).unwrap(), 1).unwrap()
    };
    for (heads, bytes) in [(unaligned(1, 64), 512), (unaligned(0, 68), 136), (unaligned(0, 65), 520)] {
        let error = attention(&stream, &plain, right(), heads, right(), to(&mut out)).unwrap_err();
        let TensorError::Alignment { matrix: "k", bytes: found, .. } = error.downcast_ref().unwrap() else {
            panic!("{error}")
        };
        assert_eq!(*found, bytes, "{error}");
    }
}
