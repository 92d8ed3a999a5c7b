//! Tests attention for decoding against an `f64` reference. Rows of the cache that no sequence attends to are NaN, and
//! each result is computed twice, with poisoned outputs.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, DeviceCopy, Graph, Stream};
use warpsmith_tensor::{
    AttentionDecode, CacheElement, DecodeElement, F8E4M3, Heads, HeadsMut, KvCache, TensorError,
    attention_decode,
};

use crate::attention::Precise;
use crate::under_test;

/// Problem of one test.
#[derive(Debug, Clone)]
struct Case {
    dim: usize,
    /// Number of heads of q, and of k and v.
    heads: [usize; 2],
    lengths: Vec<u32>,
    /// Maximum number of keys per sequence.
    capacity: usize,
    /// Page size of a paged cache.
    page: Option<usize>,
    /// True if heads are stored consecutively.
    is_by_head: bool,
    /// Number of queries per sequence.
    queries: usize,
    window: Option<usize>,
    soft_cap: Option<f32>,
    has_sinks: bool,
}

impl Case {
    fn new(dim: usize, lengths: &[u32], capacity: usize) -> Self {
        let lengths = lengths.to_vec();
        Self {
            dim,
            heads: [1, 1],
            lengths,
            capacity,
            page: None,
            is_by_head: false,
            queries: 1,
            window: None,
            soft_cap: None,
            has_sinks: false,
        }
    }

    fn queries(self, queries: usize) -> Self {
        Self { queries, ..self }
    }

    fn window(self, window: usize) -> Self {
        Self { window: Some(window), ..self }
    }

    /// Keys to which a query attends.
    fn range(&self, sequence: usize, query: usize) -> std::ops::Range<usize> {
        let end = (self.keys(sequence) + query + 1).saturating_sub(self.queries);
        end.saturating_sub(self.window.unwrap_or(end))..end
    }

    fn heads(self, heads: [usize; 2]) -> Self {
        Self { heads, ..self }
    }

    fn paged(self, page: usize) -> Self {
        Self { page: Some(page), ..self }
    }

    /// Number of keys of a sequence.
    fn keys(&self, sequence: usize) -> usize {
        (self.lengths[sequence] as usize).min(self.capacity)
    }

    /// Number of planes of k and v, and rows per plane.
    fn planes(&self) -> [usize; 2] {
        let sequences = self.lengths.len();
        match self.page {
            // Some pages belong to no sequence.
            Some(page) => [(0..sequences).map(|i| self.keys(i).div_ceil(page)).sum::<usize>() + 3, page],
            None => [sequences, self.capacity],
        }
    }

    /// Offset of a row of k or v.
    fn at(&self, plane: usize, head: usize, row: usize) -> usize {
        let ([_, rows], heads) = (self.planes(), self.heads[1]);
        let row = if self.is_by_head {
            (plane * heads + head) * rows + row
        } else {
            (plane * rows + row) * heads + head
        };
        row * self.dim
    }

    fn view<'a, T: DeviceCopy>(&self, buffer: &'a DeviceBuffer<T>) -> Heads<'a, T> {
        let ([planes, rows], heads) = (self.planes(), self.heads[1]);
        match self.is_by_head {
            true => Heads::by_head(buffer.as_3d(planes * heads, rows, self.dim).unwrap(), planes),
            false => Heads::by_token(buffer.as_3d(planes * rows, heads, self.dim).unwrap(), planes),
        }
        .unwrap()
    }
}

/// Host data.
struct Data<T> {
    case: Case,
    q: Vec<T>,
    k: Vec<T>,
    v: Vec<T>,
    table: Vec<u32>,
    sinks: Vec<f32>,
}

impl<T: Precise + DecodeElement + CacheElement<T>> Data<T> {
    /// Random numbers, and a block table of shuffled pages. Elements that no key requires are out of range.
    fn random(case: &Case) -> Self {
        let mut random = fastrand::Rng::with_seed(case.lengths.iter().map(|&length| u64::from(length)).sum());
        let [planes, rows] = case.planes();
        let mut numbers = |len: usize, largest: f32| -> Vec<T> {
            (0..len).map(|_| T::of((random.f32() * 2.0 - 1.0) * largest)).collect()
        };
        let sequences = case.lengths.len();
        let q = numbers(sequences * case.queries * case.heads[0] * case.dim, 3.0);
        let len = planes * rows * case.heads[1] * case.dim;
        let (k, v) = (numbers(len, 1.0), numbers(len, 1.0));
        let mut pages: Vec<u32> = (0..planes as u32).collect();
        random.shuffle(&mut pages);
        let mut table = Vec::new();
        if let Some(page) = case.page {
            for sequence in 0..sequences {
                let (all, used) = (case.capacity / page, case.keys(sequence).div_ceil(page));
                table.extend(pages.drain(..used).chain(std::iter::repeat_n(u32::MAX, all - used)));
            }
        }
        let sinks = (0..case.heads[0]).map(|head| head as f32 - 1.5).collect();
        Self { case: case.clone(), q, k, v, table, sinks }
    }

    /// Plane and row of each key to which any query of a sequence attends.
    fn keys(&self, sequence: usize) -> Vec<[usize; 2]> {
        self.keys_in(sequence, self.case.range(sequence, 0).start..self.case.keys(sequence))
    }

    /// Plane and row of each key in a range.
    fn keys_in(&self, sequence: usize, range: std::ops::Range<usize>) -> Vec<[usize; 2]> {
        let case = &self.case;
        let Some(page) = case.page else { return range.map(|row| [sequence, row]).collect() };
        let pages = &self.table[sequence * (case.capacity / page)..];
        let [planes, _] = case.planes();
        let all = range.map(|key| [pages[key / page] as usize, key % page]);
        all.filter(|&[plane, _]| plane < planes).collect()
    }

    /// Replaces all rows of k and v that no sequence attends to by NaN.
    fn poisoned(mut self) -> Self {
        let mut is_used = vec![false; self.k.len()];
        for [plane, row] in (0..self.case.lengths.len()).flat_map(|sequence| self.keys(sequence)) {
            for head in 0..self.case.heads[1] {
                let at = self.case.at(plane, head, row);
                is_used[at..at + self.case.dim].fill(true);
            }
        }
        for (i, is_used) in is_used.into_iter().enumerate() {
            if !is_used {
                (self.k[i], self.v[i]) = (T::of(f32::NAN), T::of(f32::NAN));
            }
        }
        self
    }

    /// Computes `out` on the device.
    fn attend(&self, stream: &Stream) -> Vec<T> {
        let case = &self.case;
        let on = |numbers: &[T]| DeviceBuffer::from_host(stream, numbers).unwrap();
        let (k, v) = (on(&self.k), on(&self.v));
        let lengths = DeviceBuffer::from_host(stream, &case.lengths).unwrap();
        let table = DeviceBuffer::from_host(stream, &self.table).unwrap();
        let pages = case.page.map(|page| table.as_2d(case.lengths.len(), case.capacity / page).unwrap());
        self.run(
            stream,
            &KvCache { k: case.view(&k), v: case.view(&v), lengths: lengths.as_slice(), pages, scales: None },
        )
    }

    /// Computes `out` on the device with a cache, twice.
    fn run<C: CacheElement<T>>(&self, stream: &Stream, cache: &KvCache<'_, C>) -> Vec<T> {
        let (case, on) = (&self.case, |numbers: &[T]| DeviceBuffer::from_host(stream, numbers).unwrap());
        let (sequences, q) = (case.lengths.len(), on(&self.q));
        let [tokens, heads, dim] = [sequences * case.queries, case.heads[0], case.dim];
        let sinks = DeviceBuffer::from_host(stream, &self.sinks).unwrap();
        let sinks = case.has_sinks.then_some(sinks.as_slice());
        let options = AttentionDecode { scale: None, window: case.window, soft_cap: case.soft_cap, sinks };
        let run = || {
            let mut out = on(&vec![T::of(777.0); self.q.len()]);
            let to = HeadsMut::by_token(out.as_3d_mut(tokens, heads, dim).unwrap(), sequences).unwrap();
            let q = Heads::by_token(q.as_3d(tokens, heads, dim).unwrap(), sequences).unwrap();
            attention_decode(stream, &options, q, cache, to).unwrap();
            out.to_host().unwrap()
        };
        let out = run();
        let bits = |out: &[T]| out.iter().map(|x| x.value().to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&out), bits(&run()), "{case:?}: the results differ");
        out
    }

    /// Fails if a row of `out` is incorrect.
    fn check(&self, out: &[T]) {
        let (case, dim) = (&self.case, self.case.dim);
        let slice =
            |numbers: &[T], at: usize| numbers[at..at + dim].iter().map(|x| x.value()).collect::<Vec<_>>();
        let rows = (0..case.lengths.len()).flat_map(|sequence| (0..case.queries).map(move |i| (sequence, i)));
        for (sequence, query) in rows {
            let keys = self.keys_in(sequence, case.range(sequence, query));
            for head in 0..case.heads[0] {
                let kv_head = head / (case.heads[0] / case.heads[1]);
                let row = ((sequence * case.queries + query) * case.heads[0] + head) * dim;
                let q = slice(&self.q, row);
                let rows: Vec<usize> =
                    keys.iter().map(|&[plane, row]| case.at(plane, kv_head, row)).collect();
                let score = |k: Vec<f64>| {
                    let score = q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() / (dim as f64).sqrt();
                    case.soft_cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                };
                let scores: Vec<f64> = rows.iter().map(|&at| score(slice(&self.k, at))).collect();
                let sink = if case.has_sinks { f64::from(self.sinks[head]) } else { f64::NEG_INFINITY };
                let largest = scores.iter().copied().fold(sink, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
                let sum = weights.iter().sum::<f64>() + (sink - largest).exp();
                let mut expected = vec![[0.0; 2]; dim];
                for (&at, weight) in rows.iter().zip(&weights) {
                    for (expected, v) in expected.iter_mut().zip(slice(&self.v, at)) {
                        expected[0] += weight / sum * v;
                        expected[1] += weight / sum * v.abs();
                    }
                }
                for (i, [expected, mean]) in expected.into_iter().enumerate() {
                    let value = out[row + i].value();
                    let allowed = (expected.abs() + mean) * T::PRECISION + 1e-6;
                    assert!(
                        (value - expected).abs() <= allowed,
                        "{case:?}, sequence {sequence}, query {query}, head {head}, element {i}: {value} instead of \
                         {expected}"
                    );
                }
            }
        }
    }
}

fn is_correct<T: Precise + DecodeElement + CacheElement<T>>(case: &Case) {
    let stream = Stream::new(&under_test::device()).unwrap();
    let data = Data::<T>::random(case).poisoned();
    data.check(&data.attend(&stream));
}

/// Attends to keys and values of 8 bits. `encode` rounds a number up to 64, and returns the code and its value. Rows
/// that no sequence attends to are `poison`.
fn is_correct_with<T: Precise + DecodeElement + CacheElement<T>, C: CacheElement<T>>(
    case: &Case,
    poison: C,
    encode: fn(f32) -> (C, f32),
) {
    let stream = Stream::new(&under_test::device()).unwrap();
    let mut data = Data::<T>::random(case).poisoned();
    let ([_, rows], heads) = (case.planes(), case.heads[1]);
    let scales: Vec<f32> = (0..heads).map(|head| [0.25, 1.0, 0.5][head % 3] / 16.0).collect();
    let head = |i: usize| if case.is_by_head { i / case.dim / rows % heads } else { i / case.dim % heads };
    let code = |(i, number): (usize, &mut T)| {
        if number.value().is_nan() {
            return poison;
        }
        let (code, value) = encode(number.value() as f32 / scales[head(i)]);
        *number = T::of(value * scales[head(i)]);
        code
    };
    let [k, v] = [&mut data.k, &mut data.v]
        .map(|numbers| numbers.iter_mut().enumerate().map(code).collect::<Vec<C>>());
    let (k, v) =
        (DeviceBuffer::from_host(&stream, &k).unwrap(), DeviceBuffer::from_host(&stream, &v).unwrap());
    let scales = DeviceBuffer::from_host(&stream, &scales).unwrap();
    let lengths = DeviceBuffer::from_host(&stream, &case.lengths).unwrap();
    let table = DeviceBuffer::from_host(&stream, &data.table).unwrap();
    let pages = case.page.map(|page| table.as_2d(case.lengths.len(), case.capacity / page).unwrap());
    let scales = Some([scales.as_slice(); 2]);
    let cache = KvCache { k: case.view(&k), v: case.view(&v), lengths: lengths.as_slice(), pages, scales };
    data.check(&data.run(&stream, &cache));
}

#[test]
fn caches_of_8_bits_are_attended() {
    let integer = |x: f32| (x.round() as i8, x.round());
    let e4m3 = |x: f32| (F8E4M3::from_f32(x), F8E4M3::from_f32(x).to_f32());
    let nan = F8E4M3::from_bits(0x7f);
    for case in [
        Case::new(64, &[0, 1, 17, 150, 200], 200).heads([6, 3]),
        Case::new(128, &[33, 300, 2999], 3000).heads([4, 1]).queries(2),
        Case { is_by_head: true, ..Case::new(256, &[70, 9], 70).heads([4, 2]) },
        Case::new(64, &[100, 64], 160).heads([20, 2]).paged(32).window(50),
        Case { soft_cap: Some(2.0), has_sinks: true, ..Case::new(128, &[60], 64).heads([8, 2]) },
    ] {
        is_correct_with::<bf16, i8>(&case, -128, integer);
        is_correct_with::<f16, i8>(&case, 127, integer);
        is_correct_with::<bf16, F8E4M3>(&case, nan, e4m3);
        is_correct_with::<f16, F8E4M3>(&case, nan, e4m3);
    }
}

/// With one key, the result is the value of the key.
#[test]
fn all_codes_of_8_bits_are_exact() {
    fn values<T: Precise + DecodeElement + CacheElement<T>, C: CacheElement<T>>(codes: &[C]) -> Vec<f64> {
        let stream = Stream::new(&under_test::device()).unwrap();
        let zeros = DeviceBuffer::<C>::zeros(&stream, 256).unwrap();
        let v = DeviceBuffer::from_host(&stream, codes).unwrap();
        let q = DeviceBuffer::<T>::zeros(&stream, 256).unwrap();
        let mut out = DeviceBuffer::<T>::zeros(&stream, 256).unwrap();
        let lengths = DeviceBuffer::from_host(&stream, &[1u32]).unwrap();
        let view = |buffer| Heads::by_token(DeviceBuffer::as_3d(buffer, 1, 1, 256).unwrap(), 1).unwrap();
        let cache =
            KvCache { k: view(&zeros), v: view(&v), lengths: lengths.as_slice(), pages: None, scales: None };
        let q = Heads::by_token(q.as_3d(1, 1, 256).unwrap(), 1).unwrap();
        let to = HeadsMut::by_token(out.as_3d_mut(1, 1, 256).unwrap(), 1).unwrap();
        attention_decode(&stream, &AttentionDecode::default(), q, &cache, to).unwrap();
        out.to_host().unwrap().into_iter().map(|x| x.value()).collect()
    }
    let codes: Vec<u8> = (0..=255).collect();
    let integers: Vec<i8> = codes.iter().map(|&code| code as i8).collect();
    let expected: Vec<f64> = integers.iter().map(|&code| f64::from(code)).collect();
    assert_eq!(values::<bf16, _>(&integers), expected);
    assert_eq!(values::<f16, _>(&integers), expected);
    let numbers: Vec<F8E4M3> = codes.iter().map(|&code| F8E4M3::from_bits(code)).collect();
    for found in [values::<bf16, _>(&numbers), values::<f16, _>(&numbers)] {
        for (number, found) in numbers.iter().zip(found) {
            let expected = f64::from(number.to_f32());
            assert!(
                found == expected || found.is_nan() && expected.is_nan(),
                "{found} instead of {expected}"
            );
        }
    }
}

#[test]
fn heads_of_all_sizes_and_types_are_attended() {
    for dim in [64, 128, 256] {
        is_correct::<bf16>(&Case::new(dim, &[150], 150));
        is_correct::<f16>(&Case::new(dim, &[70], 100).heads([2, 1]));
    }
}

#[test]
fn lengths_around_tiles_are_attended() {
    let lengths = [0, 1, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 200];
    is_correct::<bf16>(&Case::new(64, &lengths, 200));
    is_correct::<bf16>(&Case::new(64, &[0], 1));
    is_correct::<bf16>(&Case::new(256, &[1, 33, 32, 31], 33));
    // One sequence is split over several blocks, which have several tiles per warp.
    is_correct::<bf16>(&Case::new(64, &[2999], 3000));
    is_correct::<f16>(&Case::new(64, &[700], 5000));
}

#[test]
fn groups_of_heads_share_keys_in_both_layouts() {
    for (heads, is_by_head) in
        [([4, 1], false), ([8, 1], true), ([6, 2], true), ([16, 1], false), ([18, 2], true)]
    {
        is_correct::<bf16>(&Case { is_by_head, ..Case::new(64, &[90, 33], 100).heads(heads) });
    }
    is_correct::<bf16>(&Case::new(128, &[300], 300).heads([16, 1]));
    is_correct::<f16>(&Case::new(256, &[70], 80).heads([12, 1]));
    // A group of more than 16 heads has several units.
    is_correct::<bf16>(&Case::new(64, &[70, 9], 70).heads([40, 1]));
}

#[test]
fn several_queries_attend_to_the_keys_up_to_their_own() {
    // Sequences with fewer keys than queries, and several units per head of k.
    let lengths = [0, 1, 2, 5, 16, 17, 100, 128];
    is_correct::<bf16>(&Case::new(64, &lengths, 128).heads([2, 1]).queries(4));
    is_correct::<bf16>(&Case::new(64, &lengths, 128).heads([6, 2]).queries(5).paged(16));
    is_correct::<f16>(&Case::new(128, &[300, 7], 300).heads([4, 1]).queries(8));
    is_correct::<bf16>(&Case::new(256, &[90], 90).heads([4, 1]).queries(3));
    is_correct::<bf16>(&Case::new(64, &[2999], 3000).queries(8));
}

#[test]
fn windows_soft_caps_and_sinks_apply() {
    let lengths = [0, 1, 15, 16, 17, 40, 100, 200];
    for window in [1, 16, 50, 1000] {
        is_correct::<bf16>(&Case::new(64, &lengths, 200).heads([4, 2]).window(window));
        is_correct::<bf16>(&Case::new(64, &lengths, 208).heads([3, 1]).queries(3).window(window).paged(16));
    }
    // The window is split over several blocks.
    is_correct::<f16>(&Case::new(64, &[7000, 4000], 7000).queries(2).window(2500));
    let capped = |case: Case| Case { soft_cap: Some(2.0), ..case };
    is_correct::<bf16>(&capped(Case::new(64, &lengths, 200).heads([4, 2])));
    is_correct::<bf16>(&capped(Case::new(128, &[90], 200).queries(2).window(64)));
    let with_sinks = |case: Case| Case { has_sinks: true, ..case };
    is_correct::<bf16>(&with_sinks(Case::new(64, &lengths, 200).heads([4, 2])));
    is_correct::<bf16>(&with_sinks(Case::new(64, &[2999, 0], 3000).heads([8, 1]).window(1500)));
    is_correct::<f16>(&with_sinks(capped(Case::new(256, &[60], 64).heads([4, 1]).queries(2))));
}

#[test]
fn keys_and_values_can_be_parts_of_one_buffer() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let case = Case::new(64, &[100, 37], 120).heads([4, 2]);
    let data = Data::<bf16>::random(&case);
    let width = 2 * 64;
    let tokens = data.k.chunks(width).zip(data.v.chunks(width));
    let both: Vec<bf16> = tokens.flat_map(|(k, v)| [k, v].concat()).collect();
    let both = DeviceBuffer::from_host(&stream, &both).unwrap();
    let part = |first: usize| {
        let part = both.slice(first..both.len() - width + first);
        Heads::by_token(part.as_3d_strided([2 * 120, 2, 64], [2 * width, 64]).unwrap(), 2).unwrap()
    };
    let lengths = DeviceBuffer::from_host(&stream, &case.lengths).unwrap();
    let cache =
        KvCache { k: part(0), v: part(width), lengths: lengths.as_slice(), pages: None, scales: None };
    data.check(&data.run(&stream, &cache));
}

#[test]
fn pages_are_attended() {
    for (page, is_by_head) in [(16, false), (48, true), (256, false)] {
        let case = Case::new(64, &[0, 1, 250, 700, 768], 768).heads([4, 2]).paged(page);
        is_correct::<bf16>(&Case { is_by_head, ..case });
    }
    is_correct::<f16>(&Case::new(128, &[100, 64], 160).heads([9, 1]).paged(32));
    // Each sequence has one block, and a warp more than 64 tiles, of which it loads the page indices of 32 at once.
    let mut lengths = [0; 150];
    (lengths[0], lengths[149]) = (4700, 2100);
    is_correct::<bf16>(&Case::new(64, &lengths, 4704).paged(16));
}

#[test]
fn sequences_share_pages() {
    let case = Case::new(64, &[64, 50, 64], 64).heads([2, 1]).paged(16);
    let mut data = Data::<bf16>::random(&case);
    data.table.copy_within(0..3, 4);
    let first = data.table[0];
    data.table[8..].fill(first);
    let data = data.poisoned();
    data.check(&data.attend(&Stream::new(&under_test::device()).unwrap()));
}

#[test]
fn lengths_and_pages_out_of_range_are_safe() {
    is_correct::<bf16>(&Case::new(64, &[u32::MAX, 101, 100], 100));
    is_correct::<bf16>(&Case::new(64, &[u32::MAX, 97, 5], 96).paged(32));
    let stream = Stream::new(&under_test::device()).unwrap();
    let case = Case::new(64, &[200, 40, 64], 208).heads([2, 1]).paged(16);
    let mut data = Data::<bf16>::random(&case);
    let [planes, _] = case.planes();
    (data.table[3], data.table[12], data.table[14]) = (planes as u32, u32::MAX, 1 << 31);
    data.table[26..].fill(u32::MAX);
    let data = data.poisoned();
    let out = data.attend(&stream);
    data.check(&out);
    assert!(out[2 * 2 * 64..].iter().all(|x| *x == bf16::ZERO), "no page of the last sequence exists");
}

#[test]
fn equal_scores_yield_exact_means() {
    let stream = Stream::new(&under_test::device()).unwrap();
    for (lengths, heads) in [(&[1, 2, 77, 128, 300][..], [8, 1]), (&[2000][..], [16, 1])] {
        let case = Case::new(64, lengths, 2000).heads(heads);
        let mut data = Data::<bf16>::random(&case);
        data.q.fill(bf16::ZERO);
        for (i, v) in data.v.iter_mut().enumerate() {
            *v = bf16::from_f32((i * 7 % 13) as f32 - 6.0);
        }
        let data = data.poisoned();
        let out = data.attend(&stream);
        for (i, row) in out.chunks(64).enumerate() {
            let keys = data.keys(i / heads[0]);
            for (element, found) in row.iter().enumerate() {
                let values =
                    keys.iter().map(|&[plane, row]| data.v[case.at(plane, 0, row) + element].to_f32());
                let expected = values.sum::<f32>() / keys.len() as f32;
                assert_eq!(*found, bf16::from_f32(expected), "{case:?}, row {i}, element {element}");
            }
        }
    }
}

#[test]
fn nan_and_infinity_propagate() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let case = Case::new(64, &[100, 400, 20], 400).heads([2, 1]);
    for which in [0, 1, 2] {
        let mut data = Data::<bf16>::random(&case).poisoned();
        let at = case.at(1, 0, 350);
        match which {
            0 => data.k[at] = bf16::NAN,
            1 => data.v[at..at + 64].fill(bf16::NAN),
            // The score is infinite.
            _ => data.k[at..at + 64].fill(bf16::INFINITY),
        }
        let out = data.attend(&stream);
        assert!(out[2 * 64..4 * 64].iter().all(|x| x.is_nan()), "{which}");
        assert!(!out[..2 * 64].iter().chain(&out[4 * 64..]).any(|x| x.is_nan()), "{which}");
    }
}

#[test]
fn a_graph_serves_all_lengths() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let case = Case::new(64, &[0, 0], 600).heads([4, 1]);
    let mut data = Data::<bf16>::random(&case);
    let on = |numbers: &[bf16]| DeviceBuffer::from_host(&stream, numbers).unwrap();
    let (q, k, v) = (on(&data.q), on(&data.k), on(&data.v));
    let mut lengths = DeviceBuffer::from_host(&stream, &case.lengths).unwrap();
    let mut out = on(&data.q);
    let graph = Graph::capture(&stream, || {
        let cache = KvCache {
            k: case.view(&k),
            v: case.view(&v),
            lengths: lengths.as_slice(),
            pages: None,
            scales: None,
        };
        let q = Heads::by_token(q.as_3d(2, 4, 64)?, 2)?;
        attention_decode(
            &stream,
            &AttentionDecode::default(),
            q,
            &cache,
            HeadsMut::by_token(out.as_3d_mut(2, 4, 64)?, 2)?,
        )
    });
    let graph = graph.unwrap().instantiate().unwrap();
    for step in [[0, 1], [17, 600], [450, 64]] {
        lengths.copy_from_host(&step).unwrap();
        graph.launch(&stream).unwrap();
        data.case.lengths = step.to_vec();
        data.check(&out.to_host().unwrap());
    }
}

#[test]
fn mismatched_sizes_are_refused() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let buffer = DeviceBuffer::<bf16>::zeros(&stream, 4 * 96 * 64).unwrap();
    let mut out = DeviceBuffer::<bf16>::zeros(&stream, 4 * 96 * 64).unwrap();
    let numbers = DeviceBuffer::<u32>::zeros(&stream, 16).unwrap();
    let heads = |[sequences, rows, heads, dim]: [usize; 4]| {
        let view = buffer.as_slice().slice(..sequences * rows * heads * dim);
        Heads::by_token(view.as_3d(sequences * rows, heads, dim).unwrap(), sequences).unwrap()
    };
    let mut refused = |q: [usize; 4], k: [usize; 4], lengths: usize, table: Option<[usize; 2]>| {
        let [sequences, rows, of_out, dim] = q;
        let to = out.as_mut_slice().into_slice(..sequences * rows * of_out * dim);
        let to = HeadsMut::by_token(
            to.into_3d_strided([sequences * rows, of_out, dim], [of_out * dim, dim]).unwrap(),
            sequences,
        );
        let pages = table
            .map(|[rows, columns]| numbers.as_slice().slice(..rows * columns).as_2d(rows, columns).unwrap());
        let cache = KvCache {
            k: heads(k),
            v: heads(k),
            lengths: numbers.as_slice().slice(..lengths),
            pages,
            scales: None,
        };
        let error = attention_decode(&stream, &AttentionDecode::default(), heads(q), &cache, to.unwrap())
            .unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(TensorError::Heads { .. })), "{error}");
        error.to_string()
    };
    let q = [2, 1, 2, 64];
    assert!(refused(q, [2, 16, 3, 64], 2, None).contains("q's heads must be a multiple of k's heads"));
    assert!(refused([2, 1, 2, 32], [2, 16, 1, 32], 2, None).contains("64, 128 or 256"));
    assert!(refused(q, [2, 16, 1, 64], 3, None).contains("there are 3 lengths for 2 sequences"));
    assert!(refused(q, [4, 16, 1, 64], 2, None).contains("without pages"));
    assert!(refused(q, [4, 16, 1, 64], 2, Some([3, 2])).contains("the block table has 3 rows"));
    assert!(refused(q, [4, 8, 1, 64], 2, Some([2, 2])).contains("a page has 8 rows"));

    let k = || KvCache {
        k: heads([2, 16, 1, 64]),
        v: heads([2, 16, 1, 64]),
        lengths: numbers.as_slice().slice(..2),
        pages: None,
        scales: None,
    };
    let mut refused = |options: AttentionDecode<'_>| {
        let to = out.as_mut_slice().into_slice(..2 * 2 * 64).into_3d_strided([2, 2, 64], [2 * 64, 64]);
        let to = HeadsMut::by_token(to.unwrap(), 2).unwrap();
        attention_decode(&stream, &options, heads(q), &k(), to).unwrap_err().to_string()
    };
    let sinks = DeviceBuffer::<f32>::zeros(&stream, 3).unwrap();
    let sinks = AttentionDecode { sinks: Some(sinks.as_slice()), ..AttentionDecode::default() };
    assert!(refused(sinks).contains("there are 3 sinks for 2 heads of q"));
    let window = AttentionDecode { window: Some(0), ..AttentionDecode::default() };
    assert!(refused(window).contains("the window has 0 keys"));
    for cap in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let cap = AttentionDecode { soft_cap: Some(cap), ..AttentionDecode::default() };
        assert!(refused(cap).contains("the soft cap is"));
    }
}
