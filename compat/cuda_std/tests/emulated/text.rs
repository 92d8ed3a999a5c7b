//! Text from kernels.

use cuda_std::prelude::*;
use warpsmith_emulator::output::{Printed, capture};

use crate::common::{Args, launch_shared};

/// Returns the text of each print call when a kernel runs in one thread order.
fn printed<K: gpu_std::Kernel>(threads: u32, args: &Args) -> Vec<Printed> {
    let (launched, printed) = capture(|| launch_shared::<K>([1; 3], [threads, 1, 1], 0, args));
    launched.unwrap();
    printed.into_iter().filter(|line| line.kernel == K::spec().name).collect()
}

#[kernel]
pub unsafe fn says(value: f32, name: char) {
    let i = thread::index_1d();
    cuda_std::print!("thread {i}: ");
    cuda_std::print!("{name:?} is {value:.2}, {:?}\n", Some(i));
    cuda_std::println!();
    cuda_std::println!("100 %d {{}}");
}

#[test]
fn text_is_formatted_as_rust_does() {
    let lines = printed::<says_kernel>(2, &Args::new().value(2.5f32).value('é'));
    for thread in 0..2 {
        let of_thread = lines.iter().filter(|line| line.thread == [thread, 0, 0]);
        let text: Vec<&str> = of_thread.map(|line| line.text.as_str()).collect();
        let (first, second) = (format!("thread {thread}: "), format!("'é' is 2.50, Some({thread})\n"));
        assert_eq!(text, [first.as_str(), second.as_str(), "\n", "100 %d {}\n"]);
    }
}

#[kernel]
pub unsafe fn says_much(count: u32) {
    let words: String = (0..count).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
    cuda_std::println!("{words}");
    cuda_std::println!("a\0b");
}

#[test]
fn long_text_is_cut_and_zeros_are_blanks() {
    let text = |count: u32| {
        let lines = printed::<says_much_kernel>(1, &Args::new().value(count));
        assert_eq!((lines.len(), lines[1].text.as_str()), (2, "a b\n"));
        lines[0].text.clone()
    };
    assert_eq!(text(254).len(), 255);
    assert!(text(254).ends_with("rst\n"), "{}", text(254));
    assert_eq!(text(1000).len(), 255);
    assert!(text(1000).ends_with("rstu"), "{}", text(1000));
}
