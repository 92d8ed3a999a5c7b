//! `printf!` produces the same characters as C.

use crate::common::{Args, launch};
use gpu_std::prelude::*;
use warpsmith_emulator::output::capture;

#[kernel]
fn prints(small: i8, big: u64, float: f32, half: f16) {
    printf!("plain 100%%\n");
    printf!("%d|%5d|%-5d|%05d|%+d|%i\n", small, small, small, small, small, i64::MIN);
    printf!("%u|%x|%#X|%o|%llu|%hd\n", big, small, 255_u8, 8_i32, big, true);
    printf!("%f|%.2f|%10.3e|%g|%G\n", float, float, half, 1e-10, bf16::ONE);
    printf!("[%c%c] %s %s", 'x', b'y', c"text", c"");
    printf!("%c%c%d%c%f\n", 'a', 'é', 1, 'b', 0.5,);
    let data = [1, 2];
    printf!("%d %p\n", (&raw const data[0]).is_null(), core::ptr::null::<u8>());
}

#[test]
fn formats_are_cs() {
    let args = Args::new().value(-7_i8).value(u64::MAX).value(2.71_f32).value(f16::from_f32(-0.5));
    let ((), printed) = capture(|| launch::<prints>([1, 1, 1], [1, 1, 1], &args));
    let text: String =
        printed.iter().filter(|line| line.kernel == "prints").map(|line| line.text.as_str()).collect();
    // The C library prints the numbers. That of `x86_64-pc-windows-gnu` has longer exponents and null pointers.
    let (exponent, null) = match cfg!(all(windows, target_env = "gnu")) {
        true => ("e-0", "0000000000000000"),
        false => ("e-", "(nil)"),
    };
    assert_eq!(
        text,
        format!(
            "plain 100%\n\
             -7|   -7|-7   |-0007|-7|-9223372036854775808\n\
             18446744073709551615|f9|0XFF|10|18446744073709551615|1\n\
             2.710000|2.71|-5.000{exponent}01|1{exponent}10|1\n\
             [xy] text a?1b0.500000\n\
             0 {null}\n"
        )
    );
}

#[kernel]
fn every_thread_prints() {
    printf!("%u\n", thread::index_1d());
}

#[test]
fn every_thread_is_heard() {
    let ((), printed) = capture(|| launch::<every_thread_prints>([2, 1, 1], [33, 1, 1], &Args::new()));
    let mut numbers: Vec<u32> = printed
        .iter()
        .filter(|line| line.kernel == "every_thread_prints")
        .map(|line| line.text.trim_end())
        .map(|line| line.parse().expect("a number"))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..66).collect::<Vec<_>>());
}
