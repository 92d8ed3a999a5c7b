//! Entry points for instrumented code: the functions to which LLVM's `tsan` pass inserts calls, and the functions that
//! the device library's atomics call.
//!
//! Each entry point receives the address of an access. The return address identifies the source location of the access,
//! so each entry point is a few lines of assembly that pass it on. The entry points are weak symbols, so a program that
//! is linked with ThreadSanitizer's own runtime uses the functions of that runtime instead.

use std::arch::global_asm;
use std::ffi::c_void;
use std::sync::atomic::Ordering as Memory;

use super::clocks::{Operation, Ordering, Scope};
use super::{Accessed, Checker};
use crate::fault::{Fault, FaultKind};
use crate::registers::{Registers, registers};

/// Returns true if an access must be checked, that is, if the launch on this host thread is checked and the memory is
/// not the thread's own stack. Most accesses are to the stack, so this test comes first.
#[inline(always)]
fn is_checked(address: usize) -> bool {
    let registers = registers();
    let checker = registers.checker.get();
    if checker.is_null() {
        return false;
    }
    // SAFETY: as in `with_checker`; no code of the program that could create a second reference runs here.
    let checker = unsafe { &mut *checker };
    checker.has_accesses = true;
    // The yielder is at the top of the stack, so the stack lies below it.
    let above = (registers.yielder.get() as usize).wrapping_sub(address).wrapping_sub(1);
    above >= checker.stack_bytes && registers.in_kernel()
}

/// Passes an access to the checker if it must be checked.
#[inline(always)]
fn accessed(address: usize, access: Accessed) {
    if is_checked(address) {
        check(address, access);
    }
}

/// Passes an access for which [`is_checked`] returned true to the checker.
#[inline(always)]
fn check(address: usize, access: Accessed) {
    let registers = registers();
    let (number, thread) = (registers.block().number, registers.linear.get());
    // SAFETY: as in `is_checked`, which has established that the pointer is not null.
    let checker = unsafe { &mut *registers.checker.get() };
    if !checker.access_at_once(number, thread, address, &access) {
        check_slowly(registers, address, access);
    }
}

#[cold]
#[inline(never)]
fn check_slowly(registers: &Registers, address: usize, access: Accessed) {
    // The emulator's registers are not GPU memory.
    if address.wrapping_sub(std::ptr::from_ref(registers) as usize) < size_of::<Registers>() {
        return;
    }
    let (number, thread) = (registers.block().number, registers.linear.get());
    let fault = registers.with_checker(|checker| {
        checker.access(number, thread, address, &access);
        let kind = match checker {
            Checker { full: true, .. } => FaultKind::Check { findings: Vec::new(), more: 0, then: None },
            Checker { out_of_memory: true, .. } => FaultKind::OutOfShadow(checker.settings.memory),
            _ => return None,
        };
        let block = Some(registers.block().index());
        Some(Fault { kernel: checker.kernel.name, block, thread: None, kind })
    });
    // The launch ends when the thread next waits or exits, because the thread cannot be unwound at this point.
    if let Some(fault) = fault.flatten() {
        registers.set().fail(fault);
    }
}

macro_rules! accesses {
    ($($function:ident($bytes:literal, $($flag:ident)*): $($symbol:literal)*;)*) => {
        $(
            extern "C" fn $function(address: usize, pc: usize) {
                /// Checks an access. This is a separate function so that the caller needs no stack frame.
                #[inline(never)]
                extern "C" fn check_it(address: usize, pc: usize) {
                    check(address, Accessed { $($flag: true,)* ..Accessed::new($bytes, pc) });
                }
                if is_checked(address) {
                    check_it(address, pc);
                }
            }
            $(forward!($symbol, 1, $function);)*
        )*
    };
}

/// Instructions that call `{function}` with the return address as the last argument, after the given number of
/// arguments.
#[cfg(all(target_arch = "x86_64", not(windows)))]
macro_rules! call_with_return_address {
    (1) => {
        "mov rsi, [rsp]\njmp {function}"
    };
    (3) => {
        "mov rcx, [rsp]\njmp {function}"
    };
}
#[cfg(all(target_arch = "x86_64", windows))]
macro_rules! call_with_return_address {
    (1) => {
        "mov rdx, [rsp]\njmp {function}"
    };
    (3) => {
        "mov r9, [rsp]\njmp {function}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! call_with_return_address {
    (1) => {
        "mov x1, x30\nb {function}"
    };
    (3) => {
        "mov x3, x30\nb {function}"
    };
}

/// Defines a symbol that calls `$function` with the return address as an additional argument.
macro_rules! forward {
    ($symbol:literal, $arguments:tt, $function:ident) => {
        #[cfg(not(any(windows, target_vendor = "apple")))]
        global_asm!(
            concat!(".pushsection .text.", $symbol, ",\"ax\",@progbits"),
            concat!(".weak ", $symbol),
            concat!(".type ", $symbol, ",@function"),
            concat!($symbol, ":"),
            call_with_return_address!($arguments),
            concat!(".size ", $symbol, ", . - ", $symbol),
            ".popsection",
            function = sym $function,
        );
        #[cfg(windows)]
        global_asm!(
            concat!(".globl ", $symbol),
            concat!($symbol, ":"),
            call_with_return_address!($arguments),
            function = sym $function,
        );
        #[cfg(target_vendor = "apple")]
        global_asm!(
            concat!(".globl _", $symbol),
            concat!("_", $symbol, ":"),
            call_with_return_address!($arguments),
            function = sym $function,
        );
    };
}

accesses! {
    read_1(1, reads): "__tsan_read1";
    read_2(2, reads aligned): "__tsan_read2";
    read_4(4, reads aligned): "__tsan_read4";
    read_8(8, reads aligned): "__tsan_read8" "__tsan_vptr_read";
    read_16(16, reads aligned): "__tsan_read16";
    write_1(1, writes): "__tsan_write1";
    write_2(2, writes aligned): "__tsan_write2";
    write_4(4, writes aligned): "__tsan_write4";
    write_8(8, writes aligned): "__tsan_write8" "__tsan_vptr_update";
    write_16(16, writes aligned): "__tsan_write16";
    update_1(1, reads writes): "__tsan_read_write1";
    update_2(2, reads writes aligned): "__tsan_read_write2";
    update_4(4, reads writes aligned): "__tsan_read_write4";
    update_8(8, reads writes aligned): "__tsan_read_write8";
    update_16(16, reads writes aligned): "__tsan_read_write16";
    unaligned_read_2(2, reads): "__tsan_unaligned_read2";
    unaligned_read_4(4, reads): "__tsan_unaligned_read4";
    unaligned_read_8(8, reads): "__tsan_unaligned_read8";
    unaligned_read_16(16, reads): "__tsan_unaligned_read16";
    unaligned_write_2(2, writes): "__tsan_unaligned_write2";
    unaligned_write_4(4, writes): "__tsan_unaligned_write4";
    unaligned_write_8(8, writes): "__tsan_unaligned_write8";
    unaligned_write_16(16, writes): "__tsan_unaligned_write16";
    unaligned_update_2(2, reads writes): "__tsan_unaligned_read_write2";
    unaligned_update_4(4, reads writes): "__tsan_unaligned_read_write4";
    unaligned_update_8(8, reads writes): "__tsan_unaligned_read_write8";
    unaligned_update_16(16, reads writes): "__tsan_unaligned_read_write16";
}

extern "C" fn nothing() {}
forward!("__tsan_init", 1, nothing);
forward!("__tsan_func_entry", 1, nothing);
forward!("__tsan_func_exit", 1, nothing);

extern "C" fn copy(to: *mut u8, from: *const u8, bytes: usize, pc: usize) -> *mut u8 {
    if bytes != 0 {
        // Copies of uninitialized bytes, such as padding, are permitted.
        accessed(from as usize, Accessed { reads: true, any_value: true, ..Accessed::new(bytes, pc) });
        accessed(to as usize, Accessed { writes: true, ..Accessed::new(bytes, pc) });
    }
    // SAFETY: the caller is a `memcpy` or `memmove` of the instrumented program, with the same arguments.
    unsafe { std::ptr::copy(from, to, bytes) };
    to
}
forward!("__tsan_memcpy", 3, copy);
forward!("__tsan_memmove", 3, copy);

extern "C" fn fill(to: *mut u8, value: i32, bytes: usize, pc: usize) -> *mut u8 {
    if bytes != 0 {
        accessed(to as usize, Accessed { writes: true, ..Accessed::new(bytes, pc) });
    }
    // SAFETY: the caller is a `memset` of the instrumented program, with the same arguments.
    unsafe { std::ptr::write_bytes(to, value as u8, bytes) };
    to
}
forward!("__tsan_memset", 3, fill);

/// Handles an atomic operation, which is described by its address, its size, and its other properties in the packed
/// form that `unpacked` expects.
extern "C" fn atomic(address: usize, bytes: usize, packed: u32, pc: usize) {
    if is_checked(address) {
        match bytes {
            4 => check_atomic::<4>(address, packed, pc),
            _ => check_atomic::<8>(address, packed, pc),
        }
    }
}

fn check_atomic<const BYTES: usize>(address: usize, packed: u32, pc: usize) {
    let (operation, order, scope) = unpacked(packed);
    let access = Accessed {
        reads: operation != Operation::Store,
        writes: operation != Operation::Load,
        aligned: true,
        atomic: true,
        narrow: scope == Scope::Block,
        ..Accessed::new(BYTES, pc)
    };
    check(address, access);
    let registers = registers();
    let (number, thread) = (registers.block().number, registers.linear.get());
    registers.with_checker(|checker| {
        checker.clocks.atomic(number, thread, address, operation, order, scope);
    });
}
forward!("__warpsmith_check_atomic", 3, atomic);

unsafe extern "C" {
    fn __warpsmith_check_atomic(address: usize, bytes: usize, packed: u32);
}

/// Reports an atomic operation of the device library, before it is performed. The call site is its source location.
#[inline(always)]
pub fn atomic_access<T>(address: *mut T, operation: Operation, order: Memory, scope: Scope) {
    let packed = operation as u32 | order_bits(order) << 2 | (scope as u32) << 4;
    // SAFETY: the arguments are numbers.
    unsafe { __warpsmith_check_atomic(address as usize, size_of::<T>(), packed) };
}

/// Copies the value of a launch's kernel parameter to `to`.
///
/// # Safety
/// `args` must contain more than `index` pointers, the pointer at `index` must point to `bytes` bytes, and `to` must
/// have space for them.
#[inline(never)]
pub unsafe fn read_argument(args: *const *const c_void, index: usize, to: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let from = (*args.add(index)).cast::<u8>();
        match bytes {
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            _ => to.copy_from_nonoverlapping(from, bytes),
        }
    }
}

/// Runs host code that replaces a GPU function, without checking its memory accesses.
pub fn unchecked<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(*mut Checker);
    impl Drop for Restore {
        fn drop(&mut self) {
            registers().checker.set(self.0);
        }
    }
    let _restore = Restore(registers().checker.replace(std::ptr::null_mut()));
    f()
}

/// Reports a fence of the device library.
pub fn fence(order: Memory, scope: Scope) {
    let registers = registers();
    if !registers.checker.get().is_null() && registers.in_kernel() {
        let (number, thread) = (registers.block().number, registers.linear.get());
        let (_, order, _) = unpacked(order_bits(order) << 2);
        registers.with_checker(|checker| checker.clocks.fence(number, thread, order, scope));
    }
}

#[inline(always)]
fn order_bits(order: Memory) -> u32 {
    match order {
        Memory::Relaxed => 0,
        Memory::Acquire => 1,
        Memory::Release => 2,
        _ => 3,
    }
}

fn unpacked(packed: u32) -> (Operation, Ordering, Scope) {
    let operation = match packed & 3 {
        0 => Operation::Load,
        1 => Operation::Store,
        _ => Operation::Update,
    };
    let order = Ordering { acquire: packed >> 2 & 1 == 1, release: packed >> 3 & 1 == 1 };
    (operation, order, if packed >> 4 & 1 == 0 { Scope::Block } else { Scope::Device })
}
