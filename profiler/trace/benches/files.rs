//! Cost of trace files: bytes per slice, events per second, and the time and memory to read files of several gigabytes.
//!
//! Times are CPU times where the system provides them, because these exclude other programs on the machine.
//!
//! `WARPSMITH_BENCH_GIB` is the size of the large files in GiB, 1 by default. The files are written to the folder for
//! temporary files.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use warpsmith_trace::summary::Digest;
use warpsmith_trace::{ChromeWriter, FileFormat, Sink, Trace, convert};

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/trace/fixture.rs"]
mod fixture;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Number of launches in the files that fit in memory. Each launch is two slices and a flow.
const LAUNCHES: u64 = 1_000_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [work, rest @ ..] if work == "work" => return large_file_work(rest),
        // Cargo passes this argument only to benches, so that tests do not measure.
        arguments if !arguments.iter().any(|argument| argument == "--bench") => return Ok(()),
        _ => {}
    }
    let trace = fixture::launches(LAUNCHES);
    sizes(&trace)?;
    rates(&trace)?;
    drop(trace);
    large_files()
}

/// Measures bytes per slice.
fn sizes(trace: &Trace) -> Result<()> {
    let slices = (2 * LAUNCHES) as f64;
    let compressed = |bytes: &[u8]| -> io::Result<usize> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes)?;
        Ok(encoder.finish()?.len())
    };
    let json = trace.chrome(ChromeWriter::new(Vec::new()))?;
    println!(
        "size: {:.1} bytes a slice, compressed {:.1}",
        json.len() as f64 / slices,
        compressed(&json)? as f64 / slices
    );
    Ok(())
}

/// Measures events per second.
fn rates(trace: &Trace) -> Result<()> {
    let rate = |name: &str, work: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        let begun = Stopwatch::start();
        work()?;
        println!("{name}: {:.2} million events/s", 2.0 * LAUNCHES as f64 / begun.seconds() / 1e6);
        Ok(())
    };
    let mut json = Vec::new();
    rate("export, record by record", &mut || {
        let mut writer = ChromeWriter::new(io::sink());
        *writer.definitions() = trace.definitions.clone();
        trace.records().try_for_each(|record| writer.record(&record))?;
        writer.finish()?;
        Ok(())
    })?;
    rate("export (goal 1)", &mut || {
        json = trace.chrome(ChromeWriter::new(Vec::new()))?;
        Ok(())
    })?;
    rate("import", &mut || Ok(Trace::from_bytes(&json).map(drop)?))?;
    let read = Trace::from_bytes(&json)?.trace;
    rate("tables", &mut || {
        assert_eq!(read.summary().launches.with_call, LAUNCHES);
        Ok(())
    })
}

/// Measures the CPU time of this process and of the child processes that it has waited for, or wall-clock time if the
/// system does not provide it.
struct Stopwatch(Duration, Instant);

impl Stopwatch {
    fn start() -> Self {
        Stopwatch(Self::processor().unwrap_or_default(), Instant::now())
    }

    fn processor() -> Option<Duration> {
        let line = std::fs::read_to_string("/proc/self/stat").ok()?;
        let (_, fields) = line.rsplit_once(") ")?;
        // These are user and system time, of this process and of its children, in hundredths of a second.
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

/// Writes large files, and processes them in separate processes as `warpsmith trace` does.
fn large_files() -> Result<()> {
    let gib: f64 = std::env::var("WARPSMITH_BENCH_GIB").map_or(Ok(1.0), |gib| gib.parse())?;
    let file = temporary("large.json");
    // This is the approximate number of launches for a file of this size.
    let launches = (gib * (1u64 << 30) as f64 / 665.0) as u64;
    let mut writer = ChromeWriter::new(BufWriter::with_capacity(1 << 20, File::create(&file)?));
    fixture::launch_into(&mut writer, launches)?;
    writer.finish()?.flush()?;
    let bytes = std::fs::metadata(&file)?.len();
    println!("large file: {:.2} GiB, {launches} launches", bytes as f64 / (1u64 << 30) as f64);
    for work in ["tables", "html", "chrome"] {
        let target = temporary("converted");
        let program = std::env::current_exe()?;
        let status = Command::new(program).args(["work", work]).args([&file, &target]).status()?;
        if !status.success() {
            return Err(format!("{work}: {status}").into());
        }
        let _ = std::fs::remove_file(target);
    }
    std::fs::remove_file(file)?;
    Ok(())
}

/// Processes a large file in one way, and reports the cost.
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
        "html" => convert(from, to, FileFormat::Html)?.damage,
        _ => convert(from, to, FileFormat::Chrome)?.damage,
    };
    let seconds = begun.seconds();
    println!("  {work}: {seconds:.1} s, at most {} MiB of memory", peak_memory() >> 20);
    assert_eq!(damage, None);
    Ok(())
}

/// Returns the peak memory of this process in bytes, or 0 if the system does not provide it.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
