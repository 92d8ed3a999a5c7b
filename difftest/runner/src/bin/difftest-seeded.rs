//! Cases with every possible outcome, for the tests of the processes that run them.

use std::process::ExitCode;
use std::time::Duration;

use difftest_runner::{Case, Device, GpuImage, main as run};

static NONE: GpuImage = GpuImage::without_code("difftest-seeded", "0.1.0", "there are no kernels");

fn main() -> ExitCode {
    let expected = || vec![1, 2];
    let cases = [
        Case::custom("first", "of the first", expected, |_| Ok(vec![1, 2])),
        Case::custom("differs", "of what differs", expected, |_| Ok(vec![1, 3])),
        Case::custom("fails", "of what fails", expected, |_| Device::open("cuda:4000").map(|_| vec![])),
        Case::custom("panics", "of what panics", expected, |_| panic!("on purpose")),
        Case::custom("hangs", "of what hangs", expected, |_| {
            std::thread::sleep(Duration::from_secs(600));
            Ok(vec![])
        }),
        Case::custom("aborts", "of what aborts", expected, |_| std::process::abort()),
        Case::custom("last", "of the last", expected, |_| Ok(vec![1, 2])),
    ];
    run(77, &NONE, &cases)
}
