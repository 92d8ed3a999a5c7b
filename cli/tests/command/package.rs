//! `warpsmith kernels -p` and `warpsmith doctor -p`: the kernels of a user's package.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::shared::{Run, command, folder};

/// Writes the manifest of a package whose build script makes images, if `builds`.
fn package(folder: &Path, name: &str, builds: bool) {
    let builder = if builds { "[build-dependencies]\nwarpsmith-builder = \"0.1\"\n" } else { "" };
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("src/lib.rs"), "").unwrap();
    let manifest = format!("[package]\nname = {name:?}\nversion = \"0.1.0\"\nedition = \"2024\"\n{builder}");
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
}

/// Returns the report of an image, as the builder writes it.
fn report(host: &Path, image: &str, kernels: &[Value]) -> Value {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(1);
    let host = host.canonicalize().unwrap();
    json!({
        "schema": 1,
        "package": image,
        "version": "0.1.0",
        "kernel_folder": host.join(image),
        "host_folder": host,
        "is_release": true,
        "started": started.as_nanos() as u64,
        "sources": [host.join("src/lib.rs")],
        "reason": null,
        "kernels": kernels,
    })
}

fn kernel(symbol: &str, registers: u32, archs: &[u32]) -> Value {
    let on = |arch: &u32| {
        json!({
            "arch": format!("sm_{arch}"), "capability": arch, "registers": registers, "shared_bytes": 1024,
            "stack_bytes": 0, "spill_bytes": 0,
        })
    };
    let consts = symbol.contains("__").then_some("ITEMS");
    json!({
        "symbol": symbol, "package": "heat-kernels", "consts": consts.as_slice(), "part": "heat_kernels", "stack": 0, "requested_stack": 0,
        "max_block": 256, "block": null, "cluster": null, "min_arch": 0, "is_arch_specific": false,
        "dynamic_shared": [], "resources": archs.iter().map(on).collect::<Vec<_>>(), "panics": [],
    })
}

fn save(target: &Path, name: &str, report: &Value) -> PathBuf {
    let reports = target.join("gpu/reports");
    fs::create_dir_all(&reports).unwrap();
    let file = reports.join(format!("{name}.json"));
    fs::write(&file, report.to_string()).unwrap();
    file
}

fn run_in(place: &Path, args: &[&str]) -> Run {
    let output = command(place, args).env_remove("CARGO_TARGET_DIR").output().unwrap();
    // This test uses its own folder, because the run removes its folder at the end.
    Run { folder: folder(), output }
}

/// Returns the message of a command that must reject its input.
fn refused(place: &Path, args: &[&str]) -> String {
    let run = run_in(place, args);
    let text = run.stderr();
    assert_eq!((run.code(), run.stdout().as_str()), (Some(2), ""), "{args:?}: {text}");
    assert!(text.starts_with("warpsmith: ") && text.lines().count() == 1, "{args:?}: {text}");
    text
}

/// Returns a package with a report of a kernel with instances, of one with all findings, and of one with neither.
fn heat() -> PathBuf {
    let place = folder();
    package(&place, "heat", true);
    let mut worst = kernel("worst", 255, &[80, 90]);
    worst["resources"][1]["spill_bytes"] = json!(96);
    worst["resources"][1]["stack_bytes"] = json!(48);
    worst["block"] = json!([16, 8, 1]);
    worst["stack"] = json!(null);
    worst["dynamic_shared"] = json!([4]);
    worst["panics"] = json!([{
        "file": "kernels/src/lib.rs", "line": 7, "column": 5, "what": "index out of bounds",
        "calls": [{"file": "kernels/src/lib.rs", "line": 20, "column": 9}],
    }]);
    let kernels = [
        kernel("axpy__f32_4", 32, &[80, 90]),
        kernel("axpy__f32_8", 64, &[80, 90]),
        kernel("saxpy", 16, &[80, 90]),
        worst,
    ];
    save(&place.join("target"), "heat_kernels-1", &report(&place, "heat-kernels", &kernels));
    place
}

/// Returns the cells of the line of `kernel`.
fn cells(text: &str, kernel: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(kernel));
    line.unwrap_or_else(|| panic!("{kernel}: {text}")).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_kernels_of_a_package_are_shown_like_those_of_the_command() {
    let place = heat();
    let text = run_in(&place, &["kernels", "-p", "."]).stdout();
    assert!(
        text.starts_with("heat-kernels 0.1.0: sm_80, sm_90; 4 kernel instances; resource usage on sm_90"),
        "{text}"
    );
    assert!(!text.contains("Stale"), "{text}");
    let own = run_in(&place, &["kernels"]).stdout();
    let header = |text: &str| cells(text, "kernel");
    assert_eq!(header(&text), header(&own));
    // Two instances on one line; at 64 registers, half of the threads fit.
    let axpy = ["axpy", "f32", "2", "items=4|8", "256", "32-64", "1024", "0", "0", "0", "50-100", "%"];
    assert_eq!(cells(&text, "axpy"), axpy);
    // Blocks of 128 threads with 255 registers: two of them fit, four warps each.
    assert_eq!(cells(&text, "worst")[1..], ["1", "16x8", "255", "1024+", "48", "96", "1", "13", "%"]);
    for words in [
        "  worst: stack 48, spills 96\n",
        "  worst: declares none: #[kernel(stack = BYTES)]\n",
        "  worst: elements of 4 bytes\n",
        "    kernels/src/lib.rs:7:5: index out of bounds\n      called at kernels/src/lib.rs:20:9\n",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }

    let text = run_in(&place, &["kernels", "--package=.", "axpy", "--arch", "80", "--all", "--block", "128"])
        .stdout();
    assert!(text.contains("resource usage on sm_80, occupancy at 128 threads"), "{text}");
    assert_eq!(cells(&text, "axpy__f32_8")[2..5], ["1", "items=8", "256"]);
    assert!(!text.contains("saxpy"), "{text}");

    let document = run_in(&place, &["kernels", "-p", ".", "--json"]).json();
    let image = &document["images"][0];
    assert_eq!((&image["arch"], &image["changed_since"]), (&json!("sm_90"), &Value::Null));
    assert_eq!(image["kernels"][3]["spills"], 96);
    assert_eq!(image["kernels"][3]["stack_is_known"], false);
    assert_eq!(document["without_code"], json!([]));

    let doctor: Value =
        serde_json::from_str(&run_in(&place, &["doctor", "-p", ".", "--json"]).stdout()).unwrap();
    let checks = doctor["checks"].as_array().unwrap();
    let of_image = checks.iter().find(|check| check["what"] == "GPU image of heat-kernels 0.1.0").unwrap();
    assert_eq!(
        (&of_image["status"], &of_image["detail"]),
        (&json!("ok"), &json!("sm_80, sm_90; 4 kernel instances"))
    );
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn a_build_before_the_last_change_is_called_stale() {
    let place = heat();
    let source = fs::File::options().append(true).open(place.join("src/lib.rs")).unwrap();
    source.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
    let text = run_in(&place, &["kernels", "-p", "."]).stdout();
    let stale = text.lines().find(|line| line.starts_with("Stale: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(stale.contains("src/lib.rs changed") && stale.contains("`cargo build --release`"), "{stale}");
    let document = run_in(&place, &["kernels", "-p", ".", "--json"]).json();
    assert!(document["images"][0]["changed_since"].as_str().unwrap().ends_with("src/lib.rs"), "{document}");
    let doctor = run_in(&place, &["doctor", "-p", "."]).stdout();
    assert!(doctor.contains("src/lib.rs changed") && doctor.contains("-> cargo build --release"), "{doctor}");
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn all_images_of_a_package_are_shown_and_the_newest_build_of_each() {
    let place = heat();
    let target = place.join("target");
    let more = report(&place, "more-kernels", &[kernel("more", 8, &[80])]);
    save(&target, "more_kernels-1", &more);
    let mut older = report(&place, "heat-kernels", &[kernel("old", 8, &[75])]);
    older["started"] = json!(1);
    save(&target, "heat_kernels-2", &older);
    // A later build without code, by an editor for example, hides nothing.
    let mut without = report(&place, "heat-kernels", &[]);
    without["started"] = json!(u64::MAX);
    without["reason"] = json!("the image was skipped");
    save(&target, "heat_kernels-3", &without);
    let mut nothing = report(&place, "other-kernels", &[]);
    nothing["reason"] = json!("the image was skipped");
    save(&target, "other_kernels-1", &nothing);

    let text = run_in(&place, &["kernels", "-p", "."]).stdout();
    assert!(
        text.contains("\nmore-kernels 0.1.0: sm_80; 1 kernel instance; resource usage on sm_80"),
        "{text}"
    );
    assert!(text.contains("\nother-kernels 0.1.0: no GPU code: the image was skipped\n"), "{text}");
    assert_eq!((cells(&text, "saxpy").len(), cells(&text, "more").len()), (10, 10));
    assert!(!text.contains("old"), "{text}");
    // The build for another architecture has its figures.
    let text = run_in(&place, &["kernels", "-p", ".", "old", "--arch", "sm_75"]).stdout();
    assert!(text.starts_with("heat-kernels 0.1.0: sm_75; ") && cells(&text, "old")[3] == "8", "{text}");
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn input_that_cannot_be_used_is_refused_with_advice() {
    let place = folder();
    for (folder, words) in [
        ("nowhere", &["nowhere is not a folder with a Cargo.toml", "`-p .`"][..]),
        ("empty", &["empty is not a folder with a Cargo.toml"]),
        ("broken", &["cargo cannot read the package in broken"]),
        ("plain", &["`plain` has no kernels", "warpsmith new"]),
        ("unbuilt", &["no build of `unbuilt`", "run `cargo build` in unbuilt"]),
        ("workspace", &["workspace without a package", "-p ", "workspace/member"]),
        ("hosts", &["whose packages have no kernels"]),
    ] {
        let at = place.join(folder);
        match folder {
            "empty" => fs::create_dir(&at).unwrap(),
            "broken" => {
                fs::create_dir(&at).unwrap();
                fs::write(at.join("Cargo.toml"), "[package\n").unwrap();
            }
            "plain" | "unbuilt" => package(&at, folder, folder == "unbuilt"),
            "workspace" | "hosts" => {
                package(&at.join("member"), "member", folder == "workspace");
                fs::write(at.join("Cargo.toml"), "[workspace]\nmembers = [\"member\"]\nresolver = \"3\"\n")
                    .unwrap();
            }
            _ => {}
        }
        let text = refused(&place, &["kernels", "-p", folder]);
        assert!(words.iter().all(|words| text.contains(words)), "{folder}: {text}");
    }
    fs::remove_dir_all(place).unwrap();

    let place = heat();
    let text = refused(&place, &["kernels", "-p", ".", "saxpi"]);
    assert!(text.contains("unknown kernel \"saxpi\"") && text.contains("saxpy"), "{text}");
    let text = refused(&place, &["kernels", "-p", ".", "--arch", "sm_75"]);
    assert!(
        text.contains("resource usage only for sm_80, sm_90;")
            && text.contains("WARPSMITH_GPU_ARCHS=all cargo build"),
        "{text}"
    );

    let target = place.join("target");
    let mut without = report(&place, "heat-kernels", &[]);
    without["reason"] = json!("no compiler for GPU code was found; install one with: warpsmith setup");
    save(&target, "heat_kernels-1", &without);
    let text = refused(&place, &["kernels", "-p", "."]);
    assert!(
        text.contains("heat-kernels 0.1.0: no GPU code: no compiler") && text.contains("warpsmith setup"),
        "{text}"
    );

    for (report, words) in
        [("{\"schema\": 1,", "is damaged"), ("{\"schema\": 7}", "has format 7"), ("", "is damaged")]
    {
        let file = save(&target, "heat_kernels-1", &Value::Null);
        fs::write(&file, report).unwrap();
        let text = refused(&place, &["kernels", "-p", "."]);
        assert!(
            text.contains("heat_kernels-1.json") && text.contains(words) && text.contains("build again"),
            "{text}"
        );
    }
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn bench_and_tune_name_the_benchmark_of_the_package() {
    let place = folder();
    for arguments in
        [&["bench", "-p", "."][..], &["tune", "saxpy", "--package", "."], &["bench", "--package=."]]
    {
        let text = refused(&place, arguments);
        let command = format!("cargo bench --bench tune --features tune -- {} KERNEL", arguments[0]);
        assert!(text.contains(&command), "{text}");
        let help = run_in(&place, &[arguments[0], "--help"]).stdout();
        let help: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(&command), "{help}");
    }
    fs::remove_dir_all(place).unwrap();
}
