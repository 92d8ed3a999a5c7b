//! [`Symbol`]: a global variable of a module.

use std::fmt;
use std::marker::PhantomData;

use crate::error::CudaResult;
use crate::memory::{CopyDestination, DeviceCopy, DevicePointer, Transfer};
use crate::module::Module;

/// Global variable of type `T` in a module, as returned by [`Module::get_global`].
pub struct Symbol<'a, T: DeviceCopy> {
    pointer: DevicePointer<T>,
    module: PhantomData<&'a Module>,
}

impl<T: DeviceCopy> Symbol<'_, T> {
    /// Creates a symbol for the variable at an address in a module. The variable must have the size of a `T`.
    pub(crate) fn new(address: u64) -> Self {
        Self { pointer: DevicePointer::from_raw(address), module: PhantomData }
    }
}

impl<T: DeviceCopy> fmt::Debug for Symbol<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Symbol({:?})", self.pointer)
    }
}

impl<T: DeviceCopy> CopyDestination<T> for Symbol<'_, T> {
    fn copy_from(&mut self, source: &T) -> CudaResult<()> {
        let transfer = Transfer::ToDevice { from: (&raw const *source).cast(), to: self.pointer.as_raw() };
        // SAFETY: source and destination are one value each and are borrowed until the copy is complete. Callers of
        // launches guarantee that no kernel uses the variable at the same time.
        unsafe { transfer.run(size_of::<T>()) }
    }

    fn copy_to(&self, dest: &mut T) -> CudaResult<()> {
        let transfer = Transfer::ToHost { from: self.pointer.as_raw(), to: (&raw mut *dest).cast() };
        // SAFETY: as above.
        unsafe { transfer.run(size_of::<T>()) }
    }
}
