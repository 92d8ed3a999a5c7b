//! A trace as a single HTML page that contains a timeline and tables.
//!
//! The guarantees of [`Page`] apply. A page has at most [`MAX_SLICES`](reduce::MAX_SLICES) slices. For a larger trace,
//! the remaining slices are joined or omitted, and a note on the page reports this. The tables come from [`Summary`]
//! and cover all records.

mod reduce;
mod timeline;

use std::path::Path;

use serde::Serialize;

use self::timeline::Timeline;
use crate::error::Result;
use crate::page::Page;
use crate::summary::{Digest, Summary};
use crate::trace::Trace;

const STYLE: &str = include_str!("page.css");
const SCRIPT: [&str; 6] = [
    include_str!("js/numbers.js"),
    include_str!("js/data.js"),
    include_str!("js/draw.js"),
    include_str!("js/timeline.js"),
    include_str!("js/tables.js"),
    include_str!("js/page.js"),
];

/// Input to the page's script.
#[derive(Serialize)]
struct Data<'a> {
    timeline: Timeline,
    summary: &'a Summary,
    /// Notes about content that the page does not show.
    notes: Vec<String>,
}

impl Trace {
    /// Writes the trace as a single HTML page that contains a timeline and tables. The page works in a browser without
    /// a network. `title` is the heading of the page.
    ///
    /// # Errors
    /// Returns [`TraceError`](crate::TraceError) if the file cannot be written.
    pub fn write_html(&self, path: impl AsRef<Path>, title: &str) -> Result<()> {
        let path = path.as_ref();
        std::fs::write(path, self.html(title)).map_err(|error| crate::trace::unwritable(path, &error))
    }

    /// Returns the HTML of the page that [`Self::write_html`] writes.
    ///
    /// ```
    /// let page = warpsmith_trace::Trace::default().html("a run");
    /// assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<h1>a run</h1>"));
    /// ```
    pub fn html(&self, title: &str) -> String {
        page(self, &self.summary(), title, Vec::new())
    }
}

impl Digest {
    /// Writes an HTML page, like [`Trace::write_html`]. The timeline shows the records that were kept.
    ///
    /// # Errors
    /// Returns [`TraceError`](crate::TraceError) if the file cannot be written.
    pub fn write_html(&self, path: impl AsRef<Path>, title: &str) -> Result<()> {
        let (path, summary) = (path.as_ref(), self.summary());
        let mut notes = Vec::new();
        if let Some(damage) = self.damage() {
            notes.push(format!("The trace {damage}. The records before that are shown."));
        }
        if summary.related < summary.records {
            notes.push(format!(
                "The timeline, and the tables of devices, streams, launches, launch-bound gaps and ranges, show only the \
                 first {} of {} records.",
                summary.related, summary.records
            ));
        }
        let page = page(self.trace(), &summary, title, notes);
        std::fs::write(path, page).map_err(|error| crate::trace::unwritable(path, &error))
    }
}

const MAX_ROWS: usize = 2000;

fn page(trace: &Trace, summary: &Summary, title: &str, mut notes: Vec<String>) -> String {
    let timeline = Timeline::of(trace, &mut notes);
    let summary = &cut(summary.clone(), &mut notes);
    let page = Page { title, styles: &[STYLE], scripts: &SCRIPT, drawn: "The timeline and the tables" };
    page.html(&Data { timeline, summary, notes })
}

/// Limits each table to the maximum number of rows on a page.
fn cut(mut summary: Summary, notes: &mut Vec<String>) -> Summary {
    let mut left_out = 0;
    let Summary { kernels, launch_bound, lines, calls, driver_calls, .. } = &mut summary;
    for rows in [kernels, launch_bound, lines, calls, driver_calls] {
        shorten(rows, &mut left_out);
    }
    let Summary { ranges, graphs, waits, allocations, streams, .. } = &mut summary;
    shorten(ranges, &mut left_out);
    shorten(graphs, &mut left_out);
    shorten(waits, &mut left_out);
    shorten(allocations, &mut left_out);
    shorten(streams, &mut left_out);
    if left_out > 0 {
        notes.push(format!("Tables show their first {MAX_ROWS} rows; {left_out} rows are omitted."));
    }
    summary
}

fn shorten<T>(rows: &mut Vec<T>, left_out: &mut usize) {
    *left_out += rows.len().saturating_sub(MAX_ROWS);
    rows.truncate(MAX_ROWS);
}
