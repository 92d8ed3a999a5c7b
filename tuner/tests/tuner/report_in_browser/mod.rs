//! The report in headless Chromium: what is drawn, what its controls do, and that it does nothing else. The checks are in
//! `checks.js`, which shows report pages in frames and posts the outcome.

mod fixtures;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use fixtures::{BLOCKS, GRIDS, ITEMS, NOT_RIGHT, SAMPLES, SIZES, bad, document, many, record, usual};
use serde_json::{Value, json};
use warpsmith_tuner::document::{Document, Outcome, Record};
use warpsmith_tuner::measure::Logged;
use warpsmith_tuner::report::html;

/// The time of a check.
const PATIENCE: Duration = Duration::from_secs(120);
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Runs a check on the pages of documents.
fn check(name: &str, pages: &[(&str, Vec<Document>)], facts: Value) {
    let pages: Value =
        pages.iter().map(|(name, documents)| ((*name).to_owned(), Value::String(html(documents)))).collect();
    let call = format!("run({}, {pages}, {facts});", json!(name)).replace('<', "\\u003c");
    let page = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><link rel=\"icon\" href=\"data:,\"><body><script>{}\n{call}</script>",
        include_str!("checks.js").replace("</script", "<\\/script")
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, outcome) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if let Some(outcome) = answer(stream.unwrap(), &page) {
                let _ = sender.send(outcome);
                return;
            }
        }
    });
    let profile = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.profile"));
    let mut browser = Command::new(chromium())
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ])
        .args(["--disable-background-networking", "--disable-component-update", "--window-size=2000,1000"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(address)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let outcome = outcome.recv_timeout(PATIENCE);
    let _ = browser.kill();
    let _ = browser.wait();
    let _ = std::fs::remove_dir_all(profile);
    assert_eq!(outcome.as_deref(), Ok("passed"), "{}", outcome.as_deref().unwrap_or("no outcome"));
}

/// Sends the page, or receives the outcome.
fn answer(mut stream: TcpStream, page: &str) -> Option<String> {
    let mut request = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && request.read_line(&mut head).is_ok_and(|read| read > 0) {}
    let length = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    request.read_exact(&mut body).unwrap();
    let is_outcome = head.starts_with("POST");
    let page = if is_outcome { "" } else { page };
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{page}",
        page.len()
    );
    is_outcome.then(|| String::from_utf8(body).unwrap())
}

fn chromium() -> String {
    let named = std::env::var("CHROMIUM").ok();
    let is_there = |program: &String| {
        let mut version = Command::new(program);
        let version = version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    let mut programs = named.into_iter().chain(PROGRAMS.map(str::to_owned));
    programs.find(is_there).expect(
        "there is no Chromium: install it with cargo xtask setup (or apt-get install chromium), or name it in CHROMIUM",
    )
}

fn facts() -> Value {
    json!({
        "blocks": BLOCKS.len(), "grids": GRIDS.len(), "items": ITEMS.len(), "sizes": SIZES.len(),
        "samples": SAMPLES, "not_right": NOT_RIGHT,
    })
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn plots_and_controls_of_a_usual_document_work() {
    for name in ["marks", "sorting", "filters", "names"] {
        check(name, &[("usual", vec![usual()])], facts());
    }
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn ten_thousand_records_stay_usable() {
    check("many", &[("many", vec![many()])], Value::Null);
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn chosen_configurations_are_marked_before_faster_ones() {
    let mut document = usual();
    for record in document.results.iter_mut().filter(|record| record.kernel == "copy") {
        let configuration = record.configuration.to_string();
        record.is_winner =
            ["block=64", "items=1", "waves:1"].iter().all(|value| configuration.contains(value));
    }
    check("chosen", &[("chosen", vec![document])], facts());
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn logged_records_have_no_distribution() {
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
    let partly = document(vec![fresh.clone(), logged(&default)]);
    let earlier = document(vec![logged(&fresh), logged(&default)]);
    check("logged", &[("partly", vec![partly]), ("earlier", vec![earlier])], facts());
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
    check("hostile", &[("hostile", vec![document])], json!({ "text": HOSTILE }));
}

#[test]
#[ignore = "needs Chromium: cargo xtask test installs it"]
fn unusual_documents_fit_phones_and_wide_screens() {
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
    let pages = [
        ("none", vec![], 0, "No documents were given"),
        ("empty", vec![document(vec![])], 0, "no results"),
        ("one", vec![document(vec![one.clone()])], 4, "all results right"),
        ("long", vec![document(vec![long])], 4, "…"),
        ("wrong", vec![document(vec![wrong, crashed])], 2, "No right result"),
        ("bare", vec![document(vec![bare])], 2, "no axes"),
        ("few", vec![document(vec![few])], 4, "–"),
        ("emulated", vec![emulated], 4, "say nothing about a GPU"),
        ("two", vec![usual(), document(vec![one])], 8, "run 2"),
    ];
    let expected: Vec<_> =
        pages.iter().map(|(name, _, figures, words)| json!([name, figures, words])).collect();
    check("unusual", &pages.map(|(name, documents, ..)| (name, documents)), json!({ "expected": expected }));
}
