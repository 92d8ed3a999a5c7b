//! An NVTX tool that the tests compile as a dynamic library. It writes each call to the file that `TOOL_LOG` names.
//!
//! Safety, everywhere in this file: the callers follow NVTX's injection protocol, and pass valid pointers to
//! attributes, tables and null-terminated texts. Those callers are the code under test.

use std::ffi::{CStr, c_char, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

#[repr(C)]
struct Callbacks {
    size: usize,
    get_module: unsafe extern "C" fn(u32, *mut *const *mut *const c_void, *mut u32) -> i32,
}

fn log(line: String) {
    let path = std::env::var("TOOL_LOG").unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    writeln!(file, "{line}").unwrap();
}

unsafe fn text(text: *const c_char) -> String {
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

unsafe fn shown(attributes: *const Attributes) -> String {
    let a = unsafe { &*attributes };
    assert_eq!((a.version, a.size), (3, 48));
    let message = match a.message_type {
        1 => format!("text {}", unsafe { text(a.message.cast()) }),
        3 => format!("registered {}", a.message.addr()),
        other => format!("type {other}"),
    };
    let color = if a.color_type == 1 { format!("{:08x}", a.color) } else { "none".into() };
    let payload = match a.payload_type {
        2 => (a.payload as i64).to_string(),
        3 => f64::from_bits(a.payload).to_string(),
        _ => "none".into(),
    };
    format!("{message} category {} color {color} payload {payload}", a.category)
}

static NEXT: AtomicU64 = AtomicU64::new(1);

unsafe extern "C" fn mark(_: *mut c_void, a: *const Attributes) {
    log(format!("mark {}", unsafe { shown(a) }));
}
unsafe extern "C" fn start(_: *mut c_void, a: *const Attributes) -> u64 {
    log(format!("start {}", unsafe { shown(a) }));
    77
}
unsafe extern "C" fn end(_: *mut c_void, id: u64) {
    log(format!("end {id}"));
}
unsafe extern "C" fn push(domain: *mut c_void, a: *const Attributes) -> i32 {
    assert_eq!(domain.addr(), 5);
    log(format!("push {}", unsafe { shown(a) }));
    0
}
unsafe extern "C" fn pop(_: *mut c_void) -> i32 {
    log("pop".into());
    0
}
unsafe extern "C" fn category(_: *mut c_void, id: u32, name: *const c_char) {
    log(format!("category {id} {}", unsafe { text(name) }));
}
unsafe extern "C" fn register(_: *mut c_void, name: *const c_char) -> *mut c_void {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    log(format!("string {id} {}", unsafe { text(name) }));
    id as usize as *mut c_void
}
unsafe extern "C" fn domain(name: *const c_char) -> *mut c_void {
    log(format!("domain {}", unsafe { text(name) }));
    5 as *mut c_void
}
unsafe extern "C" fn thread(_: u32, name: *const c_char) {
    log(format!("thread {}", unsafe { text(name) }));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn InitializeInjectionNvtx2(tables: unsafe extern "C" fn(u32) -> *const c_void) -> i32 {
    if std::env::var_os("TOOL_FAILS").is_some() {
        return 0;
    }
    unsafe {
        assert!(tables(2).is_null() && !tables(3).is_null());
        let callbacks = &*tables(1).cast::<Callbacks>();
        let module = |number, expected| {
            let (mut table, mut size) = (std::ptr::null(), 0);
            assert_eq!((callbacks.get_module)(number, &mut table, &mut size), 1);
            assert_eq!(size, expected);
            assert!((*table).is_null() && (*table.add(size as usize)).is_null());
            table
        };
        let (core, core2) = (module(1, 16), module(5, 16));
        for (number, size) in [(2, 9), (3, 15), (4, 7), (6, 7)] {
            module(number, size);
        }
        let set = |table: *const *mut *const c_void, slot: usize, function: *const c_void| {
            **table.add(slot) = function;
        };
        set(core, 14, thread as *const c_void);
        let functions = [
            (1, mark as *const c_void),
            (2, start as *const c_void),
            (3, end as *const c_void),
            (4, push as *const c_void),
            (5, pop as *const c_void),
            (8, category as *const c_void),
            (10, register as *const c_void),
            (12, domain as *const c_void),
        ];
        functions.iter().for_each(|(slot, function)| set(core2, *slot, *function));
    }
    1
}
