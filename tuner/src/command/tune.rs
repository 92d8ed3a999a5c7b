//! `tune`: searches for the fastest configurations and stores them where launches look them up.

use std::time::Duration;

use warpsmith_runtime::Device;
use warpsmith_runtime::store::LaunchStore;

use super::Program;
use super::args::TuneArgs;
use super::bench::{describe_bad, show};
use super::failure::Failure;
use super::opening::{self, Opening};
use super::output::{print, progress_bar};
use crate::document::{Condition, Document, Record};
use crate::size::format_size;
use crate::tune::{Event, Totals, Tuning, tune};

/// Tunes the kernels, prints the results, and writes the results file.
///
/// # Errors
/// Fails on a usage error, a device failure, a kernel without a correct configuration, or an interruption.
pub fn run(program: &Program<'_>, args: &TuneArgs) -> Result<(), Failure> {
    let TuneArgs { kernels, what, .. } = args;
    let trials = args.trials.map(|trials| trials as usize);
    let tuning = Tuning { trials, probes: !what.no_probes };
    let plan = opening::plan(program, kernels, what)?;
    let Opening { stop, path, mut document, begun } = Opening::of(program, "tune", &plan, &args.output)?;
    let device = plan.device();
    install_store(args, device);
    let bar = progress_bar(plan.cases.len() as u64);
    let outcome = tune(&plan, &tuning, &stop, &mut |event| match event {
        Event::Measured { case, record, trials, .. } => {
            bar.set_message(format!("{} trial {trials}: {}", case.describe(), record.configuration));
        }
        Event::Done { tuned, .. } => {
            document.results.extend_from_slice(&tuned.records);
            bar.inc(1);
        }
        Event::Probed(probes) => document.probes = probes.to_vec(),
        Event::Note(note) => bar.suspend(|| program.complain(note)),
    });
    bar.finish_and_clear();
    document.device.after = Condition::of(device);
    document.run.seconds = begun.elapsed().as_secs_f64();
    document.run.interrupted = outcome.as_ref().map_or(true, |totals| totals.interrupted);

    show(program, &document, &args.output, path)?;
    let totals = outcome?;
    if !args.output.json {
        print(&summary(&LaunchStore::of(device), device.is_emulated(), &totals, begun.elapsed()))?;
    }
    verdict(program, &document)
}

/// Installs, on the device, the user's launch store or a store that exists only in memory. Launches on an emulated
/// device do not read the user's store, so winners found on an emulated device are not saved.
fn install_store(args: &TuneArgs, device: &Device) {
    if args.no_store || device.is_emulated() {
        return LaunchStore::in_memory().install(device);
    }
    warpsmith_runtime::store::shared().install(device);
}

/// Formats the number of trials, the number of winners that have been stored, and the path of the store.
fn summary(store: &LaunchStore, is_emulated: bool, totals: &Totals, took: Duration) -> String {
    let mut text = format!("{} trials in {:.1} s", totals.made, took.as_secs_f64());
    text.push_str(&match (store.path().filter(|_| store.problem().is_none()), totals.kept) {
        (None, _) if is_emulated => "; winners on an emulated device are not saved\n".to_owned(),
        (None, _) => "; nothing is kept\n".to_owned(),
        (Some(_), 0) => "; no winner was saved\n".to_owned(),
        (Some(path), 1) => format!("; 1 winner was saved in {}\n", path.display()),
        (Some(path), kept) => format!("; {kept} winners were saved in {}\n", path.display()),
    });
    text
}

/// Reports unusable configurations. They cause a failure only if no configuration of a case was usable.
fn verdict(program: &Program<'_>, document: &Document) -> Result<(), Failure> {
    describe_bad(program, document);
    if document.run.interrupted {
        return Err(Failure::Interrupted);
    }
    let cases = document.cases();
    match cases.iter().find(|case| !case.iter().any(|record| record.is_usable())) {
        Some(case) => {
            let Record { kernel, dtype, n, .. } = case[0];
            Err(Failure::Failed(format!(
                "no configuration of {kernel} {dtype} {} is correct",
                format_size(*n)
            )))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_kept_winners() {
        let on = |store: &LaunchStore, is_emulated, kept| {
            let totals = Totals { made: 3, kept, ..Totals::default() };
            summary(store, is_emulated, &totals, Duration::from_secs(2))
        };
        let of = |store: &LaunchStore, kept| on(store, false, kept);
        let directory = std::env::temp_dir().join(format!("warpsmith-summary-{}", std::process::id()));
        let store = warpsmith_runtime::store::open(&directory);
        let path = directory.join("launches.jsonl");
        assert_eq!(of(&store, 0), "3 trials in 2.0 s; no winner was saved\n");
        assert_eq!(of(&store, 1), format!("3 trials in 2.0 s; 1 winner was saved in {}\n", path.display()));
        assert!(of(&store, 2).contains("; 2 winners were saved in "));
        let emulated = on(&LaunchStore::in_memory(), true, 1);
        assert!(emulated.ends_with("; winners on an emulated device are not saved\n"), "{emulated}");
        assert!(of(&LaunchStore::in_memory(), 2).ends_with("; nothing is kept\n"));
    }
}
