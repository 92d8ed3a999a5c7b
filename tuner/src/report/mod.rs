//! Renders documents as one HTML page with plots, which can be viewed in a browser, shared or printed.
//!
//! The guarantees of [`Page`] apply. The table contains every record; incorrect, failed and crashed records are marked.
//! Medians, percentiles and intervals are computed by [`stats`](crate::stats); the page only draws them.

mod model;

use warpsmith_trace::page::Page;

use self::model::Page as Data;
use crate::document::Document;

const STYLE: [&str; 2] = [include_str!("plots.css"), include_str!("page.css")];
const SCRIPT: [&str; 7] = [
    include_str!("js/draw.js"),
    include_str!("js/throughput.js"),
    include_str!("js/heat.js"),
    include_str!("js/limits.js"),
    include_str!("js/samples.js"),
    include_str!("js/table.js"),
    include_str!("js/page.js"),
];

/// Renders a page of documents; each document is one run. If there are no documents, the page states this.
///
/// ```
/// # use warpsmith_tuner::document::Document;
/// # fn write() -> Result<(), Box<dyn std::error::Error>> {
/// let document = Document::read("results.json".as_ref())?;
/// std::fs::write("report.html", warpsmith_tuner::report::html(&[document]))?;
/// # Ok(())
/// # }
/// ```
pub fn html(documents: &[Document]) -> String {
    let page =
        Page { title: &title(documents), styles: &STYLE, scripts: &SCRIPT, drawn: "The plots and the table" };
    page.html(&Data::of(documents))
}

/// Returns the title of the page, which names its kernels and devices.
fn title(documents: &[Document]) -> String {
    let distinct = |names: &mut dyn Iterator<Item = &str>| {
        let mut all: Vec<String> = Vec::new();
        for name in names {
            let name = shorten(name);
            if !all.contains(&name) {
                all.push(name);
            }
        }
        all
    };
    let records = || documents.iter().flat_map(|document| &document.results);
    let kernels = distinct(&mut records().map(|record| &*record.kernel));
    let devices = distinct(&mut documents.iter().map(|document| &*document.device.name));
    match (&kernels[..], &devices[..]) {
        (_, []) => "Kernel measurements: no results".to_owned(),
        ([], devices) => format!("Kernel measurements on {}: no results", list(devices)),
        (kernels, devices) => format!("{} on {}", list(kernels), list(devices)),
    }
}

/// Formats a list, for example as `a, b, c and 5 more`.
fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] if names.len() <= 4 => format!("{} and {last}", first.join(", ")),
        _ => format!("{} and {} more", names[..3].join(", "), names.len() - 3),
    }
}

fn shorten(name: &str) -> String {
    const MAX: usize = 40;
    if name.chars().count() <= MAX {
        return name.to_owned();
    }
    name.chars().take(MAX - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Outcome;
    use crate::document::tests::{document, record};

    const HOSTILE: &str = "</script><!--<img src=x onerror=\"alert(1)\">&amp;";

    #[test]
    fn text_of_documents_stays_text() {
        let mut document = document(vec![record(HOSTILE, 128, 10.0, Outcome::Correct)]);
        document.device.name = HOSTILE.into();
        document.results[0].problem = HOSTILE.into();
        let page = html(&[document]);
        assert_eq!(page.matches("</script>").count(), 2, "those of the page itself");
        assert!(!page.contains("<img") && !page.contains("<!--"));
        let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
        let value: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(value["records"][0]["kernel"], HOSTILE);
        assert_eq!(value["runs"][0]["device"]["name"], HOSTILE);
    }

    #[test]
    fn the_page_stands_alone() {
        let page = html(&[document(vec![record("copy", 128, 10.0, Outcome::Correct)])]);
        // These are the name of a namespace and a reference to a pattern in the page itself; they fetch nothing.
        let without_names = page.replace("http://www.w3.org/2000/svg", "").replace("url(#", "");
        for outside in ["http:", "https:", "src=", "<link", "url(", "@import", "fetch(", "XMLHttp"] {
            assert!(!without_names.contains(outside), "{outside}");
        }
        assert!(page.contains("default-src 'none'") && STYLE.iter().all(|style| !style.contains("</")));
        assert!(SCRIPT.iter().all(|script| !script.contains("</script") && !script.contains("innerHTML")));
    }

    #[test]
    fn titles_say_what_was_measured_where() {
        let of = |kernels: &[&str]| {
            let records = kernels.iter().map(|kernel| record(kernel, 128, 1.0, Outcome::Correct)).collect();
            title(&[document(records)])
        };
        assert_eq!(of(&["copy", "copy"]), "copy on NVIDIA H200");
        assert_eq!(of(&["copy", "axpy", "fill"]), "copy, axpy and fill on NVIDIA H200");
        assert_eq!(of(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more on NVIDIA H200");
        assert!(of(&[&"long".repeat(100)]).chars().count() < 60);
        assert_eq!(of(&[]), "Kernel measurements on NVIDIA H200: no results");
        assert_eq!(title(&[]), "Kernel measurements: no results");
    }
}
