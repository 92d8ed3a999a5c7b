//! `warpsmith trace`: what took the time in a trace, as tables or as a page, and conversion to another format.

use std::path::Path;

use serde::Serialize;
use warpsmith::bench::command::failure::Failure;
use warpsmith::bench::command::output::{print, print_json};
use warpsmith_trace::counters::CounterReport;
use warpsmith_trace::summary::{Diff, Digest, Summary};
use warpsmith_trace::{Damage, FileFormat, TraceError, convert};

use crate::args::TraceArgs;

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    trace: String,
    /// Where the file is damaged, if it is.
    damage: Option<String>,
    #[serde(flatten)]
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Summary(&'a Summary),
    Diff { old: String, diff: &'a Diff },
}

/// Prints the tables of a trace or what changed, or writes it in another form.
pub fn run(args: &TraceArgs) -> Result<(), Failure> {
    let outputs = [
        (&args.html, FileFormat::Html),
        (&args.perfetto, FileFormat::Perfetto),
        (&args.chrome, FileFormat::Chrome),
    ];
    if outputs.iter().any(|(out, _)| out.is_some()) {
        let counters = args.counters.as_ref().map(CounterReport::read).transpose().map_err(unusable)?;
        let mut damage = None;
        for (out, format) in outputs.iter().filter_map(|(out, format)| Some((out.as_ref()?, *format))) {
            damage = convert(&args.file, out, format, counters.as_ref()).map_err(unusable)?;
        }
        return complain(&args.file, damage, "written");
    }
    if args.counters.is_some() {
        let text = "--counters adds to a trace that is written: give --html, --perfetto or --chrome too";
        return Err(Failure::Use(text.to_owned()));
    }
    let (summary, damage) = read(&args.file)?;
    let (old, old_damage) = match &args.diff {
        Some(old) => {
            let (summary, damage) = read(old)?;
            (Some((old, summary)), damage)
        }
        None => (None, None),
    };
    let diff = old.as_ref().map(|(path, old)| (path, summary.since(old)));
    if args.json {
        let content = match &diff {
            Some((path, diff)) => Content::Diff { old: path.display().to_string(), diff },
            None => Content::Summary(&summary),
        };
        let trace = args.file.display().to_string();
        let document = Document { schema: 1, trace, damage: damage.as_ref().map(Damage::to_string), content };
        let text = serde_json::to_string_pretty(&document).expect("plain data always becomes JSON") + "\n";
        print_json(&text)?;
    } else {
        print(&diff.map_or_else(|| summary.text(args.top), |(_, diff)| diff.text(args.top)))?;
    }
    complain(&args.file, damage, "shown")?;
    args.diff.as_ref().map_or(Ok(()), |old| complain(old, old_damage, "shown"))
}

fn read(path: &Path) -> Result<(Summary, Option<Damage>), Failure> {
    let digest = Digest::read(path).map_err(unusable)?;
    Ok((digest.summary(), digest.damage().cloned()))
}

fn unusable(error: TraceError) -> Failure {
    Failure::Use(error.to_string())
}

fn complain(path: &Path, damage: Option<Damage>, done: &str) -> Result<(), Failure> {
    match damage {
        Some(damage) => Err(Failure::Failed(format!(
            "the trace {} {damage}; what stands before is {done}",
            path.display()
        ))),
        None => Ok(()),
    }
}
