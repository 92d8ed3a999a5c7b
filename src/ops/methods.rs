//! [`ReduceExt`]: full reductions as methods of buffers and slices.

use warpsmith_runtime::extension::site;
use warpsmith_runtime::{DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSliceMut, Result};

use gpu_std::scalar::{Float, Number};

/// Defines the trait. Each method calls the function of the same name.
macro_rules! methods {
    ($(#[$doc:meta])* $trait:ident: $($name:ident: $bound:ident => $value:ty;)*) => {
        $(#[$doc])*
        pub trait $trait<T: DeviceCopy> {
            /// Returns the elements to reduce.
            #[doc(hidden)]
            fn reduced(&self) -> DeviceSlice<'_, T>;
            $(
                #[doc = concat!("Calls [`ops::", stringify!($name), "()`](super::", stringify!($name), "()).")]
                ///
                /// # Errors
                /// Returns the same errors as the function of the same name.
                #[track_caller]
                fn $name(&self) -> Result<$value>
                where
                    T: $bound,
                {
                    let _site = site();
                    let x = self.reduced();
                    super::$name(x.stream(), x)
                }
            )*
        }
    };
}

methods! {
    /// Full reductions of a buffer or slice, on the stream on which the buffer was allocated. Each method calls the
    /// function of the same name in [`ops`](crate::ops) and waits for the value. See that function for types, special
    /// cases and errors.
    ///
    /// ```
    /// # use warpsmith::prelude::*;
    /// # let stream = Stream::new(&Device::open("cpu")?)?;
    /// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 7.0, 4.0])?;
    /// assert_eq!((x.sum()?, x.mean()?, x.argmax()?), (12.0, 4.0, 1));
    /// assert_eq!(x.slice(1..).min()?, 4.0);
    /// # Ok::<(), warpsmith::Error>(())
    /// ```
    ReduceExt:
    sum: Number => T::Sum;
    prod: Number => T::Sum;
    mean: Float => T;
    min: Number => T;
    max: Number => T;
    argmin: Number => u64;
    argmax: Number => u64;
}

impl<T: DeviceCopy> ReduceExt<T> for DeviceBuffer<T> {
    fn reduced(&self) -> DeviceSlice<'_, T> {
        self.as_slice()
    }
}

impl<T: DeviceCopy> ReduceExt<T> for DeviceSlice<'_, T> {
    fn reduced(&self) -> DeviceSlice<'_, T> {
        *self
    }
}

impl<T: DeviceCopy> ReduceExt<T> for DeviceSliceMut<'_, T> {
    fn reduced(&self) -> DeviceSlice<'_, T> {
        self.as_slice()
    }
}
