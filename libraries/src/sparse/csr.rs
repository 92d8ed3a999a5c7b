//! [`Csr`]: a sparse matrix in CSR format, whose indices have been checked.

use super::plan::Plans;
use super::{FloatType, Index, Product};
use crate::error::{LibraryError, check_devices};
use warpsmith_runtime::extension::{Access, BufferUse, site};
use warpsmith_runtime::{Device, DeviceBuffer, DeviceSlice, DeviceSliceMut, Result, Stream};

const OPERATION: &str = "sparse::Csr";

/// A sparse matrix in CSR format. Row `i` consists of the elements `offsets[i]..offsets[i + 1]` of `columns` and
/// `values`. The columns of a row can be in any order. Duplicate entries are added up, but there must be at most
/// `rows * columns` entries in total.
#[derive(Debug)]
pub struct Csr<T: FloatType, I: Index> {
    plans: Plans,
    rows: usize,
    columns: usize,
    offsets: DeviceBuffer<I>,
    indices: DeviceBuffer<I>,
    values: DeviceBuffer<T>,
}

impl<T: FloatType, I: Index> Csr<T, I> {
    /// Creates a matrix of shape `[rows, columns]` from host memory.
    ///
    /// # Errors
    /// - [`LibraryError::Shape`] if lengths do not match, if offsets decrease or do not run from 0 to the number of
    ///   elements, or if a column is out of range.
    /// - The same errors as [`DeviceBuffer::from_host`].
    #[track_caller]
    pub fn from_host(
        stream: &Stream,
        shape: [usize; 2],
        offsets: &[I],
        columns: &[I],
        values: &[T],
    ) -> Result<Self> {
        let _site = site();
        check_lengths::<I>(shape, offsets.len(), columns.len(), values.len())?;
        check_indices(shape, offsets, columns)?;
        let offsets = DeviceBuffer::from_host(stream, offsets)?;
        let indices = DeviceBuffer::from_host(stream, columns)?;
        let values = DeviceBuffer::from_host(stream, values)?;
        Ok(Self { plans: Plans::default(), rows: shape[0], columns: shape[1], offsets, indices, values })
    }

    /// Creates a matrix of shape `[rows, columns]` with copies of offsets and columns that are already in device
    /// memory. The call downloads the copies to check them, so it waits for the stream.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::from_host`], or the fault of an earlier kernel.
    #[track_caller]
    pub fn new<'o, 'c>(
        stream: &Stream,
        shape: [usize; 2],
        offsets: impl Into<DeviceSlice<'o, I>>,
        columns: impl Into<DeviceSlice<'c, I>>,
        values: DeviceBuffer<T>,
    ) -> Result<Self> {
        let _site = site();
        let (offsets, columns) = (offsets.into(), columns.into());
        check_lengths::<I>(shape, offsets.len(), columns.len(), values.len())?;
        check_devices(stream, OPERATION, [(values.device(), "the values")])?;
        // The matrix stores copies because a previously captured graph may write to the originals.
        let (offsets, indices) = (super::copied(stream, offsets)?, super::copied(stream, columns)?);
        check_indices(shape, &offsets.to_host()?, &indices.to_host()?)?;
        let [rows, columns] = shape;
        Ok(Self { plans: Plans::default(), rows, columns, offsets, indices, values })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the number of stored elements.
    pub fn nonzeros(&self) -> usize {
        self.values.len()
    }

    /// Returns the device on which the matrix is stored.
    pub fn device(&self) -> &Device {
        self.values.device()
    }

    /// Returns the row offsets, which are the start offsets of all rows and the end offset of the last row.
    pub fn offsets(&self) -> DeviceSlice<'_, I> {
        self.offsets.as_slice()
    }

    /// Returns the column index of each element.
    pub fn indices(&self) -> DeviceSlice<'_, I> {
        self.indices.as_slice()
    }

    /// Returns the values of the elements.
    pub fn values(&self) -> DeviceSlice<'_, T> {
        self.values.as_slice()
    }

    /// Returns a mutable slice of the elements' values.
    pub fn values_mut(&mut self) -> DeviceSliceMut<'_, T> {
        self.values.as_mut_slice()
    }

    pub(super) fn plans(&self) -> &Plans {
        &self.plans
    }

    /// Returns the numbers of rows and columns of the matrix in a product, after any transposition.
    pub(super) fn shape_of(&self, product: Product) -> [usize; 2] {
        if product.transpose { [self.columns, self.rows] } else { [self.rows, self.columns] }
    }

    /// Returns the buffer ranges that a product uses.
    pub(super) fn parts<'a>(&'a self, input: BufferUse<'a>, output: BufferUse<'a>) -> [BufferUse<'a>; 5] {
        let read = Access::Read;
        let [offsets, indices] = [&self.offsets, &self.indices].map(|buffer| buffer.as_slice().used(read));
        [offsets, indices, self.values.as_slice().used(read), input, output]
    }
}

fn check_lengths<I: Index>(
    [rows, columns]: [usize; 2],
    offsets: usize,
    indices: usize,
    values: usize,
) -> Result<()> {
    let problem = if rows.checked_add(1) != Some(offsets) {
        format!("there are {offsets} row offsets, but {rows} rows need {}", rows.saturating_add(1))
    } else if indices != values {
        format!("there are {indices} column indices but {values} values; pass one of each per element")
    } else if rows.checked_mul(columns).is_some_and(|places| values > places) {
        format!("{values} elements exceed the size of a {rows} x {columns} matrix; sum duplicate elements")
    } else if rows.max(columns).max(values) > I::MAX {
        format!(
            "{rows} x {columns} with {values} elements is too large for indices of {} bytes",
            size_of::<I>()
        )
    } else {
        return Ok(());
    };
    Err(LibraryError::shape(OPERATION, problem))
}

fn check_indices<I: Index>([_, columns]: [usize; 2], offsets: &[I], indices: &[I]) -> Result<()> {
    let shape = |problem: String| Err(LibraryError::shape(OPERATION, problem));
    let mut last = 0;
    for (row, offset) in offsets.iter().enumerate() {
        let problem = match offset.get() {
            Some(0) if row == 0 => continue,
            _ if row == 0 => "the first row offset must be 0".to_owned(),
            Some(offset) if (last..=indices.len()).contains(&offset) => {
                last = offset;
                continue;
            }
            Some(offset) if offset < last => {
                format!(
                    "row offset {row} is {offset}, but the preceding offset is {last}; offsets must not decrease"
                )
            }
            Some(offset) => {
                format!("row offset {row} is {offset}, but there are only {} elements", indices.len())
            }
            None => format!("offset {row} is negative"),
        };
        return shape(problem);
    }
    if last != indices.len() {
        return shape(format!(
            "the last row offset is {last}, but must be {}, the number of elements",
            indices.len()
        ));
    }
    let outside = |index: &I| index.get().is_none_or(|index| index >= columns);
    if let Some(element) = indices.iter().position(outside) {
        return shape(format!(
            "the column index of element {element} is not below {columns}, the number of columns"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_columns_outside_are_refused() {
        let check = |offsets: &[i32], columns: &[i32]| match check_indices([2, 3], offsets, columns) {
            Ok(()) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(check(&[0, 1, 3], &[2, 0, 1]), "fine");
        assert_eq!(check(&[0, 0, 0], &[]), "fine");
        for (offsets, columns, part) in [
            ([1, 1, 3], [0, 1, 2], "the first row offset must be 0"),
            ([0, 2, 1], [0, 1, 2], "must not decrease"),
            ([0, 4, 3], [0, 1, 2], "offset 1 is 4"),
            ([0, -1, 3], [0, 1, 2], "offset 1 is negative"),
            ([0, 1, 2], [0, 1, 2], "last row offset is 2"),
            ([0, 1, 3], [0, 3, 2], "element 1"),
            ([0, 1, 3], [0, 1, -1], "element 2"),
        ] {
            let found = check(&offsets, &columns);
            assert!(found.contains(part), "{found}");
        }
    }
}
