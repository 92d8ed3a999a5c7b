//! The built `warpsmith` command, run on the emulated device: `tune`, `compare`, `report`, output formats, Ctrl-C.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::shared::{command, folder, run};
use serde_json::Value;

const QUICK: [&str; 6] = ["--device", "cpu", "--sizes", "2^10", "--quick", "--no-probes"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs the command in a shared folder.
fn within(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

/// Writes a document of `bench copy` in a folder, and returns it.
fn measured(folder: &Path, name: &str) -> Value {
    let args = [&["bench", "copy", "--samples", "12", "--out", name][..], &QUICK[..4]].concat();
    let output = within(folder, &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

#[test]
fn winners_on_the_emulated_device_are_not_saved() {
    let folder = folder();
    let args = [&["tune", "copy", "--trials", "6"][..], &QUICK].concat();
    let first = within(&folder, &[&args[..], &["--json"]].concat());
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let document: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(document["run"]["command"], "tune");
    let toolchain = document["run"]["toolchain"].as_str().unwrap();
    assert!(toolchain.starts_with("rustc 1.") && toolchain.contains(", LLVM "), "{toolchain}");
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.iter().filter(|r| r["is_winner"] == true).count(), 1, "{results:#?}");
    assert_eq!(results[0]["is_default"], true, "the default is measured first");
    assert!(results.len() <= 6, "{}", results.len());
    let second = text(&within(&folder, &args).stdout);
    assert!(second.contains("; winners on an emulated device are not saved\n"), "{second}");
    assert!(!folder.join("cache/warpsmith/launches.jsonl").exists());
    fs::remove_dir_all(folder).unwrap();
}

mod on_gpu {
    use super::*;

    const QUICK: [&str; 6] = ["--device", "cuda:0", "--sizes", "2^10", "--quick", "--no-probes"];

    #[test]
    #[ignore = "needs a GPU"]
    fn winners_are_kept_in_the_launch_store() {
        let folder = folder();
        let args = [&["tune", "copy", "--trials", "6"][..], &QUICK].concat();
        let first = within(&folder, &args);
        let shown = text(&first.stdout);
        assert!(shown.contains("; 1 winner was saved in ") && shown.contains("launches.jsonl"), "{shown}");
        let store = folder.join("cache/warpsmith/launches.jsonl");
        let kept = fs::read_to_string(&store).unwrap();
        assert!(kept.contains("copy") && kept.contains("rustc 1."), "{kept}");
        fs::write(&store, kept + "{torn").unwrap();
        assert_eq!(within(&folder, &args).status.code(), Some(0), "a damaged line is skipped");
        let hot = [&["tune", "axpy", "--trials", "2", "--mode", "hot"][..], &QUICK].concat();
        let hot = text(&within(&folder, &hot).stdout);
        assert!(hot.contains("; no winner was saved\n"), "{hot}");
        let nothing = text(&within(&folder, &[&args[..], &["--no-store"]].concat()).stdout);
        assert!(nothing.contains("nothing is kept"), "{nothing}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn tuning_continues_without_a_writable_store() {
        let folder = folder();
        fs::write(folder.join("file"), "").unwrap();
        let args = [&["tune", "copy", "--trials", "2", "--out", "o.json"][..], &QUICK].concat();
        let mut blocked = command(&folder, &args);
        let output = blocked.env("WARPSMITH_CACHE_DIR", folder.join("file/below")).output().unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{errors}");
        assert!(errors.contains("file/below"), "{errors}");
        let shown = text(&output.stdout);
        assert!(shown.contains("copy") && shown.contains("nothing is kept"), "{shown}");
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn regressions_between_documents_exit_with_1() {
    let folder = folder();
    let mut document = measured(&folder, "a.json");
    // Times without noise, so that comparisons show only this test's changes.
    let samples: Vec<Value> = (0..12).map(|i| Value::from(10.0 + f64::from(i) / 1000.0)).collect();
    for record in document["results"].as_array_mut().unwrap() {
        record["timing"]["samples_us"] = samples.clone().into();
    }
    fs::write(folder.join("a.json"), document.to_string()).unwrap();
    let same = within(&folder, &["compare", "a.json", "a.json"]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stderr));
    assert!(text(&same.stdout).contains("SAME"), "{}", text(&same.stdout));

    let times = document["results"][0]["timing"]["samples_us"].as_array_mut().unwrap();
    times.iter_mut().for_each(|us| *us = Value::from(us.as_f64().unwrap() * 1.5));
    fs::write(folder.join("b.json"), document.to_string()).unwrap();
    let slower = within(&folder, &["compare", "a.json", "b.json"]);
    assert_eq!(slower.status.code(), Some(1));
    assert!(text(&slower.stdout).contains("SLOWER") && slower.stderr.is_empty(), "{}", text(&slower.stdout));
    let tolerant = within(&folder, &["compare", "a.json", "b.json", "--threshold", "60%"]);
    assert_eq!(tolerant.status.code(), Some(0), "{}", text(&tolerant.stdout));
    let json = within(&folder, &["compare", "a.json", "b.json", "--json"]);
    assert!(text(&json.stdout).contains("\"slower\""), "{}", text(&json.stdout));

    let mut part: Value = serde_json::from_slice(&fs::read(folder.join("a.json")).unwrap()).unwrap();
    part["run"]["interrupted"] = true.into();
    fs::write(folder.join("part.json"), part.to_string()).unwrap();
    let missing = within(&folder, &["compare", "a.json", "part.json"]);
    assert_eq!(missing.status.code(), Some(1), "{}", text(&missing.stdout));
    assert!(text(&missing.stderr).contains("--allow-missing"), "{}", text(&missing.stderr));
    let allowed = within(&folder, &["compare", "a.json", "part.json", "--allow-missing"]);
    assert_eq!(allowed.status.code(), Some(0), "{}", text(&allowed.stderr));
    assert!(text(&allowed.stdout).contains("ended early"), "{}", text(&allowed.stdout));

    let mut odd = part;
    odd["results"][0]["timing"]["samples_us"][3] = Value::from(-10.0);
    fs::write(folder.join("odd.json"), odd.to_string()).unwrap();
    for args in [&["compare", "a.json", "odd.json"][..], &["report", "odd.json"]] {
        let refused = within(&folder, args);
        let errors = text(&refused.stderr);
        assert_eq!((refused.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
        for words in ["odd.json", "record 1 (copy", "-10 µs"] {
            assert!(errors.contains(words), "{words}: {errors}");
        }
    }

    document["device"]["name"] = "another".into();
    fs::write(folder.join("c.json"), document.to_string()).unwrap();
    let other = within(&folder, &["compare", "a.json", "c.json"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("--force") && text(&other.stderr).lines().count() == 1);
    assert_eq!(within(&folder, &["compare", "a.json", "c.json", "--force"]).status.code(), Some(1));
    document["schema"] = 1.into();
    fs::write(folder.join("d.json"), document.to_string()).unwrap();
    let old = within(&folder, &["compare", "a.json", "d.json"]);
    assert_eq!(old.status.code(), Some(2));
    assert!(text(&old.stderr).contains("d.json") && text(&old.stderr).contains("schema is 1"));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_report_is_one_page_with_the_results() {
    let folder = folder();
    measured(&folder, "a.json");
    let output = within(&folder, &["report", "a.json", "--out", "pages/report.html"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "report: pages/report.html\n");
    let page = fs::read_to_string(folder.join("pages/report.html")).unwrap();
    assert!(page.to_lowercase().starts_with("<!doctype html>") && page.contains("copy"));
    let missing = within(&folder, &["report", "missing.json"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("missing.json"));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn kernels_are_listed_without_measuring() {
    let list = run(&["bench", "--list", "--device", "cpu"]);
    assert_eq!(list.code(), Some(0), "{}", list.stderr());
    for word in ["axpy", "reduce_argmax", "types f32, f64", "block = 64, 256", "items = 1, 2, 4, 8"] {
        assert!(list.stdout().contains(word), "{word}: {}", list.stdout());
    }
}

#[test]
fn wrong_use_of_commands_exits_with_2() {
    for (args, words) in [
        (&["tune", "copy", "--strategy", "random"][..], &["--strategy"][..]),
        (&["tune", "copy", "--trials", "0"], &["--trials", "0 is not in"]),
        (&["tune"], &["KERNEL", "--help"]),
        (&["compare", "a.json"], &["NEW", "--help"]),
        (&["compare", "a.json", "b.json", "--threshold", "x"], &["--threshold", "0.5%"]),
        (&["bench", "--list", "--quick"], &["--list", "--quick"]),
        (&["report"], &["FILE", "--help"]),
    ] {
        let measures = args.len() > 1 && args[0] != "compare";
        let device: &[&str] = if measures { &["--device", "cpu"] } else { &[] };
        let run = run(&[args, device].concat());
        let errors = run.stderr();
        assert_eq!((run.code(), run.stdout().as_str()), (Some(2), ""), "{args:?}: {errors}");
        assert!(errors.starts_with("warpsmith: ") && errors.lines().count() == 1, "{args:?}: {errors}");
        for word in words {
            assert!(errors.contains(word), "{args:?}: {word:?} is not in {errors}");
        }
    }
}

/// Waits until `ready`, or fails after a generous time limit.
fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < Duration::from_secs(120), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends Ctrl-C and returns the output of the command.
fn interrupted(child: Child) -> Output {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    child.wait_with_output().unwrap()
}

fn start(folder: &Path, args: &[&str]) -> Child {
    command(folder, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn ctrl_c_keeps_and_prints_what_was_measured() {
    // Hundreds of trials of a few hundred milliseconds each: far from done when it is stopped.
    let args = ["--device", "cpu", "--sizes", "1024,[65536:66536:2]", "--samples", "200", "--no-probes"];
    for before in [
        &["bench", "copy", "--json", "--out", "results/b.json"][..],
        &["tune", "copy", "--trials", "2", "--json", "--out", "results/t.json"],
    ] {
        let folder = folder();
        let child = start(&folder, &[before, &args[..]].concat());
        wait_until("the start", || folder.join("results").exists());
        let output = interrupted(child);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{errors}");
        assert!(errors.contains("ended early") && errors.lines().count() == 1, "{errors}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["run"]["interrupted"], true);
        let file = fs::read_to_string(folder.join(before[before.len() - 1])).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&file).unwrap(), document);
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn names_in_files_control_no_terminal() {
    const EVIL: &str = "x\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\r\n";
    let folder = folder();
    let mut document = measured(&folder, "a.json");
    document["device"]["name"] = format!("gpu{EVIL}").into();
    for record in document["results"].as_array_mut().unwrap() {
        record["kernel"] = format!("copy{EVIL}").into();
        record["dtype"] = EVIL.into();
    }
    fs::write(folder.join("evil.json"), document.to_string()).unwrap();
    document["results"][0]["kernel"] = EVIL.into();
    document["results"][0]["timing"]["samples_us"][0] = Value::from(-1.0);
    fs::write(folder.join("wrong.json"), document.to_string()).unwrap();
    for (args, code) in [
        (&["compare", "evil.json", "evil.json"][..], 0),
        (&["compare", "evil.json", "evil.json", "--json"], 0),
        (&["compare", "evil.json", "a.json"], 2),
        (&["compare", "evil.json", "a.json", "--force"], 2),
        (&["report", "wrong.json"], 2),
        (&["bench", EVIL], 2),
    ] {
        let output = within(&folder, args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        let shown = text(&output.stdout) + &text(&output.stderr);
        let controls = |c: char| (c != '\n' && c.is_control()) || c == '\u{202e}';
        assert!(!shown.is_empty() && !shown.contains(controls), "{args:?}: {shown:?}");
    }
    fs::remove_dir_all(folder).unwrap();
}
