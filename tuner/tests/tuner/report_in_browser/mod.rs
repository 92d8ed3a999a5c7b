//! The report in headless Chromium: what is drawn, what can be done with it, and that it does nothing else.

mod browser;
mod fixtures;

use std::path::PathBuf;

use browser::Tab;
use fixtures::{BLOCKS, GRIDS, ITEMS, NOT_RIGHT, SAMPLES, SIZES, bad, document, many, record, usual};
use warpsmith_tuner::document::{Document, Outcome, Record};
use warpsmith_tuner::measure::{Logged, Mode};
use warpsmith_tuner::report::html;

/// Writes the page of documents for a test.
fn write(name: &str, documents: &[Document]) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.html"));
    std::fs::write(&file, html(documents)).unwrap();
    file
}

/// Writes it and opens it.
fn open(name: &str, documents: &[Document], width: u32) -> Tab {
    let mut tab = Tab::open(&write(name, documents), width);
    assert_eq!(tab.value("document.documentElement.dataset.ready"), "true", "the script ran to its end");
    tab
}

fn assert_quiet(tab: &mut Tab) {
    let complaints = tab.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
    assert_eq!(
        tab.requests().iter().filter(|url| url.starts_with("file:")).count(),
        1,
        "{:?}",
        tab.requests()
    );
    assert!(
        tab.requests().iter().all(|url| url.starts_with("file:") || *url == "about:blank"),
        "{:?}",
        tab.requests()
    );
}

/// The cells of a column of the table of records, on the page that is shown.
fn column(tab: &mut Tab, name: &str) -> Vec<String> {
    let names = tab.texts("#records th");
    let index = names.iter().position(|known| known == name).unwrap() + 1;
    tab.texts(&format!("#records tbody td:nth-child({index})"))
}

fn header(tab: &mut Tab, name: &str) -> String {
    let names = tab.texts("#records th");
    format!("#records th:nth-child({}) button", names.iter().position(|known| known == name).unwrap() + 1)
}

fn numbers(cells: &[String]) -> Vec<f64> {
    cells.iter().filter_map(|cell| cell.parse().ok()).collect()
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn every_plot_has_the_marks_of_its_data() {
    let mut tab = open("usual", &[usual()], 1280);
    let configurations = BLOCKS.len() * GRIDS.len() * ITEMS.len();
    assert_eq!(tab.count("#throughput figure"), 2, "one for each kernel and type");
    let [copy, axpy] = [1, 2].map(|place| format!("#throughput figure:nth-child({place}) .marks"));
    assert_eq!(tab.count(&format!("{copy} path.other")), configurations as u64);
    assert_eq!(tab.count(&format!("{axpy} path.other")), (configurations - NOT_RIGHT / SIZES.len()) as u64);
    for marks in [&copy, &axpy] {
        assert_eq!(tab.count(&format!("{marks} circle.best")), SIZES.len() as u64);
        assert_eq!(tab.count(&format!("{marks} rect.default")), SIZES.len() as u64);
        for line in ["best", "default", "probe", "sheet"] {
            assert_eq!(tab.count(&format!("{marks} path.{line}.line")), 1, "{line}");
        }
    }
    let cells = (BLOCKS.len() * ITEMS.len()) as u64;
    assert_eq!(tab.count("#heat .marks rect.cell"), cells);
    assert_eq!(tab.count("#heat .marks rect.cell.winner"), 1);
    tab.choose("#heat", "Case", "axpy f32 2²⁴, cold");
    assert_eq!(tab.count("#heat .marks rect.cell.bad"), 1, "512 threads with 8 items");
    tab.choose("#heat", "grid", "waves:1");
    assert_eq!(tab.count("#heat .marks rect.cell.bad"), 2, "and 64 threads with 8 items");
    tab.choose("#heat", "Across", "grid");
    assert_eq!(tab.count("#heat .marks rect.cell"), (GRIDS.len() * ITEMS.len()) as u64);
    let series = 2 * SIZES.len() as u64;
    assert_eq!(tab.count("#roofline figure:nth-child(1) .marks .dot"), series, "shares of the probe");
    assert_eq!(tab.count("#roofline figure:nth-child(2) .marks circle.best"), SIZES.len() as u64, "axpy's");
    assert_eq!(tab.count("#samples .marks .sample"), 2 * SAMPLES as u64, "of the best and of the default");
    assert_eq!(tab.count("#samples .marks .box"), 2);
    assert_eq!(tab.count("#best tbody tr"), series);
    assert_quiet(&mut tab);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn what_a_tuning_run_chose_is_marked_though_another_is_faster() {
    let mut document = usual();
    let is_chosen = |record: &Record| {
        let configuration = record.configuration.to_string();
        configuration.contains("block=64") && configuration.contains("items=1")
    };
    for record in document.results.iter_mut().filter(|record| record.kernel == "copy") {
        record.is_winner = is_chosen(record) && record.configuration.to_string().contains("waves:1");
    }
    let mut tab = open("chosen", &[document], 1280);
    let bests = tab.texts("#throughput figure:nth-child(1) .marks circle.best title");
    assert_eq!(bests.len(), SIZES.len());
    let chosen = |tip: &String| ["block=64", "items=1", "waves:1"].iter().all(|value| tip.contains(value));
    assert!(bests.iter().all(chosen), "{bests:?}");
    tab.choose("#heat", "Case", "copy f32 2²⁴, cold");
    let winner = "#heat .marks rect.cell.winner title";
    let marked = tab.texts(winner);
    assert!(marked.len() == 1 && marked.iter().all(chosen), "{marked:?}");
    assert!(tab.texts("#heat figcaption p")[0].starts_with("Chosen: "));
    tab.choose("#heat", "grid", "auto");
    assert_eq!(tab.count(winner), 0, "it is not among them");
    tab.choose("#heat", "Case", "axpy f32 2²⁴, cold");
    let fastest = tab.texts(winner);
    assert!(fastest.len() == 1 && !chosen(&fastest[0]), "nothing was chosen: {fastest:?}");
    assert_quiet(&mut tab);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn times_of_the_host_are_drawn_as_times_and_never_as_rates() {
    let mut document = usual();
    document.results.retain(|record| record.kernel == "axpy");
    let mut tab = open("device", &[document.clone()], 1280);
    assert!(tab.count("#throughput figure") == 1 && tab.count("#roofline figure") == 2);
    for timing in document.results.iter_mut().filter_map(|record| record.timing.as_mut()) {
        timing.mode = Mode::Enqueue;
    }
    document.results.iter_mut().for_each(|record| record.mode = Mode::Enqueue);
    tab.show(&write("host", &[document]));
    assert_eq!((tab.count("#throughput"), tab.count("#roofline")), (0, 0));
    let text = tab.texts("#heat figcaption").concat();
    assert!(text.contains(" µs with ") && !text.contains("GB/s") && !text.contains("FLOP/s"), "{text}");
    // The fastest is the lightest, as it is of rates.
    assert_eq!(tab.count("#heat .marks rect.cell.winner[fill='#fde725']"), 1);
    assert_eq!(tab.count("#heat .marks rect.cell:not(.winner)[fill='#440154']"), 1, "the slowest");
    assert!(tab.texts("#heat .marks rect.cell.winner title")[0].matches("µs").count() == 1);
    assert!(column(&mut tab, "GB/s").iter().all(|cell| cell == "–"));
    assert_eq!(tab.count("#samples .marks .box"), 2);
    assert_quiet(&mut tab);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn of_an_earlier_run_no_distribution_is_drawn_and_that_is_said() {
    let mut fresh = record("copy", 2, 1 << 20, 128, 2, "auto");
    fresh.is_winner = true;
    let default = record("copy", 2, 1 << 20, 256, 4, "auto");
    let logged = |record: &Record| {
        let mut known = record.clone();
        let timing = known.timing.as_mut().unwrap();
        (timing.samples_us, timing.clocks_mhz) = (vec![6.0, 6.2], Vec::new());
        timing.logged = Some(Logged { samples: 37, interval_us: Some((5.9, 6.3)) });
        known
    };
    let mut tab = open("partly", &[document(vec![fresh.clone(), logged(&default)])], 1280);
    let text = |tab: &mut Tab| tab.texts("#samples figcaption").concat();
    assert_eq!((tab.count("#samples .marks .box"), tab.count("#samples .sample")), (1, SAMPLES as u64));
    let said = text(&mut tab);
    assert!(said.contains("default: block=256 grid=auto items=4 is of an earlier run"), "{said}");
    assert!(column(&mut tab, "Outcome")[1].contains("earlier run"));
    let percentiles = column(&mut tab, "p10 – p90");
    assert!(percentiles[0] != "–" && percentiles[1] == "–", "{percentiles:?}");
    assert_eq!(column(&mut tab, "95 % interval")[1], "5.900 – 6.300");
    assert_quiet(&mut tab);
    tab.show(&write("earlier", &[document(vec![logged(&fresh), logged(&default)])]));
    assert_eq!((tab.count("#samples .box"), tab.count("#samples .sample")), (0, 0));
    assert_eq!(text(&mut tab).matches("earlier run").count(), 2);
    let all = tab.value("document.body.innerText").as_str().unwrap().to_owned();
    assert!(!all.contains("NaN") && !all.contains("undefined"));
    assert_quiet(&mut tab);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn headers_sort_by_mouse_and_by_keyboard() {
    let mut tab = open("sort", &[usual()], 1280);
    let name = header(&mut tab, "Median µs");
    tab.click(&name);
    let up = numbers(&column(&mut tab, "Median µs"));
    assert!(up.len() == 100 && up.is_sorted() && up[0] < up[99], "{up:?}");
    assert_eq!(tab.count("#records th[aria-sort=ascending]"), 1);
    tab.focus(&name);
    tab.press("Enter", 13, "\r");
    let down = numbers(&column(&mut tab, "Median µs"));
    assert!(down.len() == 100 && down.iter().rev().is_sorted() && down[0] > up[99], "{down:?}");
    assert_eq!(tab.count("#records th[aria-sort=descending]"), 1);
    let kernel = header(&mut tab, "Kernel");
    tab.focus(&kernel);
    tab.press(" ", 32, " ");
    assert!(column(&mut tab, "Kernel").iter().all(|cell| cell == "axpy"));
    assert_eq!(tab.count("#records th[aria-sort]"), 1, "only one column is sorted by");
    // Sizes sort by their number, not by what they look like.
    let size = header(&mut tab, "Size");
    tab.click(&size);
    tab.click(&size);
    assert_eq!(column(&mut tab, "Size")[0], "2²⁸");
    assert_quiet(&mut tab);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn filters_leave_what_they_say() {
    let mut tab = open("filter", &[usual()], 1280);
    let half = SIZES.len() * BLOCKS.len() * GRIDS.len() * ITEMS.len();
    tab.choose("#records", "Kernel", "copy");
    assert!(tab.texts("#records .status")[0].contains(&format!("of {half} (of {})", 2 * half)));
    assert!(column(&mut tab, "Kernel").iter().all(|cell| cell == "copy"));
    tab.choose("#records", "Kernel", "all");
    tab.choose("#records", "Outcome", "failed");
    let problems = column(&mut tab, "Outcome");
    assert_eq!(problems.len(), SIZES.len() * GRIDS.len());
    assert!(problems.iter().all(|cell| cell.contains("too many registers")), "{problems:?}");
    assert_eq!(tab.count("#records tr.failed"), problems.len() as u64);
    tab.choose("#records", "Outcome", "all");
    tab.choose("#records", "Size", "2²⁰");
    tab.focus("#records input[type=search]");
    tab.write("axpy block=128 items=2");
    let found = column(&mut tab, "Configuration");
    assert_eq!(found.len(), GRIDS.len(), "{found:?}");
    assert!(found.iter().all(|cell| cell.contains("block=128") && cell.contains("items=2")));
    tab.write(" no such thing");
    assert!(tab.texts("#records tbody")[0].contains("Nothing passes the filters"));
    assert_quiet(&mut tab);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn ten_thousand_records_stay_usable() {
    let mut tab = open("many", &[many()], 1280);
    tab.settle();
    let loaded_s = tab.worked_s();
    assert!(loaded_s > 0.01 && loaded_s < 3.0, "{loaded_s} s");
    assert_eq!(tab.count("#records tbody tr"), 100);
    assert!(tab.texts("#records .status")[0].contains("1 to 100 of 10,000"));
    let next = "#records .pager button:nth-child(2)";
    tab.click(next);
    assert!(tab.texts("#records .status")[0].contains("101 to 200"));
    let before_s = tab.worked_s();
    let name = header(&mut tab, "Median µs");
    tab.click(&name);
    tab.settle();
    let sorted_s = tab.worked_s() - before_s;
    assert!(sorted_s < 1.0, "{sorted_s} s");
    println!("10,000 records: {loaded_s:.2} s to load, {sorted_s:.2} s to sort");
    let first = numbers(&column(&mut tab, "Median µs"));
    assert!(first.is_sorted() && first.len() == 100);
    tab.choose("#records", "Kernel", "kernel_7");
    assert!(tab.texts("#records .status")[0].contains("of 1,000"));
    assert_eq!(tab.count("#throughput figure"), 10);
    assert_quiet(&mut tab);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn hostile_text_is_only_shown() {
    const HOSTILE: &str =
        "</script><!--<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>";
    let mut records = Vec::new();
    for outcome in [Outcome::Correct, Outcome::Wrong, Outcome::Crashed] {
        let mut record = record(HOSTILE, 2, 1 << 20, 64, 1, "auto");
        record.configuration = record.configuration.with("__proto__", HOSTILE).with(HOSTILE, "constructor");
        record.dtype = HOSTILE.into();
        records.push(bad(record, outcome, HOSTILE));
    }
    let mut document = document(records);
    document.device.name = HOSTILE.into();
    document.device.before.throttle_reasons = vec![HOSTILE.into()];
    document.run.toolchain = HOSTILE.into();
    document.probes[0].name = HOSTILE.into();
    let mut tab = open("hostile", &[document], 1280);
    assert_ne!(tab.value("document.title"), "taken");
    assert_eq!((tab.count("img"), tab.count("script")), (0, 2));
    assert_eq!(column(&mut tab, "Kernel"), [HOSTILE; 3]);
    tab.choose("#records", "Outcome", "wrong");
    assert_eq!(column(&mut tab, "Kernel").len(), 1);
    assert_eq!(tab.count("#heat .marks rect.cell"), 1);
    assert_quiet(&mut tab);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn unusual_documents_look_right_from_a_phone_to_a_wide_screen() {
    let one = record("copy", 2, 1 << 20, 256, 4, "auto");
    let mut long = one.clone();
    long.kernel = "a_kernel_with_a_name_".repeat(12);
    long.configuration = long.configuration.with(&"axis".repeat(30), "value".repeat(30));
    let wrong = bad(one.clone(), Outcome::Wrong, "all elements are wrong");
    let crashed = bad(one.clone(), Outcome::Crashed, "signal 11");
    let mut bare = one.clone();
    (bare.bytes, bare.flops, bare.probe_us, bare.configuration) = (0, 0, None, Default::default());
    let mut few = one.clone();
    few.timing.as_mut().unwrap().samples_us = vec![3.0];
    let mut emulated = document(vec![one.clone()]);
    (emulated.device.emulated, emulated.device.memory_gbps, emulated.run.interrupted) = (true, None, true);
    emulated.probes.clear();
    let mut tab = open("blank", &[], 1280);
    for (name, documents, figures, words) in [
        ("none", vec![], 0, "No documents were given"),
        ("empty", vec![document(vec![])], 0, "no results"),
        ("one", vec![document(vec![one.clone()])], 4, "all results right"),
        ("long", vec![document(vec![long])], 4, "…"),
        ("wrong", vec![document(vec![wrong, crashed])], 2, "No right result"),
        ("bare", vec![document(vec![bare])], 2, "no axes"),
        ("few", vec![document(vec![few])], 4, "–"),
        ("emulated", vec![emulated], 4, "say nothing about a GPU"),
        ("two", vec![usual(), document(vec![one])], 8, "run 2"),
    ] {
        tab.resize(1280);
        tab.show(&write(name, &documents));
        assert_eq!(tab.value("document.documentElement.dataset.ready"), "true", "{name}");
        assert_eq!(tab.count("figure"), figures, "{name}");
        let text = tab.value("document.body.innerText").as_str().unwrap().to_owned();
        assert!(text.contains(words), "{name}");
        assert!(
            !text.contains("NaN")
                && !text.contains("[object")
                && !text.contains("undefined")
                && !text.contains("Infinity"),
            "{name}"
        );
        let bad_numbers = "[...document.querySelectorAll('svg *')].filter((mark) => [...mark.attributes].some((found) => /NaN|Infinity|undefined/.test(found.value))).length";
        assert_eq!(tab.value(bad_numbers), 0, "{name}");
        for width in [360, 768, 1920] {
            tab.resize(width);
            tab.settle();
            let over =
                tab.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(over, 0, "{name}: at {width} pixels the page is wider than its window");
            let wide = "[...document.querySelectorAll('svg.plot')].filter((plot) => plot.getBoundingClientRect().right > innerWidth).length";
            assert_eq!(tab.value(wide), 0, "{name}: at {width} pixels");
        }
        assert_quiet(&mut tab);
    }
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn plots_have_text_and_controls_have_names() {
    let mut tab = open("access", &[usual()], 1280);
    let plots = tab.count("svg[role=img]");
    assert!(plots >= 6);
    let named = "[...document.querySelectorAll('svg[role=img]')].filter((plot) => plot.getAttribute('aria-labelledby').split(' ').every((id) => document.getElementById(id).textContent.length > 5)).length";
    assert_eq!(tab.value(named), plots);
    assert_eq!(tab.count("svg:not([role=img]):not([aria-hidden=true])"), 0);
    let unnamed =
        "[...document.querySelectorAll('select, input')].filter((control) => !control.labels.length).length";
    assert_eq!(tab.value(unnamed), 0);
    assert_eq!(tab.count("th:not([scope=col])"), 0);
    assert_eq!((tab.count("h1"), tab.count("table caption"), tab.count("table")), (1, 2, 2));
    let jumps = "(() => { let last = 0, bad = 0; for (const heading of document.querySelectorAll('h1,h2,h3,h4')) { const level = +heading.tagName[1]; bad += level > last + 1; last = level; } return bad; })()";
    assert_eq!(tab.value(jumps), 0);
    // A choice keeps the focus when the controls beside it are made anew.
    tab.focus("#heat select");
    tab.press("ArrowDown", 40, "");
    assert_eq!(tab.value("document.activeElement.parentElement.firstChild.textContent.trim()"), "Case");
    assert_quiet(&mut tab);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn it_is_dark_where_that_is_wanted_and_white_on_paper() {
    let mut tab = open("dark", &[usual()], 1280);
    let ground = "getComputedStyle(document.body).backgroundColor";
    let light = tab.value(ground);
    let feature =
        |value: &str| serde_json::json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
    tab.call("Emulation.setEmulatedMedia", feature("dark"));
    let dark = tab.value(ground);
    assert_eq!((light.as_str(), dark.as_str()), (Some("rgb(252, 252, 251)"), Some("rgb(19, 21, 23)")));
    tab.call("Emulation.setEmulatedMedia", serde_json::json!({ "media": "print" }));
    assert_eq!(tab.value(ground), "rgb(255, 255, 255)");
    assert_eq!(tab.value("getComputedStyle(document.querySelector('.controls')).display"), "none");
    let pdf = tab.call("Page.printToPDF", serde_json::json!({}));
    assert!(pdf["data"].as_str().unwrap().len() > 10_000);
    assert_quiet(&mut tab);
}
