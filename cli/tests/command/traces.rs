//! `warpsmith trace`, on a trace in the format of PyTorch's profiler.

use crate::shared::{Run, command, folder, run};

const KINETO: &str = include_str!("../../../profiler/trace/tests/trace/kineto.json");

/// Runs `warpsmith trace` in a folder with `trace.json`.
fn trace(content: &[u8], args: &[&str]) -> Run {
    let folder = folder();
    std::fs::write(folder.join("trace.json"), content).unwrap();
    let output = command(&folder, &["trace"]).args(args).output().unwrap();
    Run { folder, output }
}

#[test]
fn trace_shows_its_tables() {
    let run = trace(KINETO.as_bytes(), &["trace.json"]);
    assert_eq!((run.code(), run.stderr()), (Some(0), String::new()));
    let text = run.stdout();
    for words in [
        "NVIDIA H200",
        "triton_poi_fused_0",
        "20.00 us",
        "copy host to device",
        "16.4",
        "aten::mm",
        "cudaLaunchKernel",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn trace_as_json_has_the_same_numbers() {
    let document = trace(KINETO.as_bytes(), &["trace.json", "--json"]).json();
    assert_eq!((&document["schema"], &document["damage"]), (&1.into(), &serde_json::Value::Null));
    assert_eq!(document["kernels"][0]["total"], 20_000);
    assert_eq!(document["devices"][0]["compute"], 32_875);
}

#[test]
fn trace_becomes_a_page() {
    let run = trace(KINETO.as_bytes(), &["trace.json", "--html", "trace.html"]);
    assert_eq!((run.code(), run.stdout(), run.stderr()), (Some(0), String::new(), String::new()));
    let page = std::fs::read_to_string(run.folder.join("trace.html")).unwrap();
    for words in ["<h1>trace.json</h1>", "triton_poi_fused_0", "default-src 'none'"] {
        assert!(page.contains(words), "{words}");
    }
    let same = trace(KINETO.as_bytes(), &["trace.json", "--html", "./trace.json"]);
    assert!(same.stderr().contains("into itself"), "{}", same.stderr());
    assert_eq!(std::fs::read_to_string(same.folder.join("trace.json")).unwrap(), KINETO);
}

#[test]
fn a_difference_is_shown() {
    let faster = KINETO.replace("\"dur\": 20.000", "\"dur\": 10.000");
    let folder = folder();
    std::fs::write(folder.join("old.json"), KINETO).unwrap();
    std::fs::write(folder.join("new.json"), faster).unwrap();
    let output = command(&folder, &["trace", "new.json", "--diff", "old.json"]).output().unwrap();
    let run = Run { folder, output };
    assert!(run.stdout().contains("-50.0 %"), "{}", run.stdout());
}

#[test]
fn a_damaged_trace_shows_what_it_holds() {
    let run = trace(&KINETO.as_bytes()[..3000], &["trace.json"]);
    assert_eq!(run.code(), Some(1));
    assert!(run.stdout().contains("cudaLaunchKernel"), "{}", run.stdout());
    assert!(
        run.stderr().contains("trace.json is damaged at byte 3000: it is truncated there"),
        "{}",
        run.stderr()
    );
    assert_eq!(run.stderr().lines().count(), 1);
}

#[test]
fn trace_refuses_other_files_in_one_line() {
    for (content, words) in
        [(&b"hello"[..], "is not a trace"), (b"", "is empty"), (b"{\"a\": 1}", "no `traceEvents`")]
    {
        for args in [&["trace.json"][..], &["trace.json", "--html", "out"]] {
            let run = trace(content, args);
            assert_eq!((run.code(), run.stdout()), (Some(2), String::new()));
            assert!(run.stderr().contains(words) && run.stderr().lines().count() == 1, "{}", run.stderr());
            assert!(!run.folder.join("out").exists());
        }
    }
    let missing = run(&["trace", "no-such-file"]);
    assert_eq!(missing.code(), Some(2));
    assert!(missing.stderr().contains("no-such-file does not exist"), "{}", missing.stderr());
}

fn kernel(name: &str, ts: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{ts},"dur":10,"args":{{"device":0,"stream":7}}}}"#
    )
}

/// The exit code tells whether the tables lack something; standard error and the document tell what.
#[test]
fn what_is_left_out_is_said() {
    let (a, b) = (kernel("a", "1723456789012345.001"), kernel("b", "1723456789012365.004"));
    let lost = format!("[{a},{b},{}]", kernel("c", "0"));
    let no_end = format!("{{\"traceEvents\":[{a},{b},");
    for (text, code, words) in [
        (lost.as_str(), 1, "events without a time: 1 (kernel 1)"),
        (no_end.as_str(), 0, "end of the file: the end is missing"),
    ] {
        for args in [&["trace.json"][..], &["trace.json", "--json"], &["trace.json", "--html", "out.html"]] {
            let run = trace(text.as_bytes(), args);
            assert_eq!(run.code(), Some(code), "{args:?} {}", run.stderr());
            assert!(
                run.stderr().contains(words) && run.stderr().lines().count() == 1,
                "{args:?} {}",
                run.stderr()
            );
            if args.contains(&"--json") {
                let document: serde_json::Value = serde_json::from_str(&run.stdout()).unwrap();
                assert!(document["left_out"][0].as_str().unwrap().contains(words), "{document}");
                assert_eq!(document["devices"][0]["span"], 30_003);
            }
        }
    }
    let run = trace(format!("[{a},{b}]").as_bytes(), &["trace.json"]);
    assert_eq!((run.code(), run.stderr()), (Some(0), String::new()));
}
