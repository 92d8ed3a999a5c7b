//! Decompression bombs, which are small files that unpack to large ones. They must be read in bounded memory. Each test
//! runs in its own process with a memory limit.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use warpsmith_trace::summary::Digest;
use warpsmith_trace::*;

/// Runs a test of this file again in a process that is limited to this number of MiB. Returns whether this process is
/// the limited one.
fn is_limited(test: &str, mib: u64) -> bool {
    const LIMITED: &str = "WARPSMITH_TEST_LIMITED";
    if std::env::var_os(LIMITED).is_some() {
        return true;
    }
    let script = format!("ulimit -v {} && exec \"$0\" \"$@\"", mib << 10);
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(program).args(["--exact", &format!("bombs::{test}"), "--nocapture"]);
    let output = command.env(LIMITED, "1").output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// Compresses a part of a file separately. Such parts, one after another, are a valid file.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns a compressed file with events before and after texts of 1 MiB.
fn bomb(begin: &str, before: impl Fn(u32) -> String, after: &str, count: u32) -> Vec<u8> {
    let (mut file, long, after) =
        (packed(begin.as_bytes()), packed(&vec![b'x'; 1 << 20]), packed(after.as_bytes()));
    for number in 0..count {
        file.extend(packed(before(number).as_bytes()));
        file.extend(&long);
        file.extend(&after);
    }
    file
}

fn bombs() -> Vec<(&'static str, Vec<u8>)> {
    let first = r#"[{"ph":"X","cat":"kernel","name":"first","ts":4,"dur":1}"#;
    let kernel = |number| format!(r#",{{"ph":"X","cat":"kernel","ts":5,"dur":1,"name":"{number}"#);
    let thread = |number| {
        format!(r#",{{"ph":"M","name":"thread_name","pid":1,"tid":{number},"args":{{"name":"{number}"#)
    };
    let about = |number| format!(r#","{number}":"{number}"#);
    let blank = packed(&vec![b' '; 1 << 20]);
    vec![
        ("names", bomb(first, kernel, r#""}"#, 2000)),
        ("one name", bomb(&format!(r#"{first},{{"name":""#), |_| String::new(), "", 2000)),
        ("threads", bomb(first, thread, r#""}}"#, 2000)),
        (
            "facts",
            bomb(
                &format!(r#"{{"traceEvents":{first}],"warpsmith":{{"about":{{"a":"b""#),
                about,
                r#"""#,
                2000,
            ),
        ),
        (
            "devices",
            bomb(
                &format!(r#"{{"traceEvents":{first}],"deviceProperties":[null"#),
                |number| format!(r#",{{"id":{number},"name":""#),
                r#""}"#,
                2000,
            ),
        ),
        ("spaces", [packed(first.as_bytes()), blank.repeat(2000)].concat()),
    ]
}

#[test]
fn compressed_bombs_are_damage() {
    if !is_limited("compressed_bombs_are_damage", 500) {
        return;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for (what, bytes) in bombs() {
        assert!(bytes.len() < 6 << 20, "{what}: {}", bytes.len());
        let path = folder.join("bomb.json.gz");
        std::fs::write(&path, &bytes).unwrap();
        let opened = Trace::read(&path).unwrap();
        let damage = opened.damage.expect(what);
        assert!(damage.reason.contains("more than 200 times its size"), "{what}: {damage}");
        assert!(opened.trace.kernels.len() > usize::from(what == "names"), "{what}");
        let digest = Digest::read(&path).unwrap();
        assert_eq!(digest.damage(), Some(&damage), "{what}");
        let page = folder.join("bomb.html");
        digest.write_html(&page, what).unwrap();
        assert!(std::fs::metadata(&page).unwrap().len() < 16 << 20, "{what}");
    }
}

/// Uncompressed files, and files with a compression ratio of one hundred, can be large.
#[test]
fn large_files_are_no_bombs() {
    let event = r#"{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":1,"args":{"stream":7,"device":0}},"#;
    let mut random = fastrand::Rng::with_seed(7);
    let mut text = "[".to_owned();
    for _ in 0..1000 {
        text.push_str(&event.replace('5', &random.u32(1_000_000..).to_string()));
    }
    let file = packed(text.as_bytes());
    assert!(text.len() > 10 * file.len());
    let opened = Trace::from_bytes(&file).unwrap();
    assert_eq!((opened.damage, opened.trace.kernels.len()), (None, 1000));
}

#[test]
fn texts_have_a_budget() {
    if !is_limited("texts_have_a_budget", 900) {
        return;
    }
    let mut names = Names::default();
    let mut text = "y".repeat(16 << 10);
    for number in 0..36_000 {
        text.replace_range(..8, &format!("{number:08}"));
        let name = names.intern(&text);
        assert!(names.text(name) == text || names.text(name) == "others" && number > 30_000);
    }
    assert!(names.len() < 33_000, "{}", names.len());
    // An interned text keeps its name, and a longer text is identified by its start.
    text.replace_range(..8, "00000001");
    assert_eq!(names.find(&text), Some(names.intern(&text)));
    let mut names = Names::default();
    let long = names.intern(&"é".repeat(1 << 20));
    assert_eq!(names.text(long), format!("{}…", "é".repeat(8 << 10)));
    let kept = names.text(long).to_owned();
    assert_eq!(names.intern(&kept), long);
}

#[test]
fn a_trace_says_that_its_texts_are_shortened() {
    let long = "z".repeat(40 << 10);
    let event = format!(r#"{{"ph":"X","cat":"kernel","name":"{long}","pid":0,"tid":7,"ts":5,"dur":1}}"#);
    let opened = Trace::from_bytes(format!("[{event}]").as_bytes()).unwrap();
    let trace = opened.trace;
    assert_eq!(trace.text(trace.kernels[0].name).len(), (16 << 10) + "…".len());
    let left_out = trace.definitions.left_out();
    assert_eq!(left_out[0].text, "texts: 1 shortened to 16 KiB, 0 replaced by `others`");
    assert!(!left_out[0].is_lost);
    // When the trace is written again, it has the same length, and nothing more is lost.
    let again = Trace::from_bytes(&trace.chrome(ChromeWriter::new(Vec::new())).unwrap()).unwrap().trace;
    assert_eq!(again.text(again.kernels[0].name), trace.text(trace.kernels[0].name));
}

/// A damaged file must also be read in bounded memory.
#[test]
fn damaged_files_take_no_more_memory() {
    if !is_limited("damaged_files_take_no_more_memory", 500) {
        return;
    }
    let mut random = fastrand::Rng::with_seed(5);
    let step = crate::fixture::step();
    let json = crate::fixture::chrome(&step);
    let [forms, kineto] = [crate::forms::SEED, crate::files::KINETO].map(|text| text.as_bytes().to_vec());
    let seeds = [packed(&json), json, forms, kineto];
    for seed in &seeds {
        for _ in 0..150 {
            let mut bytes = seed.clone();
            for _ in 0..random.usize(1..8) {
                let at = random.usize(..bytes.len());
                let end = (at + random.usize(1..200)).min(bytes.len());
                match random.u8(..5) {
                    0 => bytes[at] = random.u8(..),
                    1 => bytes[at] = b"[]{}\",:0\\-"[random.usize(..10)],
                    2 => drop(bytes.drain(at..end)),
                    3 => {
                        let piece = bytes[at..end].repeat(random.usize(1..500));
                        bytes.splice(at..at, piece);
                    }
                    _ => bytes.truncate(at.max(1)),
                }
                if bytes.is_empty() {
                    break;
                }
            }
            if let Ok(opened) = Trace::from_bytes(&bytes) {
                opened.trace.summary().text(10);
            }
        }
    }
}
