//! [`Shape`]: host-side shapes of a kernel's slices and views.

use core::ffi::c_void;

use gpu_spec::{Extents2, Extents3, Length, ParamKind};

/// The shape of a slice or view that is passed to a launch. In the expression of `#[kernel(bytes = …)]`, which runs on
/// the host, this type represents the parameter.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// A launch reads `x` once and writes `y` once.
/// #[kernel(bytes = x.bytes() + y.bytes())]
/// fn copy(x: &[f32], mut y: DisjointMut<f32>) {
///     let i = thread::unique_index();
///     if let Some(y) = y.get_mut(i) {
///         *y = x[i.get()];
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    planes: usize,
    rows: usize,
    columns: usize,
    element: usize,
}

impl Shape {
    /// Returns the number of elements. Padding between the rows of a view does not count.
    pub fn len(self) -> usize {
        self.planes * self.rows * self.columns
    }

    /// Returns true if there are no elements.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the size of the elements in bytes.
    pub fn bytes(self) -> usize {
        self.len() * self.element
    }

    /// Returns the number of planes, which is 1 for a slice or a 2-D view.
    pub fn planes(self) -> usize {
        self.planes
    }

    /// Returns the number of rows per plane, which is 1 for a slice.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// Returns the number of elements per row. For a slice, this is its length.
    pub fn columns(self) -> usize {
        self.columns
    }
}

/// Reads kernel parameter `index`.
///
/// # Safety
/// `args` must contain more than `index` pointers, and the one at `index` must point to a `T`.
pub unsafe fn read_argument<T>(args: *const *const c_void, index: usize) -> T {
    // SAFETY: guaranteed by the caller.
    unsafe { (*args.add(index)).cast::<T>().read_unaligned() }
}

/// Reads the shape of a slice or view of `T` whose kernel parameters start at `index`.
///
/// # Safety
/// The conditions of [`read_argument`] must hold for all kernel parameters that the slice or view takes.
pub unsafe fn read_shape<T>(args: *const *const c_void, index: usize, kind: ParamKind) -> Shape {
    let element = size_of::<T>();
    // SAFETY: guaranteed by the caller.
    let [planes, rows, columns] = unsafe {
        match kind {
            ParamKind::Slice2 | ParamKind::SliceMut2 => {
                let extents: Extents2 = read_argument(args, index + 1);
                [1, extents.rows(), extents.columns()].map(|side| side as usize)
            }
            ParamKind::Slice3 | ParamKind::SliceMut3 => {
                let extents: Extents3 = read_argument(args, index + 1);
                [extents.planes(), extents.rows(), extents.columns()].map(|side| side as usize)
            }
            _ => [1, 1, read_argument::<usize>(args, index + 1)],
        }
    };
    Shape { planes, rows, columns, element }
}

/// Reads the shape of an optional parameter, like [`read_shape`].
///
/// # Safety
/// The caller must uphold the safety contract of [`read_shape`].
pub unsafe fn read_optional_shape<T>(
    args: *const *const c_void,
    index: usize,
    kind: ParamKind,
) -> Option<Shape> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        (!read_argument::<*const u8>(args, index).is_null()).then(|| read_shape::<T>(args, index, kind))
    }
}

/// Reads the length of a slice or view, like [`read_shape`]. Returns `None` if the parameter is absent.
///
/// # Safety
/// The caller must uphold the safety contract of [`read_shape`].
pub unsafe fn length<T>(
    args: *const *const c_void,
    index: usize,
    kind: ParamKind,
    name: &'static str,
    is_optional: bool,
) -> Option<Length> {
    // SAFETY: guaranteed by the caller.
    if is_optional && unsafe { read_argument::<*const u8>(args, index).is_null() } {
        return None;
    }
    // SAFETY: as above.
    let shape = unsafe { read_shape::<T>(args, index, kind) };
    let sides = [shape.columns, shape.rows, shape.planes].map(|side| side as u64);
    Some(Length { name: Some(name), sides, items: 1 })
}

/// Converts the requested extent of a launch to a length for the `same_len` check. Each thread has `items` elements.
pub fn launch_length(extent: Option<[u64; 3]>, items: usize) -> Option<Length> {
    extent.map(|sides| Length { name: None, sides, items: items as u64 })
}
