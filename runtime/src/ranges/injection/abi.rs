//! ABI between a program and an NVTX 3 tool, from NVIDIA's `nvtxTypes.h` and `nvToolsExt.h`.
//!
//! A tool receives tables of the program's slots, one per function of the interface, and stores pointers to its
//! functions in them. Calls through empty slots have no effect.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Version of the interface.
pub const VERSION: u16 = 3;
/// Symbol that a tool must export.
pub const INITIALIZE: &[u8] = b"InitializeInjectionNvtx2\0";

/// A tool's function `InitializeInjectionNvtx2`, which returns 0 on failure.
pub type Initialize = unsafe extern "C" fn(GetExportTable) -> c_int;
pub type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;

pub type Handle = *mut c_void;
pub type MarkEx = unsafe extern "C" fn(Handle, *const EventAttributes);
pub type RangeStartEx = unsafe extern "C" fn(Handle, *const EventAttributes) -> u64;
pub type RangeEnd = unsafe extern "C" fn(Handle, u64);
pub type RangePushEx = unsafe extern "C" fn(Handle, *const EventAttributes) -> c_int;
pub type RangePop = unsafe extern "C" fn(Handle) -> c_int;
pub type NameCategory = unsafe extern "C" fn(Handle, u32, *const c_char);
pub type RegisterString = unsafe extern "C" fn(Handle, *const c_char) -> Handle;
pub type DomainCreate = unsafe extern "C" fn(*const c_char) -> Handle;
pub type NameOsThread = unsafe extern "C" fn(u32, *const c_char);

/// `nvtxEventAttributes_t`.
#[repr(C)]
pub struct EventAttributes {
    pub version: u16,
    pub size: u16,
    pub category: u32,
    /// Type of the color; 1 means ARGB.
    pub color_type: i32,
    pub color: u32,
    /// Type of the payload; 2 means a signed integer, 3 means a double.
    pub payload_type: i32,
    pub reserved: i32,
    pub payload: u64,
    /// Type of the message; 1 means NUL-terminated text, 3 means a registered string.
    pub message_type: i32,
    pub message: *const c_void,
}

const _: () = assert!(size_of::<usize>() != 8 || size_of::<EventAttributes>() == 48);

/// The slots of one NVTX module, numbered from 1.
pub struct Slots<const N: usize>([AtomicPtr<c_void>; N]);

impl<const N: usize> Slots<N> {
    const fn new() -> Self {
        Self([const { AtomicPtr::new(std::ptr::null_mut()) }; N])
    }

    /// Returns the function in a slot; `None` if it is empty.
    ///
    /// # Safety
    /// `F` must be the function pointer type of that slot.
    pub unsafe fn function<F: Copy>(&self, number: usize) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let function = self.0[number - 1].load(Ordering::Acquire);
        // SAFETY: a tool stores functions of the slot's type, which is `F`; function pointers have the size of a
        // pointer.
        (!function.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&function) })
    }
}

/// A module's table for a tool: pointers to its slots, indexed by number, with null before and after them.
struct Table<const N: usize>([*const AtomicPtr<c_void>; N]);

// SAFETY: the pointers refer to statics, whose slots are atomic.
unsafe impl<const N: usize> Sync for Table<N> {}

impl<const N: usize> Table<N> {
    const fn of<const M: usize>(slots: &'static Slots<M>) -> Self {
        assert!(N == M + 2, "a place before the slots and one after them");
        let mut table = [std::ptr::null(); N];
        let mut slot = 0;
        while slot < M {
            table[slot + 1] = std::ptr::from_ref(&slots.0[slot]);
            slot += 1;
        }
        Self(table)
    }
}

macro_rules! modules {
    ($($slots:ident $table:ident $number:literal $count:literal;)*) => {
        $(
            pub static $slots: Slots<$count> = Slots::new();
            static $table: Table<{ $count + 2 }> = Table::of(&$slots);
        )*

        /// Returns the table of a module, and the number of its entries except the last.
        fn module(number: c_uint) -> Option<(*const *const AtomicPtr<c_void>, c_uint)> {
            match number {
                $($number => Some(($table.0.as_ptr(), $count + 1)),)*
                _ => None,
            }
        }
    };
}

modules! {
    CORE CORE_TABLE 1 15;
    CUDA CUDA_TABLE 2 8;
    OPENCL OPENCL_TABLE 3 14;
    CUDART CUDART_TABLE 4 6;
    CORE2 CORE2_TABLE 5 15;
    SYNC SYNC_TABLE 6 6;
}

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    get_module: unsafe extern "C" fn(c_uint, *mut *const *const AtomicPtr<c_void>, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set_tool_version: unsafe extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), get_module };
static VERSION_INFO: VersionInfo =
    VersionInfo { size: size_of::<VersionInfo>(), version: VERSION as u32, reserved: 0, set_tool_version };
unsafe extern "C" fn get_module(
    number: c_uint,
    table: *mut *const *const AtomicPtr<c_void>,
    places: *mut c_uint,
) -> c_int {
    let Some((found, count)) = module(number) else { return 0 };
    // SAFETY: the tool passes null or writable pointers.
    unsafe {
        if !places.is_null() {
            places.write(count);
        }
        if !table.is_null() {
            table.write(found);
        }
    }
    1
}

/// Ignores the tool's version, because all versions provide the functions that this crate uses.
unsafe extern "C" fn set_tool_version(_: u32) {}

/// Returns the program's table with this number.
pub unsafe extern "C" fn get_export_table(number: u32) -> *const c_void {
    match number {
        1 => std::ptr::from_ref(&CALLBACKS).cast(),
        3 => std::ptr::from_ref(&VERSION_INFO).cast(),
        _ => std::ptr::null(),
    }
}
