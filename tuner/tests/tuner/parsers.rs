//! Properties that must hold for arbitrary bytes in a file or a command line. The fuzz targets check them, and so do
//! the tests that replay their seeds.

use warpsmith_tuner::command::{request, table};
use warpsmith_tuner::compare::{self, Options};
use warpsmith_tuner::document::Document;
use warpsmith_tuner::report;
use warpsmith_tuner::size::parse_size;
use warpsmith_tuner::space::Grid;
use warpsmith_tuner::value::Configuration;

/// Checks a results file. A document that can be read can also be written, displayed, drawn and compared with itself.
pub fn document(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(document) = Document::from_json(text) else { return };
    let again = Document::from_json(&document.to_json()).expect("what is written can be read");
    assert_eq!(again.to_json(), document.to_json());
    for width in [None, Some(60)] {
        assert!(!table::text(&document, width.is_none(), width).contains('\u{7}'));
    }
    let page = report::html(std::slice::from_ref(&document));
    assert!(!page.contains("<script>alert"), "text of a document is no markup");
    let options = Options { force: true, ..Options::default() };
    if let Ok(found) = compare::documents(&document, &document, &options) {
        assert!(!found.has_regression(), "a document is no slower than itself");
    }
}

/// Checks lines of the launch store.
pub fn store_line(bytes: &[u8]) {
    let directory = std::env::temp_dir().join(format!("warpsmith-store-line-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a temporary directory can be created");
    std::fs::write(directory.join("launches.jsonl"), bytes).expect("a temporary file can be written");
    assert_eq!(warpsmith_runtime::store::open(&directory).problem(), None);
    std::fs::remove_dir_all(&directory).expect("a temporary directory can be removed");
}

/// Checks options of the command line: configurations, axes, ranges, sizes and percentages.
pub fn options(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(configuration) = text.parse::<Configuration>() {
        let again: Configuration = configuration.to_string().parse().expect("what is shown can be read");
        assert_eq!(again, configuration);
    }
    if let Ok((name, values)) = request::axis(text) {
        assert!(!name.is_empty() && !values.is_empty());
    }
    if let Ok(sizes) = request::sizes(&text.split(',').map(str::to_owned).collect::<Vec<_>>()) {
        assert!(sizes.iter().all(|size| *size > 0));
    }
    assert!(parse_size(text).map_or(true, |size| size > 0));
    assert!(request::share(text).map_or(true, |share| share > 0.0 && share < 1.0));
    let _ = text.parse::<Grid>();
}
