//! `warpsmith trace`: shows where the time in a trace was spent, as tables or as a page.

use std::path::Path;

use serde::Serialize;
use warpsmith::bench::command::failure::Failure;
use warpsmith::bench::command::output::{complain, print, print_json};
use warpsmith_trace::summary::{Diff, Digest, Summary};
use warpsmith_trace::{Damage, Omission};

use crate::args::TraceArgs;

/// The JSON output document.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    trace: String,
    /// Location of the damage in the file, if any.
    damage: Option<String>,
    /// Content of the file that the tables omit or shorten.
    left_out: Vec<String>,
    #[serde(flatten)]
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Summary(&'a Summary),
    Diff { old: String, diff: &'a Diff },
}

/// Prints the tables of a trace, prints the changes between two traces, or writes a page.
pub fn run(args: &TraceArgs) -> Result<(), Failure> {
    if let Some(out) = &args.html {
        return write_page(&args.file, out);
    }
    let digest = Digest::read(&args.file).map_err(unusable)?;
    let read = |path| Digest::read(path).map(|digest| (path, digest)).map_err(unusable);
    let old = args.diff.as_ref().map(read).transpose()?;
    let summary = digest.summary();
    let diff = old.as_ref().map(|(path, old)| (path, summary.since(&old.summary())));
    let left_out = digest.trace().definitions.left_out();
    if args.json {
        let content = match &diff {
            Some((path, diff)) => Content::Diff { old: path.display().to_string(), diff },
            None => Content::Summary(&summary),
        };
        let trace = args.file.display().to_string();
        let damage = digest.damage().map(Damage::to_string);
        let left_out = left_out.iter().map(|what| what.text.clone()).collect();
        let document = Document { schema: 1, trace, damage, left_out, content };
        let text = serde_json::to_string_pretty(&document).expect("plain data always becomes JSON") + "\n";
        print_json(&text)?;
    } else {
        print(&diff.map_or_else(|| summary.text(args.top), |(_, diff)| diff.text(args.top)))?;
    }
    let judged = judge(&args.file, digest.damage(), &left_out, "shown");
    let old = old.map_or(Ok(()), |(path, old)| {
        judge(path, old.damage(), &old.trace().definitions.left_out(), "shown")
    });
    judged.and(old)
}

/// Writes a page with the timeline and the tables of a trace.
fn write_page(file: &Path, out: &Path) -> Result<(), Failure> {
    if file.canonicalize().is_ok_and(|file| out.canonicalize().is_ok_and(|out| file == out)) {
        let file = file.display();
        let reason = format!("the trace {file} cannot be converted into itself; give another output path");
        return Err(Failure::Use(reason));
    }
    let digest = Digest::read(file).map_err(unusable)?;
    let title = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    digest.write_html(out, &title).map_err(unusable)?;
    judge(file, digest.damage(), &digest.trace().definitions.left_out(), "written")
}

fn unusable(error: warpsmith::Error) -> Failure {
    Failure::Use(error.to_string())
}

/// Reports damage to a file and content that it omits. Fails if any content was lost.
pub fn judge(path: &Path, damage: Option<&Damage>, left_out: &[Omission], done: &str) -> Result<(), Failure> {
    let path = path.display();
    for what in left_out {
        complain(&format!("warpsmith: the trace {path}: {}", what.text));
    }
    if let Some(damage) = damage {
        complain(&format!("warpsmith: the trace {path} {damage}; the records before that are {done}"));
    }
    let is_lost = damage.is_some() || left_out.iter().any(|what| what.is_lost);
    if is_lost { Err(Failure::Shown) } else { Ok(()) }
}
