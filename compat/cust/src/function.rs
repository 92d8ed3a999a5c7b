//! [`Function`]: a kernel; grid and block sizes; [`launch!`](crate::launch!).

use std::marker::PhantomData;

use warpsmith_runtime as runtime;

use crate::error::CudaResult;
use crate::module::Module;

macro_rules! sizes {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name {
            /// Size along x.
            pub x: u32,
            /// Size along y.
            pub y: u32,
            /// Size along z.
            pub z: u32,
        }

        impl $name {
            /// Creates a one-dimensional size.
            pub fn x(x: u32) -> Self {
                Self { x, y: 1, z: 1 }
            }

            /// Creates a two-dimensional size.
            pub fn xy(x: u32, y: u32) -> Self {
                Self { x, y, z: 1 }
            }

            /// Creates a three-dimensional size.
            pub fn xyz(x: u32, y: u32, z: u32) -> Self {
                Self { x, y, z }
            }
        }

        impl From<u32> for $name {
            fn from(x: u32) -> Self {
                Self::x(x)
            }
        }

        impl From<(u32, u32)> for $name {
            fn from((x, y): (u32, u32)) -> Self {
                Self::xy(x, y)
            }
        }

        impl From<(u32, u32, u32)> for $name {
            fn from((x, y, z): (u32, u32, u32)) -> Self {
                Self::xyz(x, y, z)
            }
        }

        impl From<&$name> for $name {
            fn from(size: &$name) -> Self {
                *size
            }
        }

        #[cfg(feature = "glam")]
        impl From<glam::UVec2> for $name {
            fn from(size: glam::UVec2) -> Self {
                Self::xy(size.x, size.y)
            }
        }

        #[cfg(feature = "glam")]
        impl From<glam::UVec3> for $name {
            fn from(size: glam::UVec3) -> Self {
                Self::xyz(size.x, size.y, size.z)
            }
        }

        #[cfg(feature = "glam")]
        impl From<glam::USizeVec2> for $name {
            fn from(size: glam::USizeVec2) -> Self {
                Self::xy(size.x as u32, size.y as u32)
            }
        }

        #[cfg(feature = "glam")]
        impl From<glam::USizeVec3> for $name {
            fn from(size: glam::USizeVec3) -> Self {
                Self::xyz(size.x as u32, size.y as u32, size.z as u32)
            }
        }
    )* };
}
sizes! {
    /// Number of blocks in a launch.
    GridSize;
    /// Number of threads per block.
    BlockSize;
}

impl BlockSize {
    fn threads(self) -> u32 {
        self.x.saturating_mul(self.y).saturating_mul(self.z)
    }
}

/// Properties of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FunctionAttribute {
    /// Maximum threads per block.
    MaxThreadsPerBlock,
    /// Bytes of static shared memory.
    SharedMemorySizeBytes,
    /// Bytes of local memory per thread.
    LocalSizeBytes,
    /// Number of registers per thread.
    NumRegisters,
    /// Architecture of the machine code, `10 * major + minor`.
    BinaryVersion,
}

/// Kernel of a module.
#[derive(Debug, Clone)]
pub struct Function<'a> {
    inner: runtime::Function,
    module: PhantomData<&'a Module>,
}

impl Function<'_> {
    pub(crate) fn new(inner: runtime::Function) -> Self {
        Self { inner, module: PhantomData }
    }

    /// Returns the corresponding kernel of the runtime.
    pub fn runtime(&self) -> &runtime::Function {
        &self.inner
    }

    /// Returns the value of a function attribute.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn get_attribute(&self, attribute: FunctionAttribute) -> CudaResult<i32> {
        let of = self.inner.attributes();
        let value = match attribute {
            FunctionAttribute::MaxThreadsPerBlock => of.max_threads_per_block,
            FunctionAttribute::SharedMemorySizeBytes => of.static_shared,
            FunctionAttribute::LocalSizeBytes => of.local_memory,
            FunctionAttribute::NumRegisters => of.registers,
            FunctionAttribute::BinaryVersion => of.binary_arch,
        };
        Ok(i32::try_from(value).unwrap_or(i32::MAX))
    }

    /// Returns the maximum number of resident blocks of this size per SM.
    ///
    /// # Errors
    /// Returns driver errors.
    pub fn max_active_blocks_per_multiprocessor(
        &self,
        block_size: BlockSize,
        dynamic_smem_size: usize,
    ) -> CudaResult<u32> {
        Ok(self.inner.occupancy(block_size.threads(), bytes(dynamic_smem_size))?)
    }

    /// Returns, as `(grid, block)`, the block size with maximum occupancy, and the smallest grid of such blocks that
    /// fills the device.
    ///
    /// `block_size_limit` is the maximum number of threads per block; 0 means no limit.
    ///
    /// # Errors
    /// Returns an error if the shared memory exceeds the limit of a block. Also returns driver errors.
    pub fn suggested_launch_configuration(
        &self,
        dynamic_smem_size: usize,
        block_size_limit: BlockSize,
    ) -> CudaResult<(u32, u32)> {
        let limit = match block_size_limit.threads() {
            0 => u32::MAX,
            threads => threads,
        };
        let shared = bytes(dynamic_smem_size);
        // For a block size above the limit, the closure requests more shared memory than exists, so that this size is
        // not selected.
        let best = self.inner.potential_block(|block| if block <= limit { shared } else { u32::MAX })?;
        let block = best.block.min(limit);
        let grid = if block == best.block { best.grid } else { self.grid(block, shared)? };
        Ok((grid, block))
    }

    fn grid(&self, block: u32, shared: u32) -> CudaResult<u32> {
        Ok(u32::try_from(self.inner.max_blocks(block, shared)?).unwrap_or(u32::MAX))
    }
}

fn bytes(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Launches a kernel, which starts when the stream reaches the launch.
///
/// ```text
/// launch!(function<<<grid, block, shared_bytes, stream>>>(argument, …))
/// launch!(module.kernel_name<<<grid, block, shared_bytes, stream>>>(argument, …))
/// ```
///
/// `function`, `module` and `stream` must be the names of variables. The grid and the block are numbers or tuples. A
/// slice parameter `&[T]` requires two arguments: the pointer and the length. The macro evaluates to a
/// `CudaResult<()>`.
///
/// # Safety
/// The call is `unsafe`. The arguments must have the types of the kernel's parameters, and memory to which they point
/// must stay valid until the kernel is complete. With these arguments, the kernel must not have undefined behavior.
#[macro_export]
macro_rules! launch {
    ($module:ident . $function:ident <<<$grid:expr, $block:expr, $shared:expr, $stream:ident>>>($($argument:expr),* $(,)?)) => {
        match $module.get_function(::core::stringify!($function)) {
            ::core::result::Result::Ok(function) => {
                $crate::launch!(function<<<$grid, $block, $shared, $stream>>>($($argument),*))
            }
            ::core::result::Result::Err(error) => ::core::result::Result::Err(error),
        }
    };
    ($function:ident <<<$grid:expr, $block:expr, $shared:expr, $stream:ident>>>($($argument:expr),* $(,)?)) => {
        $stream.launch(
            &$function,
            $grid,
            $block,
            $shared,
            &[$($crate::function::argument(&$argument)),*],
        )
    };
}

/// Returns the address and the size of an argument of [`launch!`](crate::launch!).
#[doc(hidden)]
pub fn argument<T: crate::memory::DeviceCopy>(value: &T) -> (*const std::ffi::c_void, usize) {
    ((&raw const *value).cast(), size_of::<T>())
}
