//! [`Operand`]: an input of an elementwise kernel, an array of the output's length or one that is broadcast.

use gpu_std::prelude::*;

use crate::tile::{aligned, each, load};

/// How an input covers an output of rows of `width` elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelValue)]
#[repr(transparent)]
pub struct Form(u32);

impl Form {
    /// An element for each of the output.
    pub const EACH: Self = Self(0);
    /// One value for all; it is passed by value.
    pub const SCALAR: Self = Self(1);
    /// An element for each column: every row has the same.
    pub const ROW: Self = Self(2);
    /// An element for each row, for the whole of it.
    pub const COLUMN: Self = Self(3);
}

/// Where a run of elements begins.
#[derive(Clone, Copy)]
pub struct Place {
    row: usize,
    column: usize,
    width: usize,
}

impl Place {
    /// Element `first` of an output of rows of `width`.
    #[inline(always)]
    pub fn new(first: usize, width: usize) -> Self {
        if width == 0 {
            return Self { row: 0, column: 0, width };
        }
        // A division of 32 bits takes a third of the time of one of 64.
        let (row, column) = if (first | width) >> 32 == 0 {
            ((first as u32 / width as u32) as usize, (first as u32 % width as u32) as usize)
        } else {
            (first / width, first % width)
        };
        Self { row, column, width }
    }

    /// The same, where one of the forms asks for rows and columns.
    #[inline(always)]
    pub fn of_forms(first: usize, width: usize, forms: &[Form]) -> Self {
        if forms.iter().any(|form| form.0 >= Form::ROW.0) {
            Self::new(first, width)
        } else {
            Self { row: 0, column: 0, width }
        }
    }
}

/// An input.
#[derive(Clone, Copy)]
pub struct Operand<T> {
    form: Form,
    value: T,
    ptr: *const T,
    len: usize,
}

impl<T: Scalar> Operand<T> {
    /// Of a kernel's parameters.
    #[inline(always)]
    pub fn new(form: Form, value: T, data: Option<&[T]>) -> Self {
        let (ptr, len) = match data {
            Some(data) => (data.as_ptr(), data.len()),
            None => (core::ptr::null(), 0),
        };
        Self { form, value, ptr, len }
    }

    /// How it covers the output.
    #[inline(always)]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Whether there is an element for each of an output of `len` elements, in rows of `width`.
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

    /// The elements for those of the output from `first`, which lies at `place`: `count`, and in the other lanes anything.
    ///
    /// # Safety
    ///
    /// The operand [covers](Self::covers) the output, in rows of the width of `place`, and `first + count` is at most its
    /// length; `count` is at most `N`.
    #[inline(always)]
    pub unsafe fn load<const N: usize>(&self, place: Place, first: usize, count: usize) -> [T; N] {
        let mut values = [self.value; N];
        match self.form {
            Form::EACH => {
                let ptr = self.ptr.wrapping_add(first);
                if count == N && aligned::<T, N>(ptr) {
                    // SAFETY: by this function's contract, and aligned.
                    values = unsafe { load(ptr) };
                } else {
                    each::<N>(|lane| {
                        if lane < count {
                            // SAFETY: by this function's contract.
                            values[lane] = unsafe { ptr.add(lane).read() };
                        }
                    });
                }
            }
            Form::ROW => {
                let ptr = self.ptr.wrapping_add(place.column);
                if count == N && place.column + N <= place.width && aligned::<T, N>(ptr) {
                    // SAFETY: the columns are below the width, and aligned.
                    values = unsafe { load(ptr) };
                } else {
                    let mut column = place.column;
                    each::<N>(|lane| {
                        if lane < count {
                            // SAFETY: the column is below the width.
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
                        // SAFETY: the row of an element of the output.
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
