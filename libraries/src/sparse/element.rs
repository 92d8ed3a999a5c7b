//! [`Index`]: the index types of a sparse matrix.

use cudarc::cusparse::sys::cusparseIndexType_t;

use warpsmith_runtime::memory::DeviceCopy;

mod sealed {
    pub trait Sealed {}
}

/// An index type for offsets and columns: `i32` or `i64`.
pub trait Index: DeviceCopy + sealed::Sealed {
    /// cuSPARSE's code for the type.
    #[doc(hidden)]
    const INDEX: cusparseIndexType_t;
    /// Maximum value.
    #[doc(hidden)]
    const MAX: usize;
    /// Returns the number as `usize`, or `None` if it is negative.
    #[doc(hidden)]
    fn get(self) -> Option<usize>;
}

macro_rules! index {
    ($type:ty, $number:ident) => {
        impl sealed::Sealed for $type {}

        impl Index for $type {
            const INDEX: cusparseIndexType_t = cusparseIndexType_t::$number;
            const MAX: usize = <$type>::MAX as usize;

            fn get(self) -> Option<usize> {
                usize::try_from(self).ok()
            }
        }
    };
}

index!(i32, CUSPARSE_INDEX_32I);
index!(i64, CUSPARSE_INDEX_64I);
