//! Kernels whose stack size is not known at compile time. One recurses as deep as its data requires, one formats
//! numbers with `core::fmt`, which calls through pointers, and one calls the functions of a table.

use core::fmt::{self, Write};

use gpu_std::prelude::*;
use gpu_std::thread;

/// Writes a digest of the chain that starts at `i` to `out[i]`. `next[i]` is the index after `i`; a chain ends beyond
/// the data. Each index costs one call, so long chains need more than the default stack of 1 KiB per GPU thread.
#[kernel]
pub fn digest_chains(next: &[u32], mut out: DisjointMut<u32>) {
    let me = thread::unique_index();
    if let Some(out) = out.get_mut(me) {
        *out = digest(next, me.get() as u32);
    }
}

/// Digest of the chain that starts at `at`. It is not simply `rest * 31 + at`, which a loop could compute.
#[inline(never)]
pub fn digest(next: &[u32], at: u32) -> u32 {
    match next.get(at as usize) {
        None => 1,
        Some(&after) => {
            let rest = digest(next, after);
            (rest ^ at).wrapping_mul(rest | 1).rotate_left(at % 32)
        }
    }
}

/// Writes the [`text_digest`] of `values[i]` to `out[i]`.
#[kernel]
pub fn format_floats(values: &[f32], mut out: DisjointMut<u32>) {
    let me = thread::unique_index();
    if let Some(out) = out.get_mut(me) {
        *out = text_digest(values[me.get()]);
    }
}

/// Digest of the text of a formatted number.
pub fn text_digest(value: f32) -> u32 {
    struct Digest(u32);

    impl Write for Digest {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            text.bytes().for_each(|byte| self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(0x0100_0193));
            Ok(())
        }
    }

    let mut digest = Digest(0x811c_9dc5);
    match write!(digest, "{value}") {
        Ok(()) => digest.0,
        Err(_) => 0,
    }
}

/// Writes `values[i]` after [`in_turn`] to `out[i]`.
#[kernel]
pub fn call_in_turn(values: &[u64], mut out: DisjointMut<u64>) {
    let me = thread::unique_index();
    if let Some(out) = out.get_mut(me) {
        *out = in_turn(values[me.get()]);
    }
}

/// A value after each function of a table has changed it. The iterator's `Option<fn>` is a nullable pointer.
pub fn in_turn(value: u64) -> u64 {
    let table: [fn(u64, u32) -> u64; 4] = [
        |x, n| x.wrapping_add(u64::from(n)),
        u64::rotate_left,
        |x, n| !x ^ u64::from(n),
        |x, n| x.wrapping_mul(u64::from(n) | 1),
    ];
    let mut x = value;
    for change in table {
        x = change(x, 3);
    }
    x = table[(value & 3) as usize](x, 6);
    for change in table {
        x = change(x, 5);
    }
    x
}
