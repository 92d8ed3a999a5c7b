//! Tests with reports that follow NVIDIA's manual, in the layouts of several versions, and with reports recorded on an
//! H100.

use super::*;

fn read(text: &str) -> Report {
    Report::read(text, Path::new("/home/me/heat"))
}

fn only(text: &str) -> Finding {
    let report = read(text);
    assert!(report.is_complete(), "{report:?}");
    let [finding] = &report.findings[..] else { panic!("{report:?}") };
    finding.clone()
}

const OUT_OF_BOUNDS: &str = "\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at kernels::store+0xb0 in /home/me/heat/kernels/src/lib.rs:74
=========     by thread (63,0,0) in block (2,0,0)
=========     Access at 0x7f3b52000100 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f3b52000000 of size 256 bytes
=========         Device Frame: past_buffer+0x30 in /home/me/heat/kernels/src/lib.rs:80
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: heat::main [0x8a04] in heat
========= 
========= ERROR SUMMARY: 1 error
";

#[test]
fn an_access_out_of_bounds_has_kernel_place_and_thread() {
    let finding = only(OUT_OF_BOUNDS);
    assert_eq!((finding.kind, finding.kernel.as_str(), finding.count), (Kind::OutOfBounds, "past_buffer", 1));
    assert_eq!(
        finding.paragraph(),
        "\
kernel `past_buffer`: access out of bounds: 4 bytes of global memory at 0x7f3b52000100, 1 byte after the nearest allocation at 0x7f3b52000000 of size 256 bytes
  write by thread [63,0,0] of block [2,0,0]
    at kernels/src/lib.rs:74 in kernels::store
    called at kernels/src/lib.rs:80 in past_buffer
  help: compare the index with the length before the access, or use a slice or a view

"
    );
}

#[test]
fn layouts_of_other_versions_give_the_same_finding() {
    let old = "\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4
=========     at 0x000000b0 in /home/me/heat/kernels/src/lib.rs:74:past_buffer(float *)
=========     by thread (63,0,0) in block (2,0,0)
=========     Address 0x7f3b52000100 is out of bounds
=========     Device Frame:/home/me/heat/kernels/src/lib.rs:74:past_buffer(float *) (past_buffer(float *) : 0xb0)
=========     Host Frame:/lib64/libcuda.so.1 (cuLaunchKernel + 0x34e) [0x2d725e]
=========
========= ERROR SUMMARY: 1 error
";
    let unindented: String = OUT_OF_BOUNDS
        .lines()
        .map(|line| format!("  ========  {}\r\n", line.trim_start_matches('=').trim()))
        .collect();
    for text in [old, &unindented] {
        let finding = only(text);
        assert_eq!((finding.kind, finding.kernel.as_str()), (Kind::OutOfBounds, "past_buffer"), "{text}");
        let access = finding.access.unwrap();
        assert_eq!((access.operation.as_str(), access.thread), ("write", Some([63, 0, 0])));
        assert_eq!(access.block, Some([2, 0, 0]));
        let place = &access.frames[access.place];
        assert_eq!((place.file.as_str(), place.line), ("kernels/src/lib.rs", 74), "{text}");
    }
}

#[test]
fn frames_of_the_device_library_are_not_shown_first() {
    let text = OUT_OF_BOUNDS.replacen("/home/me/heat/kernels", "/home/me/.cargo/git/warpsmith/gpu-std", 1);
    let finding = only(&text);
    assert!(finding.text.contains("\n    at kernels/src/lib.rs:80 in past_buffer\n"), "{}", finding.text);
    assert!(!finding.text.contains("gpu-std"), "{}", finding.text);
}

#[test]
fn repeated_reports_are_one_finding_with_a_count() {
    let mut text = String::from("========= COMPUTE-SANITIZER\n");
    for thread in 0..300 {
        text += &format!(
            "========= Invalid __shared__ read of size 8 bytes\n\
             =========     at tile+0x90 in kernels/src/lib.rs:12\n\
             =========     by thread ({thread},0,0) in block (0,0,0)\n\
             =========     Address 0x{:x} is misaligned\n=========\n",
            4 * thread + 1
        );
    }
    text += "========= ERROR SUMMARY: 12 errors were not printed. Use --print-limit option to adjust the number of \
             printed errors\n========= ERROR SUMMARY: 312 errors\n";
    let finding = only(&text);
    assert_eq!((finding.kind, finding.count), (Kind::Misaligned, 300));
    assert_eq!(finding.access.as_ref().unwrap().thread, Some([0, 0, 0]));
    assert!(finding.text.contains("8 bytes of shared memory at 0x1\n"), "{}", finding.text);
    assert!(finding.text.contains("\n  300 occurrences; the first is shown\n"), "{}", finding.text);
    let shown = read(&text).text("memcheck");
    assert!(
        shown.ends_with("warpsmith sanitize: 1 memcheck finding\nand 12 more reports beyond the limit\n"),
        "{shown}"
    );
}

#[test]
fn calls_that_fail_because_of_a_fault_are_left_out() {
    let calls = "\
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to \"invalid argument\" on CUDA API call to cuMemAlloc_v2.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: cuMemAlloc_v2 [0x2d0e0b] in libcuda.so.1
=========         Host Frame: core::ops::function::FnOnce::call_once [0x1] in heat
=========         Host Frame: heat::upload in /home/me/heat/src/main.rs:31 [0xab50] in heat
=========
========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to \"unspecified launch failure\" on CUDA API call to \
cuStreamSynchronize.
=========     Saved host backtrace up to driver entry point at error
";
    let text = OUT_OF_BOUNDS
        .replace("========= ERROR SUMMARY: 1 error", &format!("{calls}========= ERROR SUMMARY: 3 errors"));
    let report = read(&text);
    assert!(report.is_complete());
    let kinds: Vec<Kind> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [Kind::OutOfBounds, Kind::ApiError]);
    assert_eq!(
        report.findings[1].paragraph(),
        "failed CUDA call: cuMemAlloc_v2: CUDA_ERROR_INVALID_VALUE (error 1) due to \"invalid argument\"\n  call\n    at \
         src/main.rs:31 in heat::upload\n\n"
    );
    // If the report contains no fault, the failed launch is shown.
    let alone = format!("{calls}========= ERROR SUMMARY: 2 errors\n");
    assert_eq!(read(&alone).findings.len(), 2);
}

#[test]
fn races_have_both_places() {
    let analysis = "\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at smooth+0x90 in kernels/src/lib.rs:27
=========     and Read access at smooth+0x100 in kernels/src/lib.rs:34 [508 hazards]
=========     and Write access at smooth+0x180 in kernels/src/lib.rs:36 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
";
    let report = read(analysis);
    assert!(report.is_complete());
    let [first, second] = &report.findings[..] else { panic!("{report:?}") };
    assert_eq!(
        first.paragraph(),
        "\
kernel `smooth`: data race: shared memory
  write
    at kernels/src/lib.rs:27 in smooth
  other read
    at kernels/src/lib.rs:34 in smooth
  at 508 bytes
  help: the threads of a warp do not run in lockstep: call warp::sync_warp or thread::sync_threads between the accesses

"
    );
    assert_eq!((second.count, second.other.as_ref().unwrap().frames[0].line), (4, 36));

    let byte = |at: u32| {
        format!(
            "========= Warning: (Warp Level Programming) Potential RAW hazard detected at __shared__ 0x{at:x} in block (1, 0, 0) :\n\
             =========     Write Thread (35, 0, 0) at smooth+0x90 in kernels/src/lib.rs:27\n\
             =========     Read Thread (32, 0, 0) at smooth+0x120 in kernels/src/lib.rs:34\n\
             =========     Current Value : 35\n"
        )
    };
    let hazards = format!(
        "{}{}========= RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)\n",
        byte(4),
        byte(5)
    );
    let finding = only(&hazards);
    assert_eq!((finding.kind, finding.kernel.as_str(), finding.count), (Kind::Race, "smooth", 2));
    let text = "\n  read by thread [32,0,0] of block [1,0,0]\n    at kernels/src/lib.rs:34 in smooth\n  other write by \
                thread [35,0,0] of block [1,0,0]\n    at kernels/src/lib.rs:27 in smooth\n";
    assert!(finding.text.contains(text), "{}", finding.text);
}

#[test]
fn other_kinds_are_recognized() {
    for (head, rest, kind, memory) in [
        (
            "Uninitialized __global__ memory read of size 4 bytes",
            "Address 0x7f3c7ec000fc",
            Kind::Uninitialized,
            "4 bytes of global memory at 0x7f3c7ec000fc",
        ),
        (
            "Barrier error detected. Divergent thread(s) in block.",
            "",
            Kind::Barrier,
            "Divergent thread(s) in block",
        ),
        (
            "Malloc/Free error encountered : Double free",
            "Address 0x400aff920",
            Kind::DeviceHeap,
            "Double free",
        ),
        (
            "Potential invalid __shared__ read of size 4 bytes",
            "Address 0x1000400 is located in a block that might not have entered yet",
            Kind::OutOfBounds,
            "4 bytes of shared memory at 0x1000400 is located in a block that might not have entered yet",
        ),
        (
            "Stack overflow of a kind that is not known here",
            "",
            Kind::Other,
            "Stack overflow of a kind that is not known here",
        ),
    ] {
        let text = format!(
            "========= {head}\n=========     at smooth+0x70 in kernels/src/lib.rs:41\n\
             =========     by thread (31,0,0) in block (1,0,0)\n=========     {rest}\n========= ERROR SUMMARY: 1 error\n"
        );
        let finding = only(&text);
        assert_eq!((finding.kind, finding.memory.as_str()), (kind, memory));
        assert_eq!(finding.kernel, "smooth");
        assert!(
            finding
                .text
                .contains("by thread [31,0,0] of block [1,0,0]\n    at kernels/src/lib.rs:41 in smooth")
        );
    }
}

#[test]
fn leaks_have_the_place_of_the_allocation() {
    let text = "\
========= COMPUTE-SANITIZER
========= Leaked 1,024 bytes at 0x7879c0800000
=========     Saved host backtrace up to driver entry point at allocation time
=========         Host Frame: cuMemAlloc_v2 [0x56624] in libcuda.so.1
=========         Host Frame: heat::run [0xae5c] in heat
=========
========= LEAK SUMMARY: 1024 bytes leaked in 1 allocations
========= ERROR SUMMARY: 1 error
";
    let finding = only(text);
    assert_eq!((finding.kind, finding.memory.as_str()), (Kind::Leak, "1,024 bytes at 0x7879c0800000"));
    assert!(
        finding.text.contains("\n  allocation\n    at heat::run (no line information)\n"),
        "{}",
        finding.text
    );
}

#[test]
fn nothing_found_is_not_an_unreadable_report() {
    let none = read("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n");
    assert!(none.is_complete() && none.findings.is_empty());
    assert_eq!(none.text("memcheck"), "warpsmith sanitize: memcheck found nothing\n");
    let races = read(
        "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
    );
    assert!(races.is_complete() && races.findings.is_empty());
    for unreadable in [
        "",
        "========= COMPUTE-SANITIZER\n",
        "a text of another program\n",
        // More errors than reports.
        "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 2 errors\n",
        "========= Internal Sanitizer Error: out of memory\n========= ERROR SUMMARY: 0 errors\n",
    ] {
        let report = read(unreadable);
        assert!(!report.is_complete() && !report.used_no_gpu, "{unreadable}");
    }
}

#[test]
fn a_program_without_cuda_calls_is_recognized() {
    let text = "\
========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
=========     The application may have hit an error when dereferencing Unified Memory from the host. Please rerun the application under cuda-gdb.
========= Error: Target application terminated before first instrumented API call
";
    let report = read(text);
    assert!(report.used_no_gpu && !report.is_complete());
    assert_eq!(report.notes, ["Error: process didn't terminate successfully"]);
}

/// Recorded with compute-sanitizer 2025.3.1 on an H100; paths and the list of host frames are shortened.
#[test]
fn recorded_reports_are_read() {
    let host = "\
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernel [0x39fb94]
=========                        in /usr/local/nvidia/lib64/libcuda.so.1
=========         Host Frame:  [0x86171e]
=========                        in /home/me/heat/target/debug/heat
";
    let text = |report: &str, summary: &str| {
        format!("========= COMPUTE-SANITIZER\n{report}========= \n========= {summary}\n")
    };
    let past = "\
========= Invalid __global__ write of size 4 bytes
=========     at past_end+0x270 in /home/me/heat/kernels/src/lib.rs:10
=========     by thread (0,0,0) in block (2,0,0)
=========     Access to 0x7f6ebec00400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6ebec00000 of size 1,024 bytes
";
    let paragraph = only(&text(&format!("{past}{host}"), "ERROR SUMMARY: 1 error")).paragraph();
    assert!(
        paragraph.starts_with(
            "kernel `past_end`: access out of bounds: 4 bytes of global memory at 0x7f6ebec00400, 1 byte after the \
             nearest allocation at 0x7f6ebec00000 of size 1,024 bytes\n  write by thread [0,0,0] of block [2,0,0]\n    \
             at kernels/src/lib.rs:10 in past_end\n"
        ),
        "{paragraph}"
    );
    let uninitialized = "\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at sum_of+0xc0 in /home/me/heat/kernels/src/lib.rs:31
=========     by thread (96,0,0) in block (0,0,0)
=========     Address 0x7f56dec00580
";
    let paragraph = only(&text(&format!("{uninitialized}{host}"), "ERROR SUMMARY: 1 error")).paragraph();
    assert!(
        paragraph.starts_with(
            "kernel `sum_of`: read of uninitialized memory: 4 bytes of global memory at 0x7f56dec00580\n  read by thread [96,0,0]"
        ),
        "{paragraph}"
    );
    let race = "\
========= Error: Race reported between Write access at racy+0x120 in /home/me/heat/kernels/src/lib.rs:21
=========     and Read access at racy+0x130 in /home/me/heat/kernels/src/lib.rs:22 [1024 hazards]
";
    let finding = only(&text(race, "RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"));
    assert_eq!((finding.kind, finding.kernel.as_str(), finding.count), (Kind::Race, "racy", 1024));
    let lines = [finding.access, finding.other].map(|access| access.unwrap().frames[0].line);
    assert_eq!(lines, [21, 22]);
}
