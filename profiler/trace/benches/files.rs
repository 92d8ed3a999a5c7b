//! What trace files cost: bytes of a slice, events a second, Perfetto's engine on a million launches, and the time and memory
//! in which files of gigabytes are read.
//!
//! Times are of the processor where the system says them, so that other programs on the machine do not count.
//!
//! `WARPSMITH_BENCH_GIB` is the size of the large files, 1 by default; they are written to the folder for temporary files.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use warpsmith_trace::summary::Digest;
use warpsmith_trace::{ChromeWriter, FileFormat, PerfettoWriter, Sink, Trace, convert};

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/trace/fixture.rs"]
mod fixture;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Launches of the files that fit into memory; each is two slices and a flow.
const LAUNCHES: u64 = 1_000_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [work, rest @ ..] if work == "work" => return large_file_work(rest),
        // Cargo runs benches with this argument alone; tests do not measure.
        arguments if !arguments.iter().any(|argument| argument == "--bench") => return Ok(()),
        _ => {}
    }
    let trace = fixture::launches(LAUNCHES);
    sizes(&trace)?;
    rates(&trace)?;
    drop(trace);
    engine()?;
    large_files()
}

/// Bytes of a slice.
fn sizes(trace: &Trace) -> Result<()> {
    let slices = (2 * LAUNCHES) as f64;
    let compressed = |bytes: &[u8]| -> io::Result<usize> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes)?;
        Ok(encoder.finish()?.len())
    };
    let plain = trace.perfetto(PerfettoWriter::new(Vec::new()).plain())?;
    let full = trace.perfetto(PerfettoWriter::new(Vec::new()))?;
    let json = trace.chrome(ChromeWriter::new(Vec::new()))?;
    for (name, goal, bytes) in
        [("plain", 60.0, &plain), ("with arguments", 100.0, &full), ("JSON", f64::INFINITY, &json)]
    {
        let of_slice = bytes.len() as f64 / slices;
        println!(
            "size, {name}: {of_slice:.1} bytes a slice (goal {goal}), compressed {:.1}",
            compressed(bytes)? as f64 / slices
        );
        assert!(of_slice <= goal);
    }
    Ok(())
}

/// Events a second.
fn rates(trace: &Trace) -> Result<()> {
    let rate = |name: &str, work: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        let begun = Stopwatch::start();
        work()?;
        println!("{name}: {:.2} million events/s", 2.0 * LAUNCHES as f64 / begun.seconds() / 1e6);
        Ok(())
    };
    let (mut perfetto, mut json) = (Vec::new(), Vec::new());
    rate("export, Perfetto (goal 1)", &mut || {
        perfetto = trace.perfetto(PerfettoWriter::new(Vec::new()))?;
        Ok(())
    })?;
    rate("export, Perfetto, record by record", &mut || {
        let mut writer = PerfettoWriter::new(io::sink());
        *writer.definitions() = trace.definitions.clone();
        trace.records().try_for_each(|record| writer.record(&record))?;
        writer.finish()?;
        Ok(())
    })?;
    rate("export, JSON (goal 1)", &mut || {
        json = trace.chrome(ChromeWriter::new(Vec::new()))?;
        Ok(())
    })?;
    rate("import, Perfetto", &mut || Ok(Trace::from_bytes(&perfetto).map(drop)?))?;
    rate("import, JSON", &mut || Ok(Trace::from_bytes(&json).map(drop)?))?;
    let read = Trace::from_bytes(&perfetto)?.trace;
    rate("tables", &mut || {
        assert_eq!(read.summary().launches.with_call, LAUNCHES);
        Ok(())
    })
}

/// Perfetto's engine opens a million launches.
fn engine() -> Result<()> {
    let folder = std::env::var_os("WARPSMITH_PERFETTO")
        .map_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("perfetto"), PathBuf::from);
    if !folder.join("trace_processor.wasm").is_file() {
        println!("open: Perfetto's engine is not in {}; cargo xtask test downloads it", folder.display());
        return Ok(());
    }
    let file = temporary("engine.pftrace");
    let mut writer = PerfettoWriter::new(BufWriter::new(File::create(&file)?));
    fixture::launch_into(&mut writer, LAUNCHES)?;
    writer.finish()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace/engine.js");
    let begun = Stopwatch::start();
    let mut node = Command::new("node")
        .arg(script)
        .args([&folder, &file])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let queries = r#"["SELECT count(*) FROM slice", "SELECT count(*) FROM flow",
        "SELECT count(*) FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"]"#;
    node.stdin.take().ok_or("no pipe")?.write_all(queries.as_bytes())?;
    let answer = node.wait_with_output()?;
    let seconds = begun.seconds();
    std::fs::remove_file(file)?;
    let answer = String::from_utf8(answer.stdout)?;
    println!(
        "open: {LAUNCHES} launches in Perfetto's engine in {seconds:.1} s (goal 10); slices, flows, faults: {}",
        answer.trim()
    );
    let expected = format!("[[[{}]],[[{LAUNCHES}]],[[0]]]", 2 * LAUNCHES);
    assert_eq!(answer.split_whitespace().collect::<String>(), expected);
    Ok(())
}

/// Measures processor time of this process and of those that it has waited for; where the system does not say it, time.
struct Stopwatch(Duration, Instant);

impl Stopwatch {
    fn start() -> Self {
        Stopwatch(Self::processor().unwrap_or_default(), Instant::now())
    }

    fn processor() -> Option<Duration> {
        let line = std::fs::read_to_string("/proc/self/stat").ok()?;
        let (_, fields) = line.rsplit_once(") ")?;
        // User and system time, and those of children, in hundredths of seconds.
        let times = fields.split(' ').skip(11).take(4).map(|field| field.parse::<u64>().ok());
        Some(Duration::from_millis(10 * times.sum::<Option<u64>>()?))
    }

    fn seconds(&self) -> f64 {
        let processor = Self::processor().and_then(|now| now.checked_sub(self.0));
        processor.unwrap_or_else(|| self.1.elapsed()).as_secs_f64().max(0.001)
    }
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("warpsmith-bench-{}-{name}", std::process::id()))
}

/// Writes large files, and does what `warpsmith trace` does with them in processes of their own.
fn large_files() -> Result<()> {
    let gib: f64 = std::env::var("WARPSMITH_BENCH_GIB").map_or(Ok(1.0), |gib| gib.parse())?;
    for name in ["large.pftrace", "large.json"] {
        let file = temporary(name);
        // About as many launches as make that many bytes.
        let of_launch = if name.ends_with(".json") { 665.0 } else { 122.5 };
        let launches = (gib * (1u64 << 30) as f64 / of_launch) as u64;
        let out = BufWriter::with_capacity(1 << 20, File::create(&file)?);
        if name.ends_with(".json") {
            let mut writer = ChromeWriter::new(out);
            fixture::launch_into(&mut writer, launches)?;
            writer.finish()?.flush()?;
        } else {
            let mut writer = PerfettoWriter::new(out);
            fixture::launch_into(&mut writer, launches)?;
            writer.finish()?.flush()?;
        }
        let bytes = std::fs::metadata(&file)?.len();
        println!("{name}: {:.2} GiB, {launches} launches", bytes as f64 / (1u64 << 30) as f64);
        for work in ["tables", "html", "perfetto", "chrome"] {
            let target = temporary("converted");
            let program = std::env::current_exe()?;
            let status = Command::new(program).args(["work", work]).args([&file, &target]).status()?;
            if !status.success() {
                return Err(format!("{work} of {name}: {status}").into());
            }
            let _ = std::fs::remove_file(target);
        }
        std::fs::remove_file(file)?;
    }
    Ok(())
}

/// One piece of work on a large file, and what it took.
fn large_file_work(arguments: &[String]) -> Result<()> {
    let [work, from, to] = arguments else { return Err("work, from and to are missing".into()) };
    let begun = Stopwatch::start();
    let damage = match work.as_str() {
        "tables" => {
            let digest = Digest::read(from)?;
            let summary = digest.summary();
            println!("  {} records, {} of them related", summary.records, summary.related);
            assert_eq!(summary.launches.before_call, 0);
            digest.damage().cloned()
        }
        "html" => convert(from, to, FileFormat::Html, None)?.damage,
        "perfetto" => convert(from, to, FileFormat::Perfetto, None)?.damage,
        _ => convert(from, to, FileFormat::Chrome, None)?.damage,
    };
    let seconds = begun.seconds();
    println!("  {work}: {seconds:.1} s, at most {} MiB of memory", peak_memory() >> 20);
    assert_eq!(damage, None);
    Ok(())
}

/// The most bytes of memory that this process has had; 0 where the system does not say.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
