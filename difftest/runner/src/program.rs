//! [`main`]: runs the cases on one device.

use std::io::Write;
use std::process::ExitCode;

use warpsmith_runtime::GpuImage;

use crate::case::{Case, Session};
use crate::compare::compare;

const USAGE: &str = "\
usage: difftest [--list | DEVICE [NAME…]]

  DEVICE       cpu, cuda:0, …; cpu by default
  NAME         run only kernels whose name begins so

Writes a line before each kernel, and a line and the source of each kernel that differs or faults. Exit code 1 when
there is one. The first fault ends the run, because the device may be lost. If a kernel hangs, the last line names it.
";

/// Runs the cases selected by the command line. The seed is for reports.
pub fn main(seed: u64, image: &'static GpuImage, cases: &[Case]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["--help" | "-h"] => print!("{USAGE}"),
        ["--list"] => cases.iter().for_each(|case| println!("{}", case.name)),
        [] => return run(seed, image, cases, "cpu", &[]),
        [device, names @ ..] => return run(seed, image, cases, device, names),
    }
    ExitCode::SUCCESS
}

fn run(seed: u64, image: &'static GpuImage, cases: &[Case], device: &str, names: &[&str]) -> ExitCode {
    let is_chosen = |case: &&Case| names.is_empty() || names.iter().any(|name| case.name.starts_with(name));
    let chosen: Vec<&Case> = cases.iter().filter(is_chosen).collect();
    if chosen.is_empty() {
        eprintln!("difftest: no kernel is named so");
        return ExitCode::from(2);
    }
    let session = match Session::open(device, image) {
        Ok(session) => session,
        Err(error) => {
            eprintln!("difftest: {device}: {error}");
            return ExitCode::from(2);
        }
    };
    let (mut same, mut differ, mut failed) = (0, 0, 0);
    for case in &chosen {
        println!("start {}", case.name);
        // The line must be visible if the kernel hangs or ends the process.
        _ = std::io::stdout().flush();
        match case.found(&session) {
            Ok(found) => match compare(case, &case.expected(), &found) {
                None => same += 1,
                Some(difference) => {
                    let step = difference.step.map_or_else(String::new, |step| format!(":{step}"));
                    println!("DIFFERS {}{step} {}\n{}", case.name, difference.text, case.source);
                    differ += 1;
                }
            },
            Err(error) => {
                let error = error.to_string().replace('\n', "; ");
                println!("FAILED {} {error}\n{}", case.name, case.source);
                failed += 1;
                break;
            }
        }
    }
    println!(
        "seed {seed}, {device}: {} kernels, {same} the same, {differ} differ, {failed} failed, {} not run",
        chosen.len(),
        chosen.len() - same - differ - failed
    );
    if same == chosen.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
