//! Strided copies, transposes, concatenation, splitting, gather and scatter, compared with the host. They cover every
//! element size, ragged shapes, unaligned rows, and guards around the output.

use std::fmt::Debug;

use warpsmith::ops::{self, Index, Indices};
use warpsmith::prelude::*;
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

use crate::common::{Random, for_types, stream};

type Triple = [u32; 3];

/// Values of random bytes.
fn values<T: DeviceCopy>(random: &mut Random, n: usize) -> Vec<T> {
    let size = size_of::<T>();
    let bytes: Vec<u8> = (0..n * size).map(|_| random.bits() as u8).collect();
    bytes.chunks(size).map(|bytes| bytemuck::pod_read_unaligned(bytes)).collect()
}

/// Values as bytes.
fn bytes<T: bytemuck::NoUninit>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// A matrix on the device: `height` rows of `width` with a pitch, `offset` elements after an aligned address.
struct Matrix<T: DeviceCopy> {
    buffer: DeviceBuffer<T>,
    host: Vec<T>,
    offset: usize,
    sides: [usize; 3],
}

impl<T: DeviceCopy + bytemuck::Pod + Debug + PartialEq> Matrix<T> {
    fn new(stream: &Stream, random: &mut Random, offset: usize, [width, height, pitch]: [usize; 3]) -> Self {
        let host = values(random, offset + height * pitch + 9);
        let buffer = DeviceBuffer::from_host(stream, &host).unwrap();
        Self { buffer, host, offset, sides: [width, height, pitch] }
    }

    fn view(&self) -> DeviceSlice2<'_, T> {
        let [width, height, pitch] = self.sides;
        self.buffer.slice(self.offset..).as_2d_strided(height, width, pitch).unwrap()
    }

    /// Element at a position of the matrix.
    fn at(&self, row: usize, column: usize) -> T {
        self.host[self.offset + row * self.sides[2] + column]
    }

    /// Calls `write` with the view. Fails unless its elements then are `expected` and all others are unchanged.
    #[track_caller]
    fn becomes(
        mut self,
        what: &dyn Debug,
        expected: impl Fn(usize, usize) -> T,
        write: impl FnOnce(DeviceSliceMut2<'_, T>),
    ) {
        let [width, height, pitch] = self.sides;
        let mut slice = self.buffer.slice_mut(self.offset..);
        write(slice.as_2d_strided_mut(height, width, pitch).unwrap());
        let mut whole = self.host;
        for row in 0..height {
            for column in 0..width {
                whole[self.offset + row * pitch + column] = expected(row, column);
            }
        }
        let found = self.buffer.to_host().unwrap();
        let wrong = (0..whole.len()).find(|i| found[*i] != whole[*i]);
        let message = |i: usize| (i, found[i], whole[i]);
        assert_eq!(wrong.map(message), None, "{what:?}: place, found, expected");
    }
}

/// Widths and heights around the boundaries of tiles, accesses and segments.
const SHAPES: [[usize; 2]; 17] = [
    [1, 1],
    [1, 100],
    [100, 1],
    [3, 5],
    [32, 32],
    [64, 64],
    [128, 256],
    [65, 63],
    [64, 130],
    [200, 17],
    [31, 257],
    [129, 127],
    [256, 128],
    [2, 1000],
    [33, 319],
    [31, 321],
    [130, 517],
];

#[test]
fn transposes_turn_rows_into_columns() {
    fn of<T: DeviceCopy + bytemuck::Pod + Debug + PartialEq>() {
        let (stream, mut random) = (stream(), Random::new());
        for [width, height] in SHAPES {
            for (offset, gaps) in [(0, [0, 0]), (0, [16, 32]), (1, [0, 0]), (0, [3, 0])] {
                let from = Matrix::<T>::new(&stream, &mut random, offset, [width, height, width + gaps[0]]);
                let to = Matrix::<T>::new(&stream, &mut random, offset, [height, width, height + gaps[1]]);
                let what = (size_of::<T>(), width, height, offset, gaps, "seed", random.seed);
                to.becomes(
                    &what,
                    |row, column| from.at(column, row),
                    |to| {
                        ops::transpose(&stream, from.view(), to).unwrap();
                    },
                );
            }
        }
    }
    for_types!(of: u8, i16, u32, u64, u128);
}

#[test]
fn a_batch_is_transposed_plane_by_plane() {
    fn of<T: DeviceCopy + bytemuck::Pod + Debug + PartialEq>() {
        let (stream, mut random) = (stream(), Random::new());
        for [width, height, depth] in [[64, 64, 3], [33, 65, 5], [1, 7, 9], [128, 16, 2]] {
            let host = values::<T>(&mut random, width * height * depth);
            let from = DeviceBuffer::from_host(&stream, &host).unwrap();
            let mut to = DeviceBuffer::<T>::zeros(&stream, host.len()).unwrap();
            let (source, target) =
                (from.as_3d(depth, height, width).unwrap(), to.as_3d_mut(depth, width, height).unwrap());
            ops::transpose_batched(&stream, source, target).unwrap();
            let plane = width * height;
            let expected = (0..host.len()).map(|i| {
                let (at, within) = (i / plane, i % plane);
                host[at * plane + within % height * width + within / height]
            });
            assert_eq!(
                to.to_host().unwrap(),
                Vec::from_iter(expected),
                "{} {width} {height}",
                size_of::<T>()
            );
        }
    }
    for_types!(of: u8, u16, i32, i64);
}

#[test]
fn rows_are_copied_between_pitches() {
    fn of<T: DeviceCopy + bytemuck::Pod + Debug + PartialEq>() {
        let (stream, mut random) = (stream(), Random::new());
        for [width, height] in SHAPES {
            for (offsets, gaps) in
                [([0, 0], [0, 0]), ([0, 0], [16, 0]), ([1, 0], [0, 5]), ([0, 16], [32, 16])]
            {
                let from =
                    Matrix::<T>::new(&stream, &mut random, offsets[0], [width, height, width + gaps[0]]);
                let to = Matrix::<T>::new(&stream, &mut random, offsets[1], [width, height, width + gaps[1]]);
                let what = (size_of::<T>(), width, height, offsets, gaps, "seed", random.seed);
                to.becomes(
                    &what,
                    |row, column| from.at(row, column),
                    |to| ops::concat_rows(&stream, &[from.view()], to).unwrap(),
                );
            }
        }
    }
    for_types!(of: u8, i16, u32, Triple, i64, u128);
}

#[test]
fn parts_make_up_a_whole_and_back() {
    let (stream, mut random) = (stream(), Random::new());
    for across in [1, 4, 33] {
        let sizes = [5, 0, 16, 1];
        let whole: usize = sizes.iter().sum();
        let start = |part: usize| sizes[..part].iter().sum::<usize>();
        let part_of = |at: usize| (0..4).rfind(|part| start(*part) <= at && sizes[*part] > 0).unwrap();
        let mut make =
            |width, height| Matrix::<u16>::new(&stream, &mut random, 1, [width, height, width + 2]);
        let (wide, high) = (sizes.map(|size| make(size, across)), sizes.map(|size| make(across, size)));
        let (beside, below) = (make(whole, across), make(across, whole));
        let views = wide.each_ref().map(Matrix::view);
        let expected = |row: usize, column: usize| {
            let part = part_of(column);
            wide[part].at(row, column - start(part))
        };
        beside.becomes(&("beside", across), expected, |to| ops::concat_columns(&stream, &views, to).unwrap());
        let views = high.each_ref().map(Matrix::view);
        let expected = |row: usize, column: usize| {
            let part = part_of(row);
            high[part].at(row - start(part), column)
        };
        below.becomes(&("below", across), expected, |to| ops::concat_rows(&stream, &views, to).unwrap());

        let (from, other) = (make(whole, across), make(across, whole));
        let mut parts = sizes.map(|size| DeviceBuffer::<u16>::zeros(&stream, size * across).unwrap());
        {
            let mut index = 0;
            let mut views: Vec<_> = parts
                .iter_mut()
                .map(|part| {
                    index += 1;
                    part.as_2d_mut(across, sizes[index - 1]).unwrap()
                })
                .collect();
            ops::split_columns(&stream, from.view(), &mut views).unwrap();
        }
        for (part, found) in parts.iter().enumerate() {
            let expected =
                (0..across * sizes[part]).map(|i| from.at(i / sizes[part], start(part) + i % sizes[part]));
            assert_eq!(found.to_host().unwrap(), Vec::from_iter(expected), "part {part} of columns");
        }
        {
            let mut index = 0;
            let mut views: Vec<_> = parts
                .iter_mut()
                .map(|part| {
                    index += 1;
                    part.as_2d_mut(sizes[index - 1], across).unwrap()
                })
                .collect();
            ops::split_rows(&stream, other.view(), &mut views).unwrap();
        }
        for (part, found) in parts.iter().enumerate() {
            let expected = (0..across * sizes[part]).map(|i| other.at(start(part) + i / across, i % across));
            assert_eq!(found.to_host().unwrap(), Vec::from_iter(expected), "part {part} of rows");
        }
    }
}

/// Converts an index to either type.
fn index<I: Index + TryFrom<usize>>(value: usize) -> I {
    I::try_from(value).unwrap_or_else(|_| panic!("{value} is an index"))
}

#[test]
fn gathers_and_scatters_follow_their_indices() {
    fn of<T: DeviceCopy + bytemuck::Pod + Debug + PartialEq, I: Index + TryFrom<usize>>() {
        let (stream, mut random) = (stream(), Random::new());
        for (width, rows, count) in
            [(1, 1, 1), (1, 1000, 4097), (3, 7, 33), (16, 40, 0), (64, 33, 129), (17, 129, 31)]
        {
            let what = (size_of::<T>(), size_of::<I>(), width, rows, count, "seed", random.seed);
            let chosen = Vec::from_iter((0..count).map(|_| random.below(rows)));
            let host = Vec::from_iter(chosen.iter().map(|chosen| index::<I>(*chosen)));
            let on_device = DeviceBuffer::from_host(&stream, &host).unwrap();
            let indices = Indices::new(&stream, &on_device, rows).unwrap();
            assert_eq!((indices.len(), indices.limit()), (count, rows));
            let from = Matrix::<T>::new(&stream, &mut random, 1, [width, rows, width + 1]);
            let to = Matrix::<T>::new(&stream, &mut random, 0, [width, count, width]);
            to.becomes(
                &what,
                |row, column| from.at(chosen[row], column),
                |to| {
                    ops::gather_rows(&stream, from.view(), &indices, to).unwrap();
                },
            );

            let mut places = Vec::from_iter(0..rows);
            (1..rows).rev().for_each(|i| places.swap(i, random.below(i + 1)));
            places.truncate(count);
            let host = Vec::from_iter(places.iter().map(|place| index::<I>(*place)));
            let on_device = DeviceBuffer::from_host(&stream, &host).unwrap();
            let indices = Indices::unique(&stream, &on_device, rows).unwrap();
            let from = Matrix::<T>::new(&stream, &mut random, 0, [width, places.len(), width]);
            let to = Matrix::<T>::new(&stream, &mut random, 2, [width, rows, width + 3]);
            let before = to.host.clone();
            let expected = |row: usize, column: usize| match places.iter().position(|place| *place == row) {
                Some(source) => from.at(source, column),
                None => before[2 + row * (width + 3) + column],
            };
            to.becomes(&what, expected, |to| ops::scatter_rows(&stream, from.view(), &indices, to).unwrap());
        }
    }
    of::<u8, u32>();
    of::<u8, i64>();
    of::<i16, u32>();
    of::<u32, i64>();
    of::<Triple, u32>();
    of::<i64, i64>();
}

#[test]
fn wrong_indices_are_named_and_nothing_is_written() {
    let stream = stream();
    let message = |result: Result<Indices<'_, u32>, Error>| result.unwrap_err().to_string();
    let mut host = vec![3u32; 1000];
    (host[700], host[400]) = (9, 4_000_000_000);
    let wrong = DeviceBuffer::from_host(&stream, &host).unwrap();
    let text = message(Indices::new(&stream, &wrong, 9));
    assert!(
        text.starts_with("Indices: indices[400] is 4000000000, but must be at least 0 and below 9"),
        "{text}"
    );
    let text = message(Indices::unique(&stream, wrong.slice(500..700), 9));
    assert!(text.starts_with("index 3 occurs more than once"), "{text}");
    let negative = DeviceBuffer::from_host(&stream, &[0i64, i64::MIN]).unwrap();
    let text = Indices::new(&stream, &negative, 9).unwrap_err().to_string();
    assert!(text.starts_with("Indices: indices[1] is -9223372036854775808,"), "{text}");

    let (x, mut out) =
        (DeviceBuffer::from_host(&stream, &[1u8; 8]).unwrap(), DeviceBuffer::zeros(&stream, 8).unwrap());
    let right = DeviceBuffer::from_host(&stream, &[0u32, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    let indices = Indices::new(&stream, &right, 9).unwrap();
    let text = ops::gather(&stream, &x, &indices, &mut out).unwrap_err().to_string();
    assert!(text.contains("the limit 9, but there are only 8 elements"), "{text}");
    let indices = Indices::new(&stream, &right, 8).unwrap();
    let text = ops::scatter(&stream, &x, &indices, &mut out).unwrap_err().to_string();
    assert!(text.contains("Indices::unique"), "{text}");
    let text = ops::gather(&stream, &x, &indices, out.slice_mut(1..)).unwrap_err().to_string();
    assert!(text.contains("indices has 8 elements, but the output has 7"), "{text}");
    assert_eq!(out.to_host().unwrap(), [0u8; 8]);
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 12]).unwrap();
    let mut out = DeviceBuffer::<f32>::zeros(&stream, 12).unwrap();
    let from = x.as_2d(3, 4).unwrap();
    let text = ops::transpose(&stream, from, out.as_2d_mut(3, 4).unwrap()).unwrap_err().to_string();
    assert!(text.contains("the transpose of 1 x 3 x 4 elements is 1 x 4 x 3"), "{text}");
    let text = ops::concat_rows(&stream, &[from], out.as_2d_mut(2, 6).unwrap()).unwrap_err().to_string();
    assert!(text.contains("the parts have 3 rows in total, but the whole has 2"), "{text}");
    let triples = DeviceBuffer::<Triple>::zeros(&stream, 4).unwrap();
    let mut turned = DeviceBuffer::<Triple>::zeros(&stream, 4).unwrap();
    let text = ops::transpose(&stream, triples.as_2d(2, 2).unwrap(), turned.as_2d_mut(2, 2).unwrap());
    assert!(text.unwrap_err().to_string().contains("elements of 12 bytes are not supported"));
    assert_eq!(bytes(&out.to_host().unwrap()), bytes(&[0f32; 12]));
}

#[test]
fn copies_at_every_alignment_keep_every_byte() {
    fn of<T: DeviceCopy + bytemuck::Pod + Debug + PartialEq>() {
        let (stream, mut random) = (stream(), Random::new());
        let most = 16 / size_of::<T>();
        for n in [0, 1, 15, 31, 32, 33, 47, 63, 65, 257, 4097] {
            for (from, to) in (0..most).flat_map(|from| [(from, 0), (0, from), (from, (from + 1) % most)]) {
                let host = values::<T>(&mut random, n);
                let source = [vec![T::zeroed(); from], host.clone()].concat();
                let source = DeviceBuffer::from_host(&stream, &source).unwrap();
                let mut target = DeviceBuffer::<T>::zeros(&stream, to + n + 20).unwrap();
                ops::copy(&stream, source.slice(from..), target.slice_mut(to..to + n)).unwrap();
                let expected = [vec![T::zeroed(); to], host, vec![T::zeroed(); 20]].concat();
                let found = target.to_host().unwrap();
                assert_eq!(found, expected, "{} bytes, {n} elements from {from} to {to}", size_of::<T>());
            }
        }
    }
    for_types!(of: u8, u16, u32, u64);
}
