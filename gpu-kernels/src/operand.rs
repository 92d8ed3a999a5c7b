//! [`Operand`]: an input of an elementwise kernel, which is an array of the output's length or is broadcast.

use gpu_std::prelude::*;

use crate::tile::{aligned, each, load};

/// The broadcast form of an input, relative to an output with rows of `width` elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelValue)]
#[repr(transparent)]
pub struct Form(u32);

impl Form {
    /// The input has one element per output element.
    pub const EACH: Self = Self(0);
    /// The input is one scalar for all elements, passed by value.
    pub const SCALAR: Self = Self(1);
    /// The input has one element per column, so all rows are the same.
    pub const ROW: Self = Self(2);
    /// The input has one element per row, so all columns are the same.
    pub const COLUMN: Self = Self(3);
}

/// The row and column at which a run of elements starts.
#[derive(Clone, Copy)]
pub struct Place {
    row: usize,
    column: usize,
    width: usize,
}

impl Place {
    /// Returns the position of element `first` in an output with rows of `width` elements.
    #[inline(always)]
    pub fn new(first: usize, width: usize) -> Self {
        if width == 0 {
            return Self { row: 0, column: 0, width };
        }
        // A 32-bit division takes a third as long as a 64-bit division.
        let (row, column) = if (first | width) >> 32 == 0 {
            ((first as u32 / width as u32) as usize, (first as u32 % width as u32) as usize)
        } else {
            (first / width, first % width)
        };
        Self { row, column, width }
    }

    /// Returns the position of element `first`. Row and column are computed only if one of the forms needs them.
    #[inline(always)]
    pub fn of_forms(first: usize, width: usize, forms: &[Form]) -> Self {
        if forms.iter().any(|form| form.0 >= Form::ROW.0) {
            Self::new(first, width)
        } else {
            Self { row: 0, column: 0, width }
        }
    }
}

/// An input of an elementwise kernel.
#[derive(Clone, Copy)]
pub struct Operand<T> {
    form: Form,
    value: T,
    ptr: *const T,
    len: usize,
}

impl<T: Scalar> Operand<T> {
    /// Creates the operand from the kernel's parameters.
    #[inline(always)]
    pub fn new(form: Form, value: T, data: Option<&[T]>) -> Self {
        let (ptr, len) = match data {
            Some(data) => (data.as_ptr(), data.len()),
            None => (core::ptr::null(), 0),
        };
        Self { form, value, ptr, len }
    }

    /// Returns the broadcast form of the operand.
    #[inline(always)]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Returns whether the operand covers an output of `len` elements in rows of `width` elements.
    #[inline(always)]
    pub fn covers(&self, len: usize, width: usize) -> bool {
        let needed = match self.form {
            Form::EACH => len,
            Form::SCALAR => 0,
            Form::ROW => width,
            Form::COLUMN => len.div_ceil(if width == 0 { 1 } else { width }),
            _ => usize::MAX,
        };
        needed <= self.len && (width > 0 || self.form.0 < Form::ROW.0)
    }

    /// Loads the inputs for output elements `first..first + count`, where element `first` is at `place`. The remaining
    /// lanes are unspecified.
    ///
    /// # Safety
    /// The operand must [cover](Self::covers) the output, and `place` must have been created for the width of the
    /// output's rows. `first + count` must be at most the output's length, and `count` must be at most `N`.
    #[inline(always)]
    pub unsafe fn load<const N: usize>(&self, place: Place, first: usize, count: usize) -> [T; N] {
        let mut values = [self.value; N];
        match self.form {
            Form::EACH => {
                let ptr = self.ptr.wrapping_add(first);
                if count == N && aligned::<T, N>(ptr) {
                    // SAFETY: guaranteed by this function's contract, and the address is aligned.
                    values = unsafe { load(ptr) };
                } else {
                    each::<N>(|lane| {
                        if lane < count {
                            // SAFETY: guaranteed by this function's contract.
                            values[lane] = unsafe { ptr.add(lane).read() };
                        }
                    });
                }
            }
            Form::ROW => {
                let ptr = self.ptr.wrapping_add(place.column);
                if count == N && place.column + N <= place.width && aligned::<T, N>(ptr) {
                    // SAFETY: all `N` columns are within the row, and the address is aligned.
                    values = unsafe { load(ptr) };
                } else {
                    let mut column = place.column;
                    each::<N>(|lane| {
                        if lane < count {
                            // SAFETY: the column is within the row.
                            values[lane] = unsafe { self.ptr.add(column).read() };
                            column = if column + 1 == place.width { 0 } else { column + 1 };
                        }
                    });
                }
            }
            Form::COLUMN => {
                let (mut row, mut column) = (place.row, place.column);
                each::<N>(|lane| {
                    if lane < count {
                        // SAFETY: the row contains an output element.
                        values[lane] = unsafe { self.ptr.add(row).read() };
                        column += 1;
                        (row, column) = if column == place.width { (row + 1, 0) } else { (row, column) };
                    }
                });
            }
            _ => {}
        }
        values
    }
}
