//! Row views for tests of row operations: at any offset in a buffer, with gaps that must not be written.

use crate::common::{Random, TestNumber};
use warpsmith::prelude::*;
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

/// Number of elements before a view, and between its rows.
pub const PLACES: [(usize, usize); 3] = [(0, 0), (1, 0), (8, 8)];

/// Shapes (rows, columns) for register-resident row kernels: rows in the registers of lanes, a block or a cluster, and the longest
/// rows, which are read twice.
pub const RESIDENT: [(usize, usize); 22] = [
    (1, 1),
    (40, 1),
    (70, 3),
    (5, 31),
    (5, 32),
    (6, 33),
    (3, 100),
    (2, 127),
    (3, 256),
    (3, 257),
    (2, 1023),
    (1, 1025),
    (150, 300),
    (2, 2048),
    (2, 4097),
    (1, 9000),
    (1, 16_384),
    (2, 20_001),
    (1, 70_000),
    (1, 150_000),
    (1, 300_000),
    (1, 40_000),
];

/// Compensated sum (Neumaier, 1974): a reference must be more exact than the tested code.
pub fn exact_sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for value in values {
        let next = sum + value;
        lost += if sum.abs() >= value.abs() { (sum - next) + value } else { (value - next) + sum };
        sum = next;
    }
    sum + lost
}

/// A view of values in a buffer, and the same values on the host.
pub struct Rows<T: TestNumber> {
    buffer: DeviceBuffer<T>,
    pub values: Vec<Vec<T>>,
    pub place: (usize, usize),
}

impl<T: TestNumber> Rows<T> {
    pub fn new(stream: &Stream, values: Vec<Vec<T>>, place: (usize, usize)) -> Self {
        let mut host = vec![T::poison(); place.0];
        for row in &values {
            host.extend(row);
            host.extend(vec![T::poison(); place.1]);
        }
        Self { buffer: DeviceBuffer::from_host(stream, &host).unwrap(), values, place }
    }

    /// Random values in ±1, or over the range of an integer.
    pub fn random(
        stream: &Stream,
        random: &mut Random,
        (rows, columns): (usize, usize),
        place: (usize, usize),
    ) -> Self {
        Self::new(stream, (0..rows).map(|_| random.values(columns, 1.0)).collect(), place)
    }

    /// Makes a view of poisoned values.
    pub fn poisoned(stream: &Stream, (rows, columns): (usize, usize), place: (usize, usize)) -> Self {
        Self::new(stream, vec![vec![T::poison(); columns]; rows], place)
    }

    pub fn sides(&self) -> (usize, usize) {
        (self.values.len(), self.values[0].len())
    }

    pub fn view(&self) -> DeviceSlice2<'_, T> {
        let (rows, columns) = self.sides();
        self.buffer.slice(self.place.0..).as_2d_strided(rows, columns, columns + self.place.1).unwrap()
    }

    /// Calls `work` with a mutable view of the rows.
    pub fn write(&mut self, work: impl FnOnce(DeviceSliceMut2<'_, T>)) {
        let (rows, columns) = self.sides();
        let mut elements = self.buffer.slice_mut(self.place.0..);
        work(elements.as_2d_strided_mut(rows, columns, columns + self.place.1).unwrap());
    }

    pub fn columns(&self) -> Vec<Vec<T>> {
        (0..self.values[0].len()).map(|column| self.values.iter().map(|row| row[column]).collect()).collect()
    }

    /// Reads the rows from the device; fails if anything around them was written.
    pub fn read(&self) -> Vec<Vec<T>> {
        let host = self.buffer.to_host().unwrap();
        let (before, rows) = host.split_at(self.place.0);
        let width = self.values[0].len();
        let is_poison = |values: &[T]| values.iter().all(|value| value.bits() == T::poison().bits());
        assert!(is_poison(before), "something was written before the rows");
        rows.chunks(width + self.place.1)
            .map(|row| {
                assert!(is_poison(&row[width..]), "something was written between the rows");
                row[..width].to_vec()
            })
            .collect()
    }
}
