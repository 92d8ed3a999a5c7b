//! [`Shape`]: what the host knows of a kernel's slices and views.

use core::ffi::c_void;

use gpu_spec::{Extents2, Extents3, ParamKind};

/// The shape of a slice or view that a launch passes. It stands for the parameter in the expression of
/// `#[kernel(bytes = …)]`, which runs on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    width: usize,
    height: usize,
    depth: usize,
    element: usize,
}

impl Shape {
    /// The number of elements, without those between the rows of a view.
    pub fn len(self) -> usize {
        self.width * self.height * self.depth
    }

    /// Whether there are no elements.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The bytes of the elements.
    pub fn bytes(self) -> usize {
        self.len() * self.element
    }

    /// Elements of a row; all elements of a slice.
    pub fn width(self) -> usize {
        self.width
    }

    /// Rows of a plane; 1 for a slice.
    pub fn height(self) -> usize {
        self.height
    }

    /// Planes; 1 for a slice or a view in two dimensions.
    pub fn depth(self) -> usize {
        self.depth
    }
}

/// Machine parameter `index`.
///
/// # Safety
/// `args` has more than `index` pointers, and that one points to a `T`.
pub unsafe fn read_argument<T>(args: *const *const c_void, index: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { (*args.add(index)).cast::<T>().read_unaligned() }
}

/// The shape of a slice or view of `T` whose machine parameters begin at `index`.
///
/// # Safety
/// As [`read_argument`], for what this kind of parameter consists of.
pub unsafe fn read_shape<T>(args: *const *const c_void, index: usize, kind: ParamKind) -> Shape {
    let element = size_of::<T>();
    // SAFETY: the caller's promise.
    let [width, height, depth] = unsafe {
        match kind {
            ParamKind::Slice2 | ParamKind::SliceMut2 => {
                let extents: Extents2 = read_argument(args, index + 1);
                [extents.width(), extents.height(), 1].map(|side| side as usize)
            }
            ParamKind::Slice3 | ParamKind::SliceMut3 => {
                let extents: Extents3 = read_argument(args, index + 1);
                [extents.width(), extents.height(), extents.depth()].map(|side| side as usize)
            }
            _ => [read_argument::<usize>(args, index + 1), 1, 1],
        }
    };
    Shape { width, height, depth, element }
}

/// As [`read_shape`], of a parameter that need not be there.
///
/// # Safety
/// As [`read_shape`].
pub unsafe fn read_optional_shape<T>(
    args: *const *const c_void,
    index: usize,
    kind: ParamKind,
) -> Option<Shape> {
    // SAFETY: the caller's promise.
    unsafe {
        (!read_argument::<*const u8>(args, index).is_null()).then(|| read_shape::<T>(args, index, kind))
    }
}
