//! The command line.

use std::net::TcpListener;
use std::process::{Command, Output};

use crate::folder;
use crate::models::expected;
use crate::server::continuation;

fn run(arguments: &[&str]) -> Output {
    let device = std::env::var("WARPSMITH_TEST_DEVICE").unwrap_or("cpu".to_owned());
    let mut command = Command::new(env!("CARGO_BIN_EXE_llm"));
    command.args(arguments).args(["--device", &device]).output().unwrap()
}

#[test]
fn generate_writes_the_text() {
    let (model, prompt) = (folder("llama"), expected("llama").prompt);
    let output = run(&["generate", model.to_str().unwrap(), "--prompt", &prompt, "--max-tokens", "9"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), continuation(9) + "\n");
}

#[test]
fn bench_writes_json() {
    let output = run(&["bench", "--shape", "tiny", "--batch", "2", "--context", "3", "--steps", "1"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["tokens_per_second"].as_f64().unwrap() > 0.0 && report["batch"] == 2, "{report}");
}

#[test]
fn errors_are_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let model = folder("llama");
    let model = model.to_str().unwrap();
    let long = "A warp ".repeat(600);
    let cases: [(&[&str], &str); 4] = [
        (&["serve", model, "--address", &address], "error: cannot listen at 127.0.0.1:"),
        (&["generate", "/nowhere", "--prompt", "x"], "error: /nowhere/config.json: No such file"),
        (&["generate", model, "--prompt", &long], "error: the prompt has "),
        (&["generate", model, "--prompt", "x", "--gpus", "8"], "error: device "),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        let line = text.lines().last().unwrap();
        assert!(!output.status.success() && line.starts_with(expected), "{text}");
    }
}
