//! `warpsmith new` and `warpsmith setup`.

use std::fs;
use std::path::{Path, PathBuf};

use super::shared::{command, folder, run};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Returns all files below `folder`, with their relative paths.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let place = path.strip_prefix(folder).unwrap().to_path_buf();
                found.push((place, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn the_example_is_what_new_writes() {
    let repository = repository();
    let example = repository.join("examples/own-kernels");
    let run = run(&["new", "own-kernels", "--path", repository.to_str().unwrap()]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    for (place, text) in files(&run.folder.join("own-kernels")) {
        // The command was given an absolute path; the example uses a relative one.
        let up = if place.starts_with("kernels") { "../../.." } else { "../.." };
        let text = text.replace(repository.to_str().unwrap(), up);
        let there = fs::read_to_string(example.join(&place)).unwrap_or_default();
        assert_eq!(
            there,
            text,
            "{} differs: remove examples/own-kernels and run `warpsmith new examples/own-kernels --path .`",
            place.display()
        );
    }
}

#[test]
fn a_library_has_kernels_that_can_be_published() {
    let run = run(&["new", "heat", "--lib", "--git", "https://example.org/warpsmith"]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    let files = files(&run.folder.join("heat"));
    let text = |place: &str| &files.iter().find(|(file, _)| file == Path::new(place)).unwrap().1;
    assert!(text("kernels/Cargo.toml").contains("name = \"heat-kernels\""));
    assert!(
        text("Cargo.toml")
            .contains("heat-kernels = { path = \"kernels\", version = \"0.1.0\", default-features = false }")
    );
    assert!(text("Cargo.toml").contains("warpsmith-builder = { git = \"https://example.org/warpsmith\" }"));
    assert!(text("src/lib.rs").contains("include_image!(\"heat_kernels\")"));
    assert!(files.iter().all(|(file, text)| file != Path::new("src/main.rs") && !text.contains("{{")));
}

#[test]
fn every_project_has_kernels_of_a_name_of_its_own() {
    for arguments in [&["new", "heat"][..], &["new", "heat", "--lib"]] {
        let run = run(arguments);
        assert_eq!(run.code(), Some(0), "{}", run.stderr());
        let files = files(&run.folder.join("heat"));
        let has = |place: &str, words: &str| {
            let (_, text) = files.iter().find(|(file, _)| file == Path::new(place)).unwrap();
            assert!(text.contains(words), "{place}: {text}");
        };
        has("kernels/Cargo.toml", "name = \"heat-kernels\"");
        has("Cargo.toml", "heat-kernels = { path = \"kernels\"");
        has("Cargo.toml", "[profile.dev.package.heat-kernels]");
        has("src/lib.rs", "include_image!(\"heat_kernels\")");
        has("benches/tune.rs", "use heat_kernels::");
        has("README.md", "`heat-kernels`");
        // The library and the program have unit tests, which do not accept the arguments.
        has("README.md", "cargo bench --bench tune --features tune -- bench saxpy");
    }
}

#[test]
fn new_refuses_without_leaving_anything() {
    let folder = folder();
    fs::create_dir(folder.join("there")).unwrap();
    fs::create_dir(folder.join("locked")).unwrap();
    let before = fs::read_dir(&folder).unwrap().count();
    for (args, words) in [
        (&["new", "there"][..], "already exists"),
        (&["new", "2d"], "does not start with a letter"),
        (&["new", "no/such/folder"], "create that folder first"),
        (&["new", "heat", "--path", "there"], "is not a copy of Warpsmith's repository"),
    ] {
        let output = command(&folder, args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), before);

    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let locked = folder.join("locked");
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
        // Root can write everywhere.
        if fs::write(locked.join("probe"), "").is_err() {
            let output = command(&folder, &["new", "locked/heat"]).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains("choose a writable folder"));
        }
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn setup_names_a_toolchain_that_was_chosen_and_does_not_do() {
    let folder = folder();
    let mut setup = command(&folder, &["setup"]);
    let output = setup.env("WARPSMITH_DEVICE_RUSTC", folder.join("no-such-rustc")).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("WARPSMITH_DEVICE_RUSTC is set") && said.contains("no such file"), "{said}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn relative_paths_of_tools_are_refused() {
    let folder = folder();
    for variable in
        ["WARPSMITH_DATA_DIR", "WARPSMITH_DEVICE_RUSTC", "WARPSMITH_LLVM_BIN", "WARPSMITH_CUDA_TOOLS"]
    {
        let output = command(&folder, &["setup"]).env(variable, "tools/bin").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains(variable) && said.contains("relative path \"tools/bin\""), "{said}");
        let doctor = command(&folder, &["doctor"]).env(variable, "tools/bin").output().unwrap();
        let said = String::from_utf8(doctor.stdout).unwrap();
        assert!(said.contains(&format!("unset {variable}")), "{said}");
    }
    assert!(!folder.join("tools").exists());
    fs::remove_dir_all(folder).unwrap();
}
