//! Tests rotary position embedding with append against an `f64` reference, and the kernel that also computes attention
//! against the two separate kernels. Rows of the cache that no token is appended to keep their numbers.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, Graph, Stream};
use warpsmith_tensor::{
    AppendElement, AttentionDecode, CacheElement, DecodeElement, F8E4M3, HeadNorm, Heads, HeadsMut, KvCache,
    KvCacheMut, NewTokens, Rotary, TensorError, attention_decode, attention_decode_append, rotary_append,
};

use crate::attention::Precise;
use crate::under_test;

const EPSILON: f32 = 0.25;

#[derive(Debug, Clone)]
struct Case {
    dim: usize,
    /// Number of heads of q, and of k and v.
    heads: [usize; 2],
    /// Number of new tokens per sequence.
    tokens: usize,
    lengths: Vec<u32>,
    capacity: usize,
    page: Option<usize>,
    /// True if the heads of the cache are stored consecutively.
    is_by_head: bool,
    is_interleaved: bool,
    has_norm: bool,
    /// Number of rows of the tables.
    positions: usize,
}

impl Case {
    fn new(dim: usize, heads: [usize; 2], lengths: &[u32]) -> Self {
        Self {
            dim,
            heads,
            tokens: 1,
            lengths: lengths.to_vec(),
            capacity: 96,
            page: None,
            is_by_head: false,
            is_interleaved: false,
            has_norm: false,
            positions: 1000,
        }
    }

    /// Number of planes of the cache, and rows per plane.
    fn planes(&self) -> [usize; 2] {
        self.page.map_or([self.lengths.len(), self.capacity], |page| {
            [self.lengths.len() * (self.capacity / page) + 2, page]
        })
    }

    /// Total number of heads of q, k and v per token.
    fn all_heads(&self) -> usize {
        self.heads[0] + 2 * self.heads[1]
    }

    /// Position of a token, unless it is outside the cache or the tables.
    fn position(&self, sequence: usize, token: usize) -> Option<usize> {
        let position = (self.lengths[sequence] as usize + token).checked_sub(self.tokens)?;
        (position < self.capacity.min(self.positions)).then_some(position)
    }
}

/// Host data.
struct Data<T> {
    case: Case,
    /// Heads of q, k and v of each token.
    new: Vec<T>,
    cos: Vec<f32>,
    sin: Vec<f32>,
    norms: [Vec<T>; 2],
    table: Vec<u32>,
}

impl<T: Precise + AppendElement<T>> Data<T> {
    fn new(case: &Case, mut number: impl FnMut() -> f32) -> Self {
        let mut numbers = |len: usize| (0..len).map(|_| number()).collect::<Vec<f32>>();
        let of = |numbers: Vec<f32>| numbers.into_iter().map(T::of).collect::<Vec<T>>();
        let new = of(numbers(case.lengths.len() * case.tokens * case.all_heads() * case.dim));
        let [cos, sin] = [0; 2].map(|_| numbers(case.positions * case.dim / 2));
        let norms = [0; 2].map(|_| of(numbers(case.dim)));
        let mut table: Vec<u32> = (0..case.planes()[0] as u32).collect();
        fastrand::Rng::with_seed(case.dim as u64).shuffle(&mut table);
        Self { case: case.clone(), new, cos, sin, norms, table }
    }

    fn random(case: &Case) -> Self {
        let mut random = fastrand::Rng::with_seed(case.new_seed());
        Self::new(case, || random.f32() * 2.0 - 1.0)
    }

    /// Small integers, whose rotations are exact.
    fn integers(case: &Case) -> Self {
        let mut random = fastrand::Rng::with_seed(case.new_seed());
        Self::new(case, || random.i32(-3..=3) as f32)
    }

    /// Offset of a row of the cache, if its page exists.
    fn row(&self, sequence: usize, position: usize, head: usize) -> Option<usize> {
        let (case, [planes, rows]) = (&self.case, self.case.planes());
        let (plane, row) = match case.page {
            Some(page) => {
                let pages = case.capacity / page;
                (self.table[sequence * pages + position / page] as usize, position % page)
            }
            None => (sequence, position),
        };
        let heads = case.heads[1];
        let at = if case.is_by_head {
            (plane * heads + head) * rows + row
        } else {
            (plane * rows + row) * heads + head
        };
        (plane < planes).then_some(at * case.dim)
    }

    /// Returns `out` and the caches of k and v, which initially contain
    /// [`TestNumber::POISON`](crate::number::TestNumber).
    fn run(&self, stream: &Stream) -> [Vec<T>; 3] {
        let (out, [k, v]) = self.append(stream, T::POISON, None);
        [out, k, v]
    }

    /// Returns `out` and the caches of k and v, which initially contain `poison`, with a scale for all heads.
    fn append<C: AppendElement<T>>(
        &self,
        stream: &Stream,
        poison: C,
        scale: Option<f32>,
    ) -> (Vec<T>, [Vec<C>; 2]) {
        let (case, [planes, rows]) = (&self.case, self.case.planes());
        let cached = vec![poison; planes * rows * case.heads[1] * case.dim];
        self.with_operands(stream, [&cached, &cached], scale, |rotary, [q, k, v], cache| {
            self.out(stream, |out| rotary_append(stream, rotary, q, k, v, cache, out))
        })
    }

    /// Returns the output of an operation, whose heads have the shape of q.
    fn out(
        &self,
        stream: &Stream,
        run: impl FnOnce(HeadsMut<'_, T>) -> warpsmith_runtime::Result<()>,
    ) -> Vec<T> {
        let (case, sequences) = (&self.case, self.case.lengths.len());
        let [tokens, heads, dim] = [sequences * case.tokens, case.heads[0], case.dim];
        let mut out = DeviceBuffer::from_host(stream, &vec![T::POISON; tokens * heads * dim]).unwrap();
        run(HeadsMut::by_token(out.as_3d_mut(tokens, heads, dim).unwrap(), sequences).unwrap()).unwrap();
        out.to_host().unwrap()
    }

    /// Copies the operands to the device, and returns the result of `run` and the contents of the caches.
    fn with_operands<C: AppendElement<T>, R>(
        &self,
        stream: &Stream,
        cached: [&[C]; 2],
        scale: Option<f32>,
        run: impl FnOnce(&Rotary<'_, T>, [Heads<'_, T>; 3], KvCacheMut<'_, C>) -> R,
    ) -> (R, [Vec<C>; 2]) {
        let (case, [planes, rows]) = (&self.case, self.case.planes());
        let (sequences, [q_heads, kv_heads]) = (case.lengths.len(), case.heads);
        let on = |numbers: &[T]| DeviceBuffer::from_host(stream, numbers).unwrap();
        let (new, q_norm, k_norm) = (on(&self.new), on(&self.norms[0]), on(&self.norms[1]));
        let [cos, sin] = [&self.cos, &self.sin].map(|table| DeviceBuffer::from_host(stream, table).unwrap());
        let [mut k, mut v] = cached.map(|cached| DeviceBuffer::from_host(stream, cached).unwrap());
        let scales = DeviceBuffer::from_host(stream, &vec![scale.unwrap_or(1.0); kv_heads]).unwrap();
        let scales = scale.map(|_| [scales.as_slice(); 2]);
        let tokens = sequences * case.tokens;
        let lengths = DeviceBuffer::from_host(stream, &case.lengths).unwrap();
        let table = DeviceBuffer::from_host(stream, &self.table).unwrap();
        let part = |first: usize, heads: usize| {
            let strides = [case.all_heads() * case.dim, case.dim];
            let view = new.slice(first * case.dim..).as_3d_strided([tokens, heads, case.dim], strides);
            Heads::by_token(view.unwrap(), sequences).unwrap()
        };
        let view = |buffer| match case.is_by_head {
            true => HeadsMut::by_head(
                DeviceBuffer::as_3d_mut(buffer, planes * kv_heads, rows, case.dim).unwrap(),
                planes,
            ),
            false => HeadsMut::by_token(
                DeviceBuffer::as_3d_mut(buffer, planes * rows, kv_heads, case.dim).unwrap(),
                planes,
            ),
        };
        let pages = case.page.map(|page| {
            let columns = case.capacity / page;
            table.slice(..sequences * columns).as_2d(sequences, columns).unwrap()
        });
        let norm = HeadNorm { q: q_norm.as_slice(), k: k_norm.as_slice(), epsilon: EPSILON };
        let rotary = Rotary {
            cos: cos.as_2d(case.positions, case.dim / 2).unwrap(),
            sin: sin.as_2d(case.positions, case.dim / 2).unwrap(),
            is_interleaved: case.is_interleaved,
            norm: case.has_norm.then_some(norm),
        };
        let lengths = lengths.as_slice();
        let cache = KvCacheMut { k: view(&mut k).unwrap(), v: view(&mut v).unwrap(), lengths, pages, scales };
        let heads =
            [(0, q_heads), (q_heads, kv_heads), (q_heads + kv_heads, kv_heads)].map(|(i, n)| part(i, n));
        let result = run(&rotary, heads, cache);
        (result, [k, v].map(|buffer| buffer.to_host().unwrap()))
    }

    /// Returns a normalized and rotated head.
    fn rotated(&self, head: &[T], position: usize, norm: &[T]) -> Vec<f64> {
        let (case, half) = (&self.case, self.case.dim / 2);
        let mut x: Vec<f64> = head.iter().map(|x| x.value()).collect();
        if case.has_norm {
            let squares = x.iter().map(|x| x * x).sum::<f64>() / case.dim as f64;
            let inverse = 1.0 / (squares + f64::from(EPSILON)).sqrt();
            x.iter_mut().zip(norm).for_each(|(x, weight)| *x *= inverse * weight.value());
        }
        let mut rotated = x.clone();
        for i in 0..half {
            let [first, second] = if case.is_interleaved { [2 * i, 2 * i + 1] } else { [i, i + half] };
            let at = position * half + i;
            let (cos, sin) = (f64::from(self.cos[at]), f64::from(self.sin[at]));
            rotated[first] = x[first] * cos - x[second] * sin;
            rotated[second] = x[first] * sin + x[second] * cos;
        }
        rotated
    }

    /// Returns the expected results of [`Self::run`], or `None` for an element that is not written.
    fn expected(&self) -> [Vec<Option<f64>>; 3] {
        let (case, [planes, rows]) = (&self.case, self.case.planes());
        let (dim, [q_heads, kv_heads]) = (case.dim, case.heads);
        let mut out = Vec::new();
        let mut cache = [0; 2].map(|_| vec![None; planes * rows * kv_heads * dim]);
        for (i, token) in self.new.chunks(case.all_heads() * dim).enumerate() {
            let (sequence, token_index) = (i / case.tokens, i % case.tokens);
            let position = case.position(sequence, token_index);
            let heads: Vec<&[T]> = token.chunks(dim).collect();
            for head in &heads[..q_heads] {
                let rotated =
                    position.map_or(vec![0.0; dim], |position| self.rotated(head, position, &self.norms[0]));
                out.extend(rotated.into_iter().map(Some));
            }
            let Some(position) = position else { continue };
            for head in 0..kv_heads {
                let Some(at) = self.row(sequence, position, head) else { continue };
                let k = self.rotated(heads[q_heads + head], position, &self.norms[1]);
                let v: Vec<f64> = heads[q_heads + kv_heads + head].iter().map(|x| x.value()).collect();
                for (cache, row) in cache.iter_mut().zip([k, v]) {
                    cache[at..at + dim].iter_mut().zip(row).for_each(|(to, x)| *to = Some(x));
                }
            }
        }
        let [k, v] = cache;
        [out, k, v]
    }

    /// Fails if a result differs by more than `precision`, relative to the largest numbers of a head.
    fn check(&self, stream: &Stream, precision: f64) {
        let case = &self.case;
        for (which, (found, expected)) in self.run(stream).into_iter().zip(self.expected()).enumerate() {
            for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
                let is_equal = match expected {
                    Some(expected) => (found.value() - expected).abs() <= precision * expected.abs().max(1.0),
                    None => found.value().is_nan(),
                };
                assert!(is_equal, "{case:?}, result {which}, element {i}: {found:?} instead of {expected:?}");
            }
        }
    }
}

impl Case {
    fn new_seed(&self) -> u64 {
        self.lengths.iter().map(|&length| u64::from(length)).sum()
    }
}

fn is_correct<T: Precise + AppendElement<T>>(case: &Case) {
    let stream = Stream::new(&under_test::device()).unwrap();
    for (is_interleaved, has_norm) in [(false, false), (true, false), (false, true), (true, true)] {
        let case = Case { is_interleaved, has_norm, ..case.clone() };
        Data::<T>::random(&case).check(&stream, T::PRECISION);
    }
}

#[test]
fn tokens_are_rotated_and_appended() {
    for dim in [8, 24, 64, 128, 256] {
        is_correct::<bf16>(&Case::new(dim, [3, 1], &[1, 96, 17, 40]));
        is_correct::<f16>(&Case { is_by_head: true, ..Case::new(dim, [4, 2], &[2, 50]) });
    }
    is_correct::<bf16>(&Case { tokens: 3, ..Case::new(64, [8, 2], &[3, 96, 4, 5, 60]) });
}

#[test]
fn tokens_are_appended_to_pages() {
    for (page, is_by_head) in [(16, false), (32, true), (1, false)] {
        let case = Case { page: Some(page), is_by_head, ..Case::new(64, [4, 2], &[1, 16, 17, 96]) };
        is_correct::<bf16>(&case);
        is_correct::<f16>(&Case { tokens: 4, ..case });
    }
}

/// Appends to a cache of 8 bits. An appended number is correct if its rounding error is within the bound that `error`
/// returns.
fn is_rounded<T: Precise + AppendElement<T>, C: AppendElement<T> + Copy>(
    poison: C,
    scale: f32,
    value: fn(C) -> f32,
    error: fn(f64) -> f64,
) {
    let stream = Stream::new(&under_test::device()).unwrap();
    let case = Case { tokens: 2, page: Some(16), ..Case::new(64, [2, 2], &[2, 33, 96, 1, 200]) };
    let data = Data::<T>::random(&case);
    let (out, cache) = data.append(&stream, poison, Some(scale));
    let [expected_out, k, v] = data.expected();
    for (found, expected) in out.iter().zip(expected_out) {
        assert!((found.value() - expected.unwrap()).abs() <= T::PRECISION * 2.0, "{found:?}, {expected:?}");
    }
    for (cache, expected) in cache.into_iter().zip([k, v]) {
        for (i, (found, expected)) in cache.into_iter().zip(expected).enumerate() {
            let found = f64::from(value(found));
            match expected.map(|expected| expected / f64::from(scale)) {
                Some(expected) => {
                    let most = error(expected) + 1e-5 * expected.abs();
                    assert!((found - expected).abs() <= most, "{i}: {found} instead of {expected}");
                }
                None => assert_eq!(found.to_bits(), f64::from(value(poison)).to_bits(), "{i} was written"),
            }
        }
    }
}

#[test]
fn caches_of_8_bits_are_rounded() {
    // Numbers of up to 2, of which the largest saturate at 1.98 and 1.75.
    is_rounded::<bf16, i8>(-128, 1.0 / 64.0, f32::from, |x| 0.5 + (x.abs() - 127.0).max(0.0));
    is_rounded::<f16, i8>(-128, 1.0 / 64.0, f32::from, |x| 0.5 + (x.abs() - 127.0).max(0.0));
    let poison = F8E4M3::from_bits(0x81);
    is_rounded::<bf16, F8E4M3>(
        poison,
        1.0 / 256.0,
        |x| x.to_f32(),
        |x| (x.abs().max(1.0 / 64.0).log2().floor() - 4.0).exp2() + (x.abs() - 448.0).max(0.0),
    );
    is_rounded::<f16, F8E4M3>(
        poison,
        8.0,
        |x| x.to_f32(),
        |x| (x.abs().max(1.0 / 64.0).log2().floor() - 4.0).exp2(),
    );
}

#[test]
fn rotations_of_integers_are_exact() {
    let stream = Stream::new(&under_test::device()).unwrap();
    for is_interleaved in [false, true] {
        let case = Case { is_interleaved, tokens: 2, ..Case::new(128, [8, 2], &[2, 33, 96]) };
        Data::<bf16>::integers(&case).check(&stream, 0.0);
        Data::<f16>::integers(&Case { page: Some(16), ..case }).check(&stream, 0.0);
    }
}

#[test]
fn tokens_outside_the_cache_are_skipped() {
    // Tokens before the first position, beyond the capacity and beyond the tables.
    let case = Case { tokens: 3, ..Case::new(64, [2, 1], &[0, 1, 2, 3, 97, 98, 200, u32::MAX, 50]) };
    is_correct::<bf16>(&case);
    is_correct::<bf16>(&Case { page: Some(16), positions: 49, ..case });
    let stream = Stream::new(&under_test::device()).unwrap();
    let case = Case { page: Some(16), ..Case::new(64, [2, 1], &[20, 20, 20]) };
    let mut data = Data::<bf16>::random(&case);
    let planes = case.planes()[0] as u32;
    (data.table[1], data.table[7]) = (planes, u32::MAX);
    data.check(&stream, bf16::PRECISION);
}

#[test]
fn nan_and_infinity_stay_in_their_head() {
    let stream = Stream::new(&under_test::device()).unwrap();
    for has_norm in [false, true] {
        let case = Case { has_norm, ..Case::new(64, [2, 1], &[5, 9]) };
        let mut data = Data::<bf16>::random(&case);
        (data.new[3], data.new[2 * 64 + 1], data.new[3 * 64]) = (bf16::NAN, bf16::INFINITY, bf16::NAN);
        let [out, k, v] = data.run(&stream);
        assert!(out[3].is_nan() && out[35].is_nan() && out[64..].iter().all(|x| x.is_finite()));
        let (k, v) = (&k[4 * 64..5 * 64], &v[4 * 64..5 * 64]);
        assert!(!k[1].is_finite() && v[0].is_nan() && v[1..].iter().all(|x| x.is_finite()));
        if has_norm {
            assert!(out[..64].iter().all(|x| x.is_nan()));
        }
    }
}

#[test]
fn a_graph_appends_at_all_lengths() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let new =
        DeviceBuffer::from_host(&stream, &(0..3 * 64).map(|i| bf16::from_f32(i as f32)).collect::<Vec<_>>());
    let new = new.unwrap();
    let [cos, sin] = [1.0f32, 0.0].map(|x| DeviceBuffer::from_host(&stream, &[x; 40 * 32]).unwrap());
    let mut lengths = DeviceBuffer::from_host(&stream, &[1u32]).unwrap();
    let [mut k, mut v] = [0; 2].map(|_| DeviceBuffer::<bf16>::zeros(&stream, 40 * 64).unwrap());
    let mut out = DeviceBuffer::<bf16>::zeros(&stream, 64).unwrap();
    let graph = Graph::capture(&stream, || {
        let part = |i: usize| Heads::by_token(new.slice(64 * i..64 * (i + 1)).as_3d(1, 1, 64)?, 1);
        let (cos, sin) = (cos.as_2d(40, 32)?, sin.as_2d(40, 32)?);
        let cache = KvCacheMut {
            k: HeadsMut::by_token(k.as_3d_mut(40, 1, 64)?, 1)?,
            v: HeadsMut::by_token(v.as_3d_mut(40, 1, 64)?, 1)?,
            lengths: lengths.as_slice(),
            pages: None,
            scales: None,
        };
        let to = HeadsMut::by_token(out.as_3d_mut(1, 1, 64)?, 1)?;
        let rotary = Rotary { cos, sin, is_interleaved: false, norm: None };
        rotary_append(&stream, &rotary, part(0)?, part(1)?, part(2)?, cache, to)
    })
    .unwrap()
    .instantiate()
    .unwrap();
    for length in [1u32, 2, 40] {
        lengths.copy_from_host(&[length]).unwrap();
        graph.launch(&stream).unwrap();
        let (k, v) = (k.to_host().unwrap(), v.to_host().unwrap());
        let at = (length as usize - 1) * 64;
        assert_eq!(k[at..at + 64], new.to_host().unwrap()[64..128], "{length}");
        assert_eq!(v[at..at + 64], new.to_host().unwrap()[128..], "{length}");
    }
}

#[test]
fn mismatched_sizes_are_refused() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let numbers = DeviceBuffer::<bf16>::zeros(&stream, 1024).unwrap();
    let angles = DeviceBuffer::<f32>::zeros(&stream, 1024).unwrap();
    let lengths = DeviceBuffer::<u32>::zeros(&stream, 4).unwrap();
    let mut pool = DeviceBuffer::<bf16>::zeros(&stream, 1024).unwrap();
    /// Heads of q, k and v, elements per row, columns of the tables, lengths, and elements of the norms.
    type Sizes = ([usize; 3], usize, usize, usize, usize);
    let mut message = |([q_heads, k_heads, v_heads], dim, columns, count, norm): Sizes, first: usize| {
        let part = |heads: usize| {
            Heads::by_token(numbers.slice(first..first + heads * dim).as_3d(1, heads, dim).unwrap(), 1)
        };
        let (cached, out) = pool.as_mut_slice().split_at_mut(512);
        let (k, v) = cached.split_at_mut(256);
        let (mut k, mut v) = (k.into_slice(..2 * dim), v.into_slice(..2 * dim));
        let mut out = out.into_slice(..q_heads * dim);
        let cache = KvCacheMut {
            k: HeadsMut::by_token(k.as_3d_mut(2, 1, dim).unwrap(), 1).unwrap(),
            v: HeadsMut::by_token(v.as_3d_mut(2, 1, dim).unwrap(), 1).unwrap(),
            lengths: lengths.slice(..count),
            pages: None,
            scales: None,
        };
        let table = angles.slice(..3 * columns).as_2d(3, columns).unwrap();
        let norm = HeadNorm { q: numbers.slice(..norm), k: numbers.slice(..norm), epsilon: 0.0 };
        let rotary = Rotary { cos: table, sin: table, is_interleaved: false, norm: Some(norm) };
        let to = HeadsMut::by_token(out.as_3d_mut(1, q_heads, dim).unwrap(), 1).unwrap();
        let [q, k, v] = [q_heads, k_heads, v_heads].map(|heads| part(heads).unwrap());
        rotary_append(&stream, &rotary, q, k, v, cache, to).unwrap_err()
    };
    for (sizes, expected) in [
        (([2, 2, 2], 64, 32, 1, 64), "they must have the same heads"),
        (
            ([2, 1, 2], 64, 32, 1, 64),
            "k is 1 sequences of 1 heads of 1 rows of 64, and v is 1 sequences of 2 heads",
        ),
        (
            ([2, 1, 1], 64, 16, 1, 64),
            "cos is 3 x 16 and sin 3 x 16: both must have as many rows, and 32 columns",
        ),
        (([2, 1, 1], 64, 32, 2, 64), "there are 2 lengths for 1 sequences"),
        (([2, 1, 1], 64, 32, 1, 32), "the norms have [32, 32] elements for rows of 64"),
        (([2, 1, 1], 30, 15, 1, 30), "a row has 30 elements: it must have a multiple of 4"),
    ] {
        let text = message(sizes, 0).to_string();
        assert!(text.starts_with("rotary_append: ") && text.contains(expected), "{text}");
    }
    let error = message(([2, 1, 1], 64, 32, 1, 64), 1);
    assert!(matches!(error.downcast_ref(), Some(TensorError::Alignment { matrix: "q", .. })), "{error}");
}

#[test]
fn lengths_and_pages_out_of_range_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let pool = DeviceBuffer::<bf16>::zeros(&stream, 4 * 16 * 64).unwrap();
    let heads = Heads::by_token(pool.as_3d(4 * 16, 1, 64).unwrap(), 4).unwrap();
    let check = |lengths: [u32; 2], table: [u32; 4]| {
        let lengths = DeviceBuffer::from_host(&stream, &lengths).unwrap();
        let table = DeviceBuffer::from_host(&stream, &table).unwrap();
        let pages = Some(table.as_2d(2, 2).unwrap());
        KvCache { k: heads, v: heads, lengths: lengths.as_slice(), pages, scales: None }
            .check()
            .map_err(|e| e.to_string())
    };
    assert_eq!(check([16, 32], [3, u32::MAX, 0, 1]), Ok(()));
    let text = check([16, 33], [3, 9, 0, 1]).unwrap_err();
    assert_eq!(text, "KvCache: lengths[1] is 33, but must be below 33");
    let text = check([17, 32], [3, 0, 0, 4]).unwrap_err();
    assert_eq!(text, "KvCache: pages[3] is 4, but must be below 4");
}

/// A decoding step by two kernels, and by one.
struct Step<C> {
    cached: [Vec<C>; 2],
    scale: Option<f32>,
    options: AttentionDecode<'static>,
}

impl<C> Step<C> {
    fn random<T>(data: &Data<T>, scale: Option<f32>, encode: fn(f32) -> C) -> Self {
        let ([planes, rows], mut random) = (data.case.planes(), fastrand::Rng::with_seed(7));
        let len = planes * rows * data.case.heads[1] * data.case.dim;
        let cached = [0; 2].map(|_| (0..len).map(|_| encode(random.f32() * 2.0 - 1.0)).collect());
        Self { cached, scale, options: AttentionDecode::default() }
    }

    /// Rotates and appends, and then computes attention.
    fn separate<T>(&self, stream: &Stream, data: &Data<T>) -> (Vec<T>, [Vec<C>; 2])
    where
        T: Precise + AppendElement<T> + DecodeElement,
        C: AppendElement<T> + CacheElement<T>,
    {
        let ([planes, rows], case) = (data.case.planes(), &data.case);
        let cached = self.cached.each_ref().map(Vec::as_slice);
        let (q, cached) = data.with_operands(stream, cached, self.scale, |rotary, [q, k, v], cache| {
            data.out(stream, |out| rotary_append(stream, rotary, q, k, v, cache, out))
        });
        let q = DeviceBuffer::from_host(stream, &q).unwrap();
        let [k, v] = cached.each_ref().map(|cached| DeviceBuffer::from_host(stream, cached).unwrap());
        let view = |buffer| match case.is_by_head {
            true => Heads::by_head(
                DeviceBuffer::as_3d(buffer, planes * case.heads[1], rows, case.dim).unwrap(),
                planes,
            ),
            false => Heads::by_token(
                DeviceBuffer::as_3d(buffer, planes * rows, case.heads[1], case.dim).unwrap(),
                planes,
            ),
        };
        let sequences = case.lengths.len();
        let lengths = DeviceBuffer::from_host(stream, &case.lengths).unwrap();
        let table = DeviceBuffer::from_host(stream, &data.table).unwrap();
        let pages = case.page.map(|page| {
            let columns = case.capacity / page;
            table.slice(..sequences * columns).as_2d(sequences, columns).unwrap()
        });
        let scales =
            DeviceBuffer::from_host(stream, &vec![self.scale.unwrap_or(1.0); case.heads[1]]).unwrap();
        let scales = self.scale.map(|_| [scales.as_slice(); 2]);
        let cache = KvCache {
            k: view(&k).unwrap(),
            v: view(&v).unwrap(),
            lengths: lengths.as_slice(),
            pages,
            scales,
        };
        let q = Heads::by_token(q.as_3d(sequences, case.heads[0], case.dim).unwrap(), sequences).unwrap();
        (data.out(stream, |out| attention_decode(stream, &self.options, q, &cache, out)), cached)
    }

    /// Computes the step with one kernel.
    fn fused<T>(&self, stream: &Stream, data: &Data<T>) -> (Vec<T>, [Vec<C>; 2])
    where
        T: Precise + AppendElement<T> + DecodeElement,
        C: AppendElement<T> + CacheElement<T>,
    {
        let cached = self.cached.each_ref().map(Vec::as_slice);
        data.with_operands(stream, cached, self.scale, |&rotary, [q, k, v], cache| {
            let new = NewTokens { k, v, rotary };
            data.out(stream, |out| attention_decode_append(stream, &self.options, q, &new, cache, out))
        })
    }
}

/// Without a norm, the results must be identical. With a norm, numbers can be rounded differently.
fn is_fused<T, C>(
    case: &Case,
    scale: Option<f32>,
    options: AttentionDecode<'static>,
    encode: fn(f32) -> C,
    value: fn(C) -> f64,
) where
    T: Precise + AppendElement<T> + DecodeElement,
    C: AppendElement<T> + CacheElement<T>,
{
    let stream = Stream::new(&under_test::device()).unwrap();
    for (is_interleaved, has_norm) in [(false, false), (true, false), (false, true), (true, true)] {
        let case = Case { is_interleaved, has_norm, ..case.clone() };
        let data = Data::<T>::random(&case);
        let step = Step { options, ..Step::random(&data, scale, encode) };
        let (expected, expected_cache) = step.separate(&stream, &data);
        let (found, cache) = step.fused(&stream, &data);
        let of_sequence = case.heads[0] * case.dim;
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            // The separate kernels attend with a query of zeros.
            let is_inside = case.position(i / of_sequence, 0).is_some();
            let (found, expected) = (found.value(), if is_inside { expected.value() } else { 0.0 });
            let allowed = if has_norm { 8.0 * T::PRECISION } else { 0.0 };
            assert!(
                (found - expected).abs() <= allowed,
                "{case:?}, element {i}: {found} instead of {expected}"
            );
        }
        for (cache, expected) in cache.into_iter().zip(expected_cache) {
            for (i, (found, expected)) in cache.into_iter().zip(expected).enumerate() {
                let (found, expected) = (value(found), value(expected));
                // A number of 8 bits can be rounded to its neighbor.
                let precision = if size_of::<C>() == 1 { 0.125 } else { T::PRECISION };
                let allowed = if has_norm { precision * expected.abs().max(8.0) } else { 0.0 };
                assert!(
                    (found - expected).abs() <= allowed,
                    "{case:?}, {i} in the cache: {found}, {expected}"
                );
            }
        }
    }
}

fn is_fused_16<T: Precise + AppendElement<T> + DecodeElement + CacheElement<T>>(
    case: &Case,
    options: AttentionDecode<'static>,
) {
    is_fused::<T, T>(case, None, options, T::of, T::value);
}

#[test]
fn one_kernel_rotates_appends_and_attends() {
    let none = AttentionDecode::default();
    for dim in [64, 128, 256] {
        is_fused_16::<bf16>(&Case::new(dim, [4, 1], &[1, 96, 17, 16, 15]), none);
        is_fused_16::<f16>(&Case { is_by_head: true, ..Case::new(dim, [20, 2], &[2, 50]) }, none);
    }
    // Several blocks per sequence.
    let long = Case { capacity: 3000, positions: 3000, ..Case::new(128, [8, 2], &[2999, 64, 65, 3000]) };
    is_fused_16::<bf16>(&long, none);
    let options = AttentionDecode { window: Some(40), soft_cap: Some(2.0), scale: Some(0.25), ..none };
    is_fused_16::<bf16>(&Case { capacity: 3008, positions: 3008, page: Some(16), ..long }, options);
    is_fused_16::<f16>(&Case { page: Some(32), ..Case::new(64, [3, 3], &[1, 33, 64, 96]) }, options);
}

#[test]
fn one_kernel_appends_to_caches_of_8_bits() {
    let none = AttentionDecode::default();
    for dim in [64, 128, 256] {
        let case = Case { page: Some(16), ..Case::new(dim, [4, 2], &[1, 33, 96, 16]) };
        is_fused::<bf16, i8>(&case, Some(1.0 / 64.0), none, |x| (x * 64.0) as i8, f64::from);
        is_fused::<f16, i8>(&case, Some(1.0 / 64.0), none, |x| (x * 64.0) as i8, f64::from);
        is_fused::<bf16, F8E4M3>(&case, None, none, F8E4M3::from_f32, |x| x.to_f32().into());
        is_fused::<f16, F8E4M3>(&case, Some(0.5), none, F8E4M3::from_f32, |x| x.to_f32().into());
    }
}

#[test]
fn one_kernel_skips_tokens_outside_the_cache() {
    let none = AttentionDecode::default();
    // Tokens before the first position, beyond the capacity and beyond the tables.
    let case = Case::new(64, [2, 1], &[0, 1, 97, 98, 200, u32::MAX, 50]);
    is_fused_16::<bf16>(&case, none);
    is_fused_16::<bf16>(&Case { page: Some(16), positions: 49, ..case }, none);
    let stream = Stream::new(&under_test::device()).unwrap();
    let mut data = Data::<bf16>::random(&Case { page: Some(16), ..Case::new(64, [2, 1], &[20, 20, 20]) });
    let planes = data.case.planes()[0] as u32;
    (data.table[1], data.table[7]) = (planes, u32::MAX);
    // The value of a token that is not appended is NaN, and must not reach the output.
    data.new[3 * 64] = bf16::NAN;
    let step = Step::<bf16>::random(&data, None, bf16::from_f32);
    assert_eq!(step.fused(&stream, &data), step.separate(&stream, &data));
}

/// The kernel reads the cache before the preceding kernel has completed, but not the new tokens, which that kernel
/// writes.
#[test]
fn a_graph_decodes_at_all_lengths() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let case = Case { capacity: 512, ..Case::new(128, [4, 1], &[1]) };
    let data = Data::<bf16>::random(&case);
    let of_token = DeviceBuffer::from_host(&stream, &data.new).unwrap();
    let mut qkv = DeviceBuffer::<bf16>::zeros(&stream, data.new.len()).unwrap();
    let [cos, sin] = [&data.cos, &data.sin].map(|table| DeviceBuffer::from_host(&stream, table).unwrap());
    let mut lengths = DeviceBuffer::from_host(&stream, &[1u32]).unwrap();
    let [mut k, mut v] = [0; 2].map(|_| DeviceBuffer::<bf16>::zeros(&stream, 512 * 128).unwrap());
    let mut out = DeviceBuffer::<bf16>::zeros(&stream, 4 * 128).unwrap();
    let graph = Graph::capture(&stream, || {
        stream.copy(&of_token, &mut qkv)?;
        let part = |first: usize, heads: usize| {
            Heads::by_token(qkv.slice(128 * first..128 * (first + heads)).as_3d(1, heads, 128)?, 1)
        };
        let cache = KvCacheMut {
            k: HeadsMut::by_token(k.as_3d_mut(512, 1, 128)?, 1)?,
            v: HeadsMut::by_token(v.as_3d_mut(512, 1, 128)?, 1)?,
            lengths: lengths.as_slice(),
            pages: None,
            scales: None,
        };
        let (cos, sin) = (cos.as_2d(case.positions, 64)?, sin.as_2d(case.positions, 64)?);
        let rotary = Rotary { cos, sin, is_interleaved: false, norm: None };
        let new = NewTokens { k: part(4, 1)?, v: part(5, 1)?, rotary };
        let to = HeadsMut::by_token(out.as_3d_mut(1, 4, 128)?, 1)?;
        attention_decode_append(&stream, &AttentionDecode::default(), part(0, 4)?, &new, cache, to)
    })
    .unwrap()
    .instantiate()
    .unwrap();
    for length in 1..=40u32 {
        lengths.copy_from_host(&[length]).unwrap();
        let before = [k.to_host().unwrap(), v.to_host().unwrap()];
        graph.launch(&stream).unwrap();
        let data =
            Data { case: Case { lengths: vec![length], ..case.clone() }, ..Data::<bf16>::random(&case) };
        let step = Step { cached: before, scale: None, options: AttentionDecode::default() };
        let found = (out.to_host().unwrap(), [k.to_host().unwrap(), v.to_host().unwrap()]);
        assert_eq!(found, step.separate(&stream, &data), "{length}");
    }
}

#[test]
fn one_kernel_refuses_several_tokens_and_unaligned_tables() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let numbers = DeviceBuffer::<bf16>::zeros(&stream, 6 * 64).unwrap();
    let angles = DeviceBuffer::<f32>::zeros(&stream, 100).unwrap();
    let lengths = DeviceBuffer::<u32>::zeros(&stream, 1).unwrap();
    let [mut k, mut v] = [0; 2].map(|_| DeviceBuffer::<bf16>::zeros(&stream, 16 * 64).unwrap());
    let mut message = |tokens: usize, first: usize| {
        let part = |i: usize| {
            let elements = numbers.slice(64 * tokens * i..64 * tokens * (i + 1));
            Heads::by_token(elements.as_3d(tokens, 1, 64).unwrap(), 1).unwrap()
        };
        let cache = KvCacheMut {
            k: HeadsMut::by_token(k.as_3d_mut(16, 1, 64).unwrap(), 1).unwrap(),
            v: HeadsMut::by_token(v.as_3d_mut(16, 1, 64).unwrap(), 1).unwrap(),
            lengths: lengths.as_slice(),
            pages: None,
            scales: None,
        };
        let table = angles.slice(first..first + 2 * 32).as_2d(2, 32).unwrap();
        let rotary = Rotary { cos: table, sin: table, is_interleaved: false, norm: None };
        let new = NewTokens { k: part(1), v: part(2), rotary };
        let mut out = DeviceBuffer::<bf16>::zeros(&stream, 64 * tokens).unwrap();
        let to = HeadsMut::by_token(out.as_3d_mut(tokens, 1, 64).unwrap(), 1).unwrap();
        attention_decode_append(&stream, &AttentionDecode::default(), part(0), &new, cache, to).unwrap_err()
    };
    assert_eq!(
        message(2, 0).to_string(),
        "attention_decode_append: q is 1 sequences of 1 heads of 2 rows of 64: it must have heads, and one row per \
         sequence"
    );
    let error = message(1, 1);
    assert!(matches!(error.downcast_ref(), Some(TensorError::Alignment { matrix: "cos", .. })), "{error}");
}
