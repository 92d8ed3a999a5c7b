//! Checks in headless Chromium that pages show the right content, that their controls work, and that they do nothing
//! else. `browser.js` contains the common code of the checks and posts the outcome.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::{Value, json};

/// Timeout of a check.
const PATIENCE: Duration = Duration::from_secs(120);
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Runs a check of `checks`, a script that defines `CHECKS`, on named pages, which the script shows in frames.
pub fn check(checks: &str, name: &str, pages: Vec<(String, String)>, facts: Value) {
    let pages: Value = pages.into_iter().map(|(name, page)| (name, Value::String(page))).collect();
    let call = format!("run({}, {pages}, {facts});", json!(name)).replace('<', "\\u003c");
    let page = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><link rel=\"icon\" href=\"data:,\"><body><script>{}\n{call}</script>",
        [include_str!("browser.js"), checks].join("\n").replace("</script", "<\\/script")
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
