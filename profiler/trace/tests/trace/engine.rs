//! Perfetto's own engine reads the files: it finds no error, and what is in them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::fixture::{chrome, disorder, launches, perfetto, step};

/// Faults that the engine counts while it reads.
const FAULTS: &str = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0";

/// Runs queries on a trace.
fn query(name: &str, trace: &[u8], queries: &[&str]) -> Vec<Value> {
    let folder = std::env::var_os("WARPSMITH_PERFETTO")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("perfetto"));
    assert!(
        folder.join("trace_processor.wasm").is_file(),
        "Perfetto's engine is not in {}: cargo xtask test downloads it",
        folder.display()
    );
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, trace).unwrap();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/trace/engine.js");
    let mut node = Command::new("node")
        .arg(script)
        .args([&folder, &file])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Node runs Perfetto's engine: install it (Debian: apt-get install nodejs)");
    node.stdin.take().unwrap().write_all(json!(queries).to_string().as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    std::fs::remove_file(file).unwrap();
    let answers: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for (query, answer) in queries.iter().zip(&answers) {
        assert!(answer.is_array(), "{query}: {answer}");
    }
    answers
}

/// Launches whose call begins after their kernel; a flow leads from the earlier to the later.
const KERNELS_BEFORE_LAUNCH: &str = "SELECT count(*) FROM flow JOIN slice AS first ON first.id = flow.slice_out \
     JOIN slice AS second ON second.id = flow.slice_in WHERE first.category = 'kernel' AND second.category = 'driver'";

#[test]
#[ignore = "needs Node and Perfetto's engine: cargo xtask test installs them"]
fn engine_reads_every_kind_of_record() {
    let answers = query(
        "step.pftrace",
        &perfetto(&step()),
        &[
            FAULTS,
            "SELECT category, count(*) FROM slice GROUP BY category ORDER BY category",
            "SELECT name FROM track WHERE name LIKE 'stream%' OR name LIKE 'device%' OR name = 'power' ORDER BY name",
            "SELECT thread.name FROM thread_track JOIN thread USING (utid) WHERE thread.name = 'main'",
            "SELECT count(*) FROM counter",
            "SELECT ts, dur, name FROM slice WHERE category = 'kernel' ORDER BY ts",
            KERNELS_BEFORE_LAUNCH,
            "SELECT count(*) FROM flow",
            "SELECT args.display_value FROM args JOIN slice USING (arg_set_id) WHERE slice.name = 'saxpy<f32>' AND \
             args.key = 'debug.grid'",
        ],
    );
    let kinds = json!([
        ["copy", 2],
        ["driver", 2],
        ["graph", 1],
        ["kernel", 4],
        ["mark", 1],
        ["memory", 2],
        ["memset", 1],
        ["range", 2],
        ["runtime", 1],
        ["sync", 1],
        ["wait", 1]
    ]);
    let base = 1_700_000_000_000_000_000_u64;
    assert_eq!(answers[0], json!([]));
    assert_eq!(answers[1], kinds);
    let tracks = ["device 0 NVIDIA H200", "power", "stream 13 copies", "stream 7", "stream 7 overlap"];
    assert_eq!(answers[2], tracks.iter().map(|track| json!([track])).collect::<Value>());
    assert_eq!(answers[3], json!([["main"]]));
    assert_eq!(answers[4], json!([[6]]));
    assert_eq!(answers[5].as_array().unwrap().len(), 4);
    // JavaScript's numbers hold 53 bits.
    assert!(answers[5][0][0].as_f64().unwrap() - (base as f64 + 15_000.0) < 1000.0);
    assert_eq!(answers[5][0][1], json!(5000));
    assert_eq!(answers[5][1][2], json!("gemm \"wide\"\\ 8x4x2"));
    assert_eq!(answers[6], json!([[0]]));
    // Copy, two kernels, and the two nodes of the graph.
    assert_eq!(answers[7], json!([[5]]));
    assert_eq!(answers[8], json!([["1024x2x1"]]));
}

#[test]
#[ignore = "needs Node and Perfetto's engine: cargo xtask test installs them"]
fn engine_opens_many_launches_in_time() {
    const COUNT: u64 = 50_000;
    let trace = perfetto(&launches(COUNT));
    let begun = Instant::now();
    let answers = query(
        "launches.pftrace",
        &trace,
        &[FAULTS, "SELECT count(*) FROM slice", "SELECT count(*) FROM flow", KERNELS_BEFORE_LAUNCH],
    );
    println!("{COUNT} launches in {:.1} s", begun.elapsed().as_secs_f64());
    assert_eq!(answers, [json!([]), json!([[2 * COUNT]]), json!([[COUNT]]), json!([[0]])]);
}

#[test]
#[ignore = "needs Node and Perfetto's engine: cargo xtask test installs them"]
fn engine_nests_slices_of_any_times() {
    let (trace, records) = disorder(7, 100_000);
    let slices = "SELECT count(*) FROM slice WHERE category IN ('kernel', 'range') AND dur >= 0";
    let total = "SELECT cast(sum(dur) AS REAL) FROM slice WHERE category IN ('kernel', 'range')";
    let answers = query("disorder.pftrace", &trace, &[FAULTS, slices, total]);
    let duration: u64 = records.iter().map(|record| record.end() - record.start()).sum();
    assert_eq!(answers, [json!([]), json!([[records.len()]]), json!([[duration]])]);
}

#[test]
#[ignore = "needs Node and Perfetto's engine: cargo xtask test installs them"]
fn engine_reads_json_too() {
    let queries = [FAULTS, "SELECT count(*) FROM slice WHERE dur > 0", "SELECT count(*) FROM flow"];
    let answers = query("step.json", &chrome(&step()), &queries);
    assert_eq!(answers, [json!([]), json!([[14]]), json!([[5]])]);
}

/// The trace that the profiler makes of a program on the emulated device.
#[test]
#[ignore = "needs Node and Perfetto's engine: cargo xtask test installs them"]
fn engine_reads_the_golden_trace_of_the_profiler() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/profiler/golden.pftrace");
    let work = "SELECT count(*) FROM slice WHERE category IN ('kernel', 'copy', 'memset')";
    let without_flow = "SELECT count(*) FROM slice WHERE category IN ('kernel', 'copy', 'memset') \
                        AND id NOT IN (SELECT slice_in FROM flow)";
    let launches = "SELECT count(DISTINCT slice.id) FROM flow JOIN slice ON slice.id = flow.slice_out \
                    WHERE slice.category = 'driver'";
    let answers = query(
        "golden.pftrace",
        &std::fs::read(file).unwrap(),
        &[FAULTS, work, without_flow, launches, KERNELS_BEFORE_LAUNCH],
    );
    // Two copies, three memsets and three kernels, of six calls: two launch a graph.
    assert_eq!(answers, [json!([]), json!([[8]]), json!([[0]]), json!([[6]]), json!([[0]])]);
}
