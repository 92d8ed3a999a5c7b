//! `warpsmith memory`: shows the content of a memory snapshot.

use serde::Serialize;
use warpsmith::snapshot::Snapshot;

use crate::args::MemoryArgs;
use crate::memory_report::Report;
use crate::memory_view;
use warpsmith::bench::command::failure::Failure;
use warpsmith::bench::command::output::{print, print_json, width};

/// The JSON output document.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    snapshot: String,
    #[serde(flatten)]
    report: &'a Report,
}

/// Prints the content of the snapshot.
pub fn run(args: &MemoryArgs) -> Result<(), Failure> {
    let snapshot = Snapshot::read(&args.snapshot).map_err(|error| Failure::Use(error.to_string()))?;
    let report = Report::of(&snapshot, args.top, args.trace);
    if args.json {
        let document = Document { schema: 1, snapshot: args.snapshot.display().to_string(), report: &report };
        let text = serde_json::to_string_pretty(&document).expect("plain data always becomes JSON") + "\n";
        return Ok(print_json(&text)?);
    }
    Ok(print(&memory_view::text(&report, args.width.map_or_else(width, usize::from), args.all))?)
}
