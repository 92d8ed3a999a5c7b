//! Stream-ordered memory pools. Every function in this module requires a current context.

use cudarc::driver::sys;
use sys::CUdevice_attribute as Attribute;
use sys::CUmemPool_attribute as PoolAttribute;

use super::call::{self, Feature, RelaxedCapture, check, not_supported};
use super::memory::{access, location};
use super::properties::read_attribute;
use crate::DevicePtr;
use crate::error::Result;

/// Handle of a memory pool, to be destroyed with [`Self::destroy`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Pool(u64);

impl Pool {
    /// Creates a pool on device `ordinal` to which `visitors` also have access.
    pub(super) fn create(ordinal: u32, visitors: &[u32]) -> Result<Self> {
        Feature::Pools.need("cuMemPoolCreate")?;
        let device = call::device(ordinal)?;
        if read_attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
            let text = "the device has no memory pools; use the native backend";
            return Err(not_supported("cuMemPoolCreate", text.to_owned()));
        }
        let properties = sys::CUmemPoolProps {
            allocType: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: location(ordinal)?,
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let _relaxed = RelaxedCapture::enter();
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointers are to local variables.
        unsafe { check("cuMemPoolCreate", sys::cuMemPoolCreate(&mut raw, &properties)) }?;
        let pool = Self(raw as u64);
        // Only the first error is reported.
        let ready = pool.keep_everything().and_then(|()| pool.let_in(visitors));
        ready.inspect_err(|_| drop(pool.destroy())).map(|()| pool)
    }

    fn raw(self) -> sys::CUmemoryPool {
        self.0 as sys::CUmemoryPool
    }

    /// Makes the pool keep freed memory until trimmed; by default, each synchronization would release it.
    fn keep_everything(self) -> Result<()> {
        let mut threshold = u64::MAX;
        let attribute = PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the pool is alive; the attribute is a 64-bit number, and the pointer points to one.
        let result =
            unsafe { sys::cuMemPoolSetAttribute(self.raw(), attribute, (&raw mut threshold).cast()) };
        check("cuMemPoolSetAttribute", result)
    }

    /// Grants devices access to the pool.
    pub(super) fn let_in(self, ordinals: &[u32]) -> Result<()> {
        let access = access(ordinals)?;
        if access.is_empty() {
            return Ok(());
        }
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the pool is alive; the description count matches.
        let result = unsafe { sys::cuMemPoolSetAccess(self.raw(), access.as_ptr(), access.len()) };
        check("cuMemPoolSetAccess", result)
    }

    /// Allocates memory for later work on `stream`. The allocation can be captured into a graph.
    pub(super) fn allocate(self, bytes: usize, stream: sys::CUstream) -> Result<DevicePtr> {
        let mut ptr = 0;
        // SAFETY: the pool is alive, as is the stream, by the trait's contract; the pointer is to a local variable.
        let result = unsafe { sys::cuMemAllocFromPoolAsync(&mut ptr, bytes, self.raw(), stream) };
        check("cuMemAllocFromPoolAsync", result)?;
        Ok(DevicePtr(ptr))
    }

    fn attribute(self, attribute: PoolAttribute) -> Result<u64> {
        let mut value = 0u64;
        // SAFETY: the pool is alive; the requested attributes are 64-bit numbers, and the pointer points to one.
        let result = unsafe { sys::cuMemPoolGetAttribute(self.raw(), attribute, (&raw mut value).cast()) };
        check("cuMemPoolGetAttribute", result)?;
        Ok(value)
    }

    /// Returns the number of reserved bytes, and the number of them in use.
    pub(super) fn info(self) -> Result<(u64, u64)> {
        let reserved = self.attribute(PoolAttribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        let used = self.attribute(PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        Ok((reserved, used))
    }

    /// Releases unused memory above `keep` bytes.
    pub(super) fn trim(self, keep: u64) -> Result<()> {
        let _relaxed = RelaxedCapture::enter();
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        // SAFETY: the pool is alive.
        unsafe { check("cuMemPoolTrimTo", sys::cuMemPoolTrimTo(self.raw(), keep)) }
    }

    /// Destroys the pool. The pool's allocations live until they are freed or the context is released.
    pub(super) fn destroy(self) -> Result<()> {
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the pool was created in `create`, and the handle is not used again.
        unsafe { check("cuMemPoolDestroy", sys::cuMemPoolDestroy(self.raw())) }
    }
}
