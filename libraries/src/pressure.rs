//! [`with_memory`]: frees device memory for allocations that a library makes itself.

use crate::error::LibraryError;
use warpsmith_runtime::{Device, Error, Result};

/// Calls `make`. If a library ran out of device memory and the caching allocator can release unused memory, calls
/// `make` once more.
pub(super) fn with_memory<R>(device: &Device, make: impl Fn() -> Result<R>) -> Result<R> {
    let made = make();
    match made.as_ref().err().and_then(Error::downcast_ref) {
        Some(error) if lacks_memory(error) => {
            // If releasing memory fails, for example during graph capture, the library's error is more informative.
            let freed = device.memory().empty_cache().unwrap_or(0);
            if freed > 0 { make() } else { made }
        }
        _ => made,
    }
}

/// Returns true if the status reports an allocation failure, such as `CUFFT_ALLOC_FAILED` or
/// `CUBLAS_STATUS_ALLOC_FAILED`.
fn lacks_memory(error: &LibraryError) -> bool {
    matches!(error, LibraryError::Call { status, .. } if status.contains("ALLOC"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use warpsmith_runtime::emulated::EmulatedDriver;
    use warpsmith_runtime::memory::DeviceBuffer;
    use warpsmith_runtime::stream::Stream;

    fn failure(status: &str) -> Error {
        LibraryError::Call { library: "cuFFT", call: "cufftCreate", status: status.to_owned(), context: None }
            .into()
    }

    #[test]
    fn calls_are_repeated_after_the_cache_is_released() -> Result<()> {
        let device = Device::with_driver(EmulatedDriver::builder().build(), 0)?;
        let stream = Stream::new(&device)?;
        let calls = Cell::new(0);
        // The function succeeds once no memory is cached or in use.
        let run = |status: &str| {
            with_memory(&device, || {
                calls.set(calls.get() + 1);
                let reserved = device.memory().statistics().reserved_bytes.all.current;
                if reserved == 0 { Ok(()) } else { Err(failure(status)) }
            })
        };
        let buffer = DeviceBuffer::<u8>::uninit(&stream, 1 << 20)?;
        assert!(run("CUFFT_ALLOC_FAILED").is_err());
        assert_eq!(calls.replace(0), 1, "nothing could be freed");
        drop(buffer);
        assert!(run("CUFFT_INVALID_SIZE").is_err());
        assert_eq!(calls.replace(0), 1, "memory is not what it lacks");
        run("CUFFT_ALLOC_FAILED")?;
        assert_eq!(calls.get(), 2);
        Ok(())
    }
}
