//! `report`: writes documents as one HTML page, or in formats that other programs read.

use super::Program;
use super::args::ReportArgs;
use super::failure::Failure;
use super::output::print;
use crate::document::Document;
use crate::file::write_text;
use crate::report;

/// Writes the page and prints its path.
///
/// # Errors
/// Returns an error for a file that is not a results document or contains impossible times, and for a page that cannot
/// be written.
pub fn run(_: &Program<'_>, args: &ReportArgs) -> Result<(), Failure> {
    let documents =
        args.files.iter().map(|path| Document::read(path)).collect::<crate::error::Result<Vec<_>>>()?;
    write_text(&args.out, &report::html(&documents))?;
    Ok(print(&format!("report: {}\n", args.out.display()))?)
}
