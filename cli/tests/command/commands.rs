//! The built `warpsmith` command, run on the emulated device: `bench`, `devices`, `doctor` and `kernels`.

use std::process::Stdio;

use serde_json::Value;

use super::shared::{Run, command, folder, run};

/// Runs a command line without spaces in its arguments.
fn line(text: &str) -> Run {
    run(&text.split(' ').collect::<Vec<_>>())
}

#[test]
fn bench_measures_and_checks_three_kernels() {
    let run = line("bench copy axpy reduce_sum --device cpu --sizes 2^10,1001 --quick --json");
    let document = run.json();
    assert_eq!(document["schema"], 2);
    assert_eq!(document["device"]["id"], "cpu:0");
    assert_eq!(document["device"]["emulated"], true);
    let results = document["results"].as_array().unwrap();
    for kernel in ["copy", "axpy", "reduce_sum"] {
        for n in [1024, 1001] {
            let here: Vec<&Value> = results.iter().filter(|r| r["kernel"] == kernel && r["n"] == n).collect();
            assert!(here.len() > 4, "{kernel} {n}");
            let mut configs: Vec<String> = here.iter().map(|r| r["configuration"].to_string()).collect();
            configs.sort();
            configs.dedup();
            assert_eq!(configs.len(), here.len(), "{kernel} {n}: a configuration was measured twice");
        }
    }
    for result in results {
        assert_eq!(result["outcome"], "correct", "{result}");
        assert!(result["max_error"].as_f64().unwrap() < 1e-5, "{result}");
        assert!(result["probe_us"].as_f64().unwrap() > 0.0, "{result}");
        let samples = result["timing"]["samples_us"].as_array().unwrap();
        assert!(samples.len() >= 3 && samples.iter().all(|us| us.as_f64().unwrap() > 0.0), "{result}");
        assert_eq!(result["timing"]["mode"], "cold");
        let reads_and_writes = match result["kernel"].as_str().unwrap() {
            "copy" => 2,
            "axpy" => 3,
            _ => 1,
        };
        assert_eq!(
            result["bytes"].as_u64(),
            Some(result["n"].as_u64().unwrap() * 4 * reads_and_writes),
            "{result}"
        );
        for key in ["block", "items", "vector"] {
            assert!(result["configuration"][key].as_u64().unwrap() > 0, "{result}");
        }
    }
    let probes: Vec<&str> =
        document["probes"].as_array().unwrap().iter().map(|probe| probe["name"].as_str().unwrap()).collect();
    assert_eq!(probes, ["copy", "read"], "copy and axpy write, reduce_sum reads");
    assert_eq!(document["run"]["command"], "bench");
    assert_eq!(document["run"]["interrupted"], false);
    assert_eq!(run.cached_results(), document);
}

#[test]
fn every_kernel_is_correct_for_every_type() {
    const FLOATS: &str = "f32,f64,f16,bf16";
    const ALL: &str = "f32,f64,f16,bf16,i32,u32,i64,u64";
    for (kernels, types, items) in [
        ("axpy fma relu gelu sigmoid exp", FLOATS, 1),
        ("copy fill add mul", ALL, 1),
        ("uniform normal", FLOATS, 4),
        ("sum prod min max argmin argmax", ALL, 4),
    ] {
        let options = format!(
            "--device cpu --sizes 1,33,4099 --axis block=64 --axis items={items} --quick --no-probes --json"
        );
        let line = format!("bench {kernels} --dtypes {types} {options}");
        let run = self::line(&line);
        let results = run.json()["results"].as_array().unwrap().clone();
        let minimum = kernels.split(' ').count() * types.split(',').count() * 3;
        assert!(results.len() >= minimum, "{kernels}: {}", results.len());
        assert!(results.iter().all(|r| r["outcome"] == "correct"), "{kernels}: {results:#?}");
    }
}

#[test]
fn axes_select_configurations() {
    let run = line(
        "bench axpy --device cpu:0 --sizes 4K --axis block=32,96 -a grid=waves:1,blocks:3 -a items=2 --quick --json",
    );
    let document = run.json();
    let results = document["results"].as_array().unwrap();
    // The cross product, and the default configuration.
    assert_eq!(results.len(), 2 * 2 + 1);
    let mut grids: Vec<&str> =
        results.iter().skip(1).map(|r| r["configuration"]["grid"].as_str().unwrap()).collect();
    grids.sort();
    grids.dedup();
    assert_eq!(grids, ["blocks:3", "waves:1"]);
    assert!(results.iter().all(|r| r["n"] == 4096));
}

#[test]
fn the_table_names_best_default_and_file() {
    let run = line("bench copy --device cpu --sizes 2^12 --quick --out deep/er/results.json");
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    let text = run.stdout();
    for word in
        ["cpu:0", "kernel", "copy", "f32", "2^12", "best us", "default us", "correct", "deep/er/results.json"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "no colors in a pipe: {text:?}");
    assert_eq!(run.stderr(), "", "no progress in a pipe");
    let file = std::fs::read_to_string(run.folder.join("deep/er/results.json")).unwrap();
    let document: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(document["results"][0]["kernel"], "copy");
    let every = line("bench copy --device cpu --sizes 2^12 --quick --all").stdout();
    for word in ["p10", "p90", "p99", "95 % interval", "mode", "probe", "samples", "max error", "ok", "best"]
    {
        assert!(every.contains(word), "{word}: {every}");
    }
}

#[test]
fn wrong_use_exits_with_2() {
    let many = (1u64 << 62).to_string();
    for (args, words) in [
        (&["bench", "reduce_sun"][..], &["unknown kernel \"reduce_sun\"", "did you mean reduce_sum"][..]),
        (&["bench", "axpy", "--dtypes", "u32"], &["unknown type \"u32\"", "axpy"]),
        (&["bench", "copy", "--sizes", "-1"], &["\"-1\"", "negative"]),
        (&["bench", "copy", "--sizes", "2^10,,2^12"], &["\"\"", "missing"]),
        (&["bench", "copy", "--sizes", "2^45"], &["copy f32", "2^45", "device memory", "smaller size"]),
        (&["bench", "copy", "--sizes", &many], &["device memory", "smaller size"]),
        (&["bench", "copy", "--axis", "items=3"], &["items", "3", "1, 2, 4, 8"]),
        // On the emulated device, narrow accesses are not in the search space.
        (
            &["bench", "copy", "--axis", "vector=4"],
            &["none of the 8 configurations of copy", "accesses of 16 bytes", "--axis"],
        ),
        (&["bench", "copy", "--mode", "warm"], &["warm", "cold", "hot", "graph"]),
        (&["bench", "copy", "--device", "gpu"], &["gpu", "cuda:N", "cpu"]),
        (&["bench", "copy", "--device", "cpu:77"], &["cpu:77"]),
        (&["bench", "copy", "--device", "cuda:77"], &["CUDA"]),
        (&["bnch"], &["bnch", "--help"]),
        (&["kernels", "nope"], &["unknown kernel \"nope\""]),
        (&["kernels", "--arch", "sm_7"], &["sm_7", "resource usage"]),
        (&["kernels", "--block", "0"], &["block 0"]),
    ] {
        let mut args = args.to_vec();
        if args.first() == Some(&"bench") && !args.contains(&"--device") {
            args.extend(["--device", "cpu"]);
        }
        let run = run(&args);
        let (code, text) = (run.code(), run.stderr());
        assert_eq!(code, Some(2), "{args:?}: {text}");
        assert_eq!(run.stdout(), "", "{args:?}");
        assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
        assert!(text.starts_with("warpsmith: "), "{args:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{args:?}: {word:?} is not in {text}");
        }
    }
}

#[test]
fn unwritable_results_are_found_before_measuring() {
    let folder = folder();
    std::fs::write(folder.join("file"), "kept").unwrap();
    let args = ["bench", "copy", "--device", "cpu", "--sizes", "2^10", "--quick", "--out"];
    for bad in ["file/results.json", "."] {
        let output = command(&folder, &[&args[..], &[bad]].concat()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(
            text.contains("cannot write") && text.contains("--out") && text.lines().count() == 1,
            "{text}"
        );
    }
    assert_eq!(std::fs::read_to_string(folder.join("file")).unwrap(), "kept");
    // Without --out the results are still printed.
    let mut blocked = command(&folder, &args[..7]);
    let output = blocked.env(crate::shared::CACHES, folder.join("file")).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no results file"));
    assert!(String::from_utf8(output.stdout).unwrap().contains("copy"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn devices_lists_the_emulated_device() {
    let document = run(&["devices", "--json"]).json();
    let devices = document["devices"].as_array().unwrap();
    let emulated = devices.iter().find(|d| d["id"] == "cpu:0").unwrap();
    assert_eq!(emulated["emulated"], true);
    assert!(emulated["memory"].as_u64().unwrap() > 0);
    assert!(emulated["memory_gbps"].is_null());
    let has_cuda = devices.iter().any(|d| d["id"] == "cuda:0");
    assert_eq!(document["no_cuda_because"].is_null(), has_cuda, "{document}");
    let text = run(&["devices"]).stdout();
    assert!(text.contains("cpu:0") && text.contains("capability"), "{text}");
    assert_eq!(text.contains("No CUDA device:"), !has_cuda, "{text}");
}

#[test]
fn devices_shows_the_links_between_them() {
    let folder = folder();
    let run = |args: &[&str]| {
        let output = command(&folder, args).env("WARPSMITH_EMULATED_DEVICES", "2").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let document: Value = serde_json::from_str(&run(&["devices", "--json"])).unwrap();
    let links = document["links"].as_array().unwrap();
    let link = links.iter().find(|link| link["from"] == "cpu:1" && link["to"] == "cpu:0").unwrap();
    assert_eq!((&link["peer_access"], &link["nvlinks"]), (&Value::Bool(true), &Value::from(0)));
    assert_eq!(link["mapped_by_ranks"], cfg!(target_os = "linux"));
    let text = run(&["devices"]);
    assert!(text.contains("emulated") && text.contains("directly"), "{text}");
    assert_eq!(text.contains("map its memory"), cfg!(target_os = "linux"), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn doctor_reports_and_its_exit_code_agrees() {
    let run = run(&["doctor", "--json"]);
    let document: Value = serde_json::from_str(&run.stdout()).unwrap();
    let checks = document["checks"].as_array().unwrap();
    let status = |what: &str| checks.iter().find(|c| c["what"] == what).unwrap()["status"].as_str().unwrap();
    assert_eq!(status("device cpu:0"), "ok");
    for what in ["CUDA driver", "GPU image", "device toolchain", "ptxas", "libdevice"] {
        assert!(["ok", "note", "broken"].contains(&status(what)), "{what}");
    }
    let broken = checks.iter().any(|c| c["status"] == "broken");
    assert_eq!(document["ok"], !broken);
    assert_eq!(run.code(), Some(i32::from(broken)));
    for check in checks.iter().filter(|c| c["status"] == "broken" && c["what"] == "GPU image") {
        assert!(!check["fix"].as_array().unwrap().is_empty(), "{check}");
    }
    let text = self::run(&["doctor"]).stdout();
    assert!(text.contains("device cpu:0") && text.contains("correct results"), "{text}");
}

#[test]
fn doctor_suggests_no_toolchain_that_the_environment_disables() {
    let folder = folder();
    for (archs, is_suggested) in [("all", true), ("none", false)] {
        let mut doctor = command(&folder, &["doctor"]);
        doctor.env("WARPSMITH_GPU_ARCHS", archs).env("WARPSMITH_DEVICE_RUSTC", folder.join("no-such-rustc"));
        let said = String::from_utf8(doctor.output().unwrap().stdout).unwrap();
        assert!(said.contains("no-such-rustc"), "{said}");
        assert_eq!(said.contains("-> warpsmith setup"), is_suggested, "{archs}: {said}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn kernels_are_grouped_or_listed_by_instance() {
    let document = run(&["kernels", "--json"]).json();
    let kernels = document["kernels"].as_array().unwrap();
    let axpy: Vec<&Value> = kernels.iter().filter(|k| k["kernel"] == "axpy").collect();
    assert_eq!(axpy.len(), 4 * 4 * 2);
    assert!(axpy.iter().any(|k| k["symbol"] == "axpy__f32_4_16" && k["consts"]["ITEMS"] == 4));
    if document["no_image_because"].is_null() && !document["arch"].is_null() {
        let figures = |k: &&&Value| k["registers"].as_u64().is_some_and(|r| r > 0);
        assert_eq!(axpy.iter().filter(figures).count(), axpy.len());
    }
    let has_image = document["no_image_because"].is_null();
    assert!(axpy.iter().all(|k| k["panics"].is_array() == has_image), "the panics are known with an image");
    let grouped = run(&["kernels", "axpy"]).stdout();
    assert_eq!(grouped.lines().filter(|l| l.starts_with("axpy")).count(), 4, "{grouped}");
    assert!(grouped.contains("items=1|2|4|8 vector=4|16"), "{grouped}");
    let every = run(&["kernels", "axpy", "--all"]).stdout();
    assert_eq!(every.lines().filter(|l| l.starts_with("axpy__")).count(), 32, "{every}");
}

#[test]
fn help_goes_to_standard_output() {
    for args in [&["--help"][..], &["bench", "--help"], &["kernels", "-h"], &["--version"]] {
        let run = run(args);
        assert_eq!((run.code(), run.stderr().as_str()), (Some(0), ""), "{args:?}");
        assert!(run.stdout().contains("warpsmith"), "{args:?}");
    }
    let help = run(&["bench", "--help"]).stdout();
    for word in ["--sizes", "--dtypes", "--axis", "--mode", "--device", "--out", "Examples"] {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn a_closed_pipe_ends_nothing_with_a_panic() {
    let folder = folder();
    for args in [&["kernels", "--all"][..], &["devices"], &["--help"]] {
        let mut child = command(&folder, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!text.contains("panicked"), "{args:?}: {text}");
        assert_eq!(output.status.code(), Some(0), "{args:?}: {text}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
