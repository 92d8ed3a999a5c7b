//! Kernels of `ops` compared with CUB and PyTorch, by size; the tables are in `docs/benchmarks/kernels.md`.
//!
//! | arguments | action |
//! | --- | --- |
//! | `[--peers FOLDER] [--torch FILE] [--write FILE] [FILTER...]` | measures the cases that start with one of the
//! filters, such as `scan` or `'scan f32 2^28'`, prints the tables, and writes the times to the file |
//! | `--list [FILTER...]` | prints the cases |
//! | `--report FILE [--page PAGE] [--plot PICTURE]` | regenerates the tables from a file of times, prints them or
//! inserts them between the markers of the page, and draws the picture as an SVG |
//!
//! `WARPSMITH_BENCH_DEVICE` names the device; the default is the best available one. FOLDER contains the libraries that
//! are compiled from `peers/kernels.cu`. Their functions run on our stream and our arrays, interleaved with our kernels
//! and timed by the same loop. The file after `--torch` is the output of `peers/kernels.py` for the cases that `--list`
//! prints. `run-kernels` of the bundle runs all of these steps.
//!
//! A time is the time per launch of many launches between two events, so the host time of a launch counts only where it
//! exceeds the kernel's time. Each launch works on arrays that are no longer in the L2 cache. Times are medians of
//! batches. Before a side is timed, its results are compared with host computations in f64.

mod cases;
mod check;
mod data;
mod measure;
mod ours;
mod peers;
mod plot;
mod report;
mod results;

use std::path::PathBuf;
use std::process::ExitCode;

use half::bf16;
use warpsmith::prelude::*;

use cases::{Case, Dtype, cases};
use measure::{Times, measure};
use peers::{Libraries, torch_times};
use results::{Results, Row};

type Failure = Box<dyn std::error::Error>;

/// Request on the command line.
#[derive(Default)]
struct Request {
    is_list: bool,
    peers: Option<PathBuf>,
    torch: Option<PathBuf>,
    write: Option<PathBuf>,
    report: Option<PathBuf>,
    page: Option<PathBuf>,
    plot: Option<PathBuf>,
    filters: Vec<String>,
}

impl Request {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut request = Self::default();
        while let Some(argument) = arguments.next() {
            let place = match argument.as_str() {
                // `cargo bench` adds this argument.
                "--bench" => continue,
                "--list" => {
                    request.is_list = true;
                    continue;
                }
                "--peers" => &mut request.peers,
                "--torch" => &mut request.torch,
                "--write" => &mut request.write,
                "--report" => &mut request.report,
                "--page" => &mut request.page,
                "--plot" => &mut request.plot,
                option if option.starts_with("--") => {
                    return Err(format!(
                        "there is no option {option}; see the first lines of benches/kernels/main.rs"
                    )
                    .into());
                }
                _ => {
                    request.filters.push(argument);
                    continue;
                }
            };
            let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
            *place = Some(value.into());
        }
        Ok(request)
    }
}

fn main() -> Result<ExitCode, Failure> {
    let request = Request::parse(std::env::args().skip(1))?;
    if let Some(file) = &request.report {
        show(&request, &Results::read(file)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let device = match std::env::var("WARPSMITH_BENCH_DEVICE") {
        Ok(name) => Device::open(&name).map_err(|error| format!("WARPSMITH_BENCH_DEVICE={name}: {error}"))?,
        Err(_) => Device::best()?,
    };
    let is_wanted = |case: &Case| {
        request.filters.is_empty() || request.filters.iter().any(|filter| case.name().starts_with(filter))
    };
    let cases = cases(device.is_emulated()).into_iter().filter(is_wanted);
    if request.is_list {
        cases.for_each(|case| println!("{case}"));
        return Ok(ExitCode::SUCCESS);
    }
    let libraries = request.peers.as_deref().map(Libraries::load).transpose()?;
    let torch = request.torch.as_deref().map(torch_times).transpose()?.unwrap_or_default();
    let stream = Stream::new(&device)?;
    let mut results = Results { device: device.name().to_owned(), rows: Vec::new() };
    let mut faults = 0;
    for case in cases {
        let what = case.name();
        match times(&stream, &case, libraries.as_ref()) {
            Ok(times) => {
                if let Some(fault) = &times.cub_fault {
                    eprintln!("{what}: CUB: {fault}");
                }
                results.rows.push(Row::new(case, times, &torch));
            }
            Err(error) => {
                eprintln!("{what}: {error}");
                faults += 1;
            }
        }
        device.memory().empty_cache()?;
        // The measurements so far are written, even if a later one fails.
        if let Some(file) = &request.write {
            results.write(file)?;
        }
    }
    show(&request, &results)?;
    if faults > 0 {
        eprintln!("{faults} cases are incorrect or failed");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn times(stream: &Stream, case: &Case, libraries: Option<&Libraries>) -> Result<Times, Failure> {
    match case.dtype {
        Dtype::F32 => measure::<f32>(stream, case, libraries),
        Dtype::Bf16 => measure::<bf16>(stream, case, libraries),
        Dtype::U32 => measure::<u32>(stream, case, libraries),
    }
}

/// Prints the tables or inserts them in a page, and draws the picture.
fn show(request: &Request, results: &Results) -> Result<(), Failure> {
    let text = report::markdown(results);
    match &request.page {
        Some(page) => report::into_page(page, &text)?,
        None => print!("{text}"),
    }
    if let Some(file) = &request.plot {
        std::fs::write(file, plot::svg(results)).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}
