//! `report`: documents as one page, or in the forms of other programs.

use super::Program;
use super::args::ReportArgs;
use super::failure::Failure;
use super::output::print;
use crate::document::Document;
use crate::file::write_text;
use crate::report;

/// Writes the page and says where it is.
///
/// # Errors
/// A file that is no document of results or has impossible times, and a page that cannot be written.
pub fn run(_: &Program<'_>, args: &ReportArgs) -> Result<(), Failure> {
    let documents =
        args.files.iter().map(|path| Document::read(path)).collect::<crate::error::Result<Vec<_>>>()?;
    write_text(&args.out, &report::html(&documents))?;
    Ok(print(&format!("report: {}\n", args.out.display()))?)
}
