//! A kernel on the emulated device under gdb. The test needs a build without optimization and with all debug
//! information: `cargo xtask test` makes it.

use std::process::{Command, Stdio};

use crate::common::{Args, launch};
use gpu_std::prelude::*;

#[kernel]
fn scale(factor: u32, mut out: DisjointMut<u32>) {
    if let Some(out) = out.get_mut(thread::unique_index()) {
        let scaled = factor * thread::index_1d();
        *out = scaled; // breakpoint
    }
}

#[test]
fn scaled_indices() {
    let mut out = [0; 12];
    launch::<scale>([3, 1, 1], [4, 1, 1], &Args::new().value(5u32).view(&mut out));
    assert_eq!(out, std::array::from_fn(|i| 5 * i as u32));
}

#[test]
#[ignore = "needs gdb, and a build for debuggers: `cargo xtask test`"]
fn a_breakpoint_shows_variables_block_and_thread() {
    let line =
        include_str!("in_gdb.rs").lines().position(|line| line.ends_with("// breakpoint")).unwrap() + 1;
    let stop = format!("break in_gdb.rs:{line} if block_idx[0] == 2 && thread_idx[0] == 1");
    let commands = [
        "set debuginfod enabled off",
        &stop,
        "run",
        "print scaled",
        "print block_idx",
        "print thread_idx",
        "backtrace 1",
    ];
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch"]).args(commands.iter().flat_map(|command| ["-ex", command]));
    gdb.arg("--args").arg(std::env::current_exe().unwrap());
    gdb.args(["--exact", "in_gdb::scaled_indices", "--test-threads", "1"]);
    let output = gdb
        .stdin(Stdio::null())
        .output()
        .expect("gdb starts: install it, on Debian with `apt-get install gdb`");
    let said = String::from_utf8_lossy(&output.stdout);
    // Thread 1 of block 2 has index 9.
    for shown in ["$1 = 45\n", "$2 = [2, 0, 0]\n", "$3 = [1, 0, 0]\n", "scale (factor=5"] {
        assert!(
            said.contains(shown),
            "{shown:?} is missing:\n{said}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
