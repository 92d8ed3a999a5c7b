//! Tests of tools attached by NVTX, with a library that the tests compile and with unusable libraries.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::alone::{command, only_alone, this_test};
use warpsmith_runtime::ranges::{mark, nvtx, range};

/// Returns the library of the tool, which is compiled once. A test in its own process uses the library with which it
/// was started.
fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    if let Some(library) = std::env::var_os("NVTX_INJECTION64_PATH") {
        return library.into();
    }
    LIBRARY
        .get_or_init(|| {
            let folder = folder().join(std::process::id().to_string());
            std::fs::create_dir_all(&folder).unwrap();
            let library = folder.join("libtool.so");
            let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ranges/tool_library.rs");
            let mut command = Command::new(rustc);
            command.args(["--edition=2024", "--crate-type=cdylib", "-o"]).arg(&library).arg(source);
            assert!(command.status().expect("rustc runs").success());
            library
        })
        .clone()
}

/// Returns a path for the tool's file, which does not exist yet.
fn log_of(name: &str) -> PathBuf {
    let log = folder().join(format!("{}-{name}.log", std::process::id()));
    let _ = std::fs::remove_file(&log);
    log
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("ranges")
}

/// Returns the text that the tool has written in this process. The text is empty if the tool was not attached.
fn written() -> Vec<String> {
    let log = std::env::var("TOOL_LOG").unwrap();
    std::fs::read_to_string(log).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn tools_get_ranges_with_all_they_have() {
    let (library, log) = (library(), log_of("all"));
    only_alone!("NVTX_INJECTION64_PATH" => library, "TOOL_LOG" => log);
    assert_eq!(nvtx::tool(), None, "it is loaded with the first range");
    for step in 0..2 {
        let _step = range!("step {step}", color = 0x00ff00, category = "training", payload = step);
        drop(range!("forward", payload = 0.5));
    }
    mark!("marked", category = "other");
    let id = nvtx::range_start("upload");
    nvtx::range_end(id);
    nvtx::name_thread("renamed");
    assert!(nvtx::tool().is_some());
    let all = written();
    let (threads, all): (Vec<_>, Vec<_>) = all.into_iter().partition(|line| line.starts_with("thread "));
    assert_eq!(threads.last().unwrap(), "thread renamed");
    let expected = [
        "domain warpsmith",
        "category 1 training",
        "push text step 0 category 1 color ff00ff00 payload 0",
        "string 1 forward",
        "push registered 1 category 0 color none payload 0.5",
        "pop",
        "pop",
        "push text step 1 category 1 color ff00ff00 payload 1",
        "push registered 1 category 0 color none payload 0.5",
        "pop",
        "pop",
        "string 2 marked",
        "category 2 other",
        "mark registered 2 category 2 color none payload none",
        "string 3 upload",
        "start registered 3 category 0 color none payload none",
        "end 77",
    ];
    assert_eq!(all, expected);
}

#[test]
fn tools_stay_balanced_when_order_is_wrong() {
    let (library, log) = (library(), log_of("order"));
    only_alone!("NVTX_INJECTION64_PATH" => library, "TOOL_LOG" => log);
    let outer = range!("outer");
    let inner = range!("inner");
    drop(outer);
    assert_eq!(written().iter().filter(|line| *line == "pop").count(), 0, "it has a stack alone");
    drop(inner);
    assert_eq!(written().iter().filter(|line| *line == "pop").count(), 2);
}

/// Uses ranges with a library, and returns the warnings.
fn warnings_with_ranges() -> String {
    let text = crate::listening::warnings(|| {
        drop(range!("first"));
        drop(range!("second"));
    });
    assert_eq!(nvtx::tool(), None);
    assert_eq!(text.matches("NVTX ranges are not forwarded to a tool").count(), 1, "{text}");
    text
}

#[test]
fn missing_tools_are_one_warning() {
    only_alone!("NVTX_INJECTION64_PATH" => Path::new("/nowhere/libtool.so"));
    let text = warnings_with_ranges();
    assert!(text.contains("/nowhere/libtool.so") && text.contains("cannot be loaded"), "{text}");
}

/// A relative path is resolved against the directory in which the program was started.
#[test]
fn relative_paths_are_one_warning() {
    const CHILD: &str = "WARPSMITH_TEST_RELATIVE";
    if std::env::var_os(CHILD).is_some() {
        let text = warnings_with_ranges();
        assert!(text.contains("it is not an absolute path"), "{text}");
        return assert_eq!(written(), [""; 0]);
    }
    let library = library();
    for path in ["libtool.so", "./libtool.so", "../ranges/libtool.so"] {
        let mut program = command(this_test!());
        program.current_dir(library.parent().unwrap()).env("LD_LIBRARY_PATH", ".").env(CHILD, "1");
        program.env("NVTX_INJECTION64_PATH", path).env("TOOL_LOG", log_of("relative"));
        let output = program.output().unwrap();
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// A copy of this program with privileges that its user does not have: those of another user, or of another of the
/// user's groups. It is removed on drop.
#[cfg(target_os = "linux")]
struct Privileged(PathBuf);

#[cfg(target_os = "linux")]
impl Privileged {
    fn new() -> Self {
        use std::os::unix::fs::{PermissionsExt, chown};

        let copy = Self(folder().join(format!("privileged-{}", std::process::id())));
        std::fs::create_dir_all(folder()).unwrap();
        // This process must not create the copy itself, because programs that its other threads start would keep the
        // file open for writing.
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy.0).status();
        assert!(copied.unwrap().success());
        let mut groups = [0; 64];
        // SAFETY: the array has this length, and the other calls have no preconditions.
        let (count, group, is_root) =
            unsafe { (libc::getgroups(64, groups.as_mut_ptr()), libc::getegid(), libc::geteuid() == 0) };
        let other = groups[..count as usize].iter().find(|other| **other != group);
        let mode = if is_root {
            chown(&copy.0, Some(1000), None).unwrap();
            0o4755
        } else {
            chown(&copy.0, None, Some(*other.expect("a second group of this user, or root"))).unwrap();
            0o2755
        };
        std::fs::set_permissions(&copy.0, std::fs::Permissions::from_mode(mode)).unwrap();
        copy
    }
}

#[cfg(target_os = "linux")]
impl Drop for Privileged {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn programs_with_more_rights_load_no_tool() {
    const CHILD: &str = "WARPSMITH_TEST_PRIVILEGED";
    if std::env::var_os(CHILD).is_some() {
        // SAFETY: the call only reads a number that the kernel passed to the process.
        let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) != 0 };
        assert!(
            is_privileged,
            "the system gives set-user-id programs no rights here (`nosuid`, `no_new_privs`)"
        );
        let text = warnings_with_ranges();
        return assert!(text.contains("has privileges that its user does not have"), "{text}");
    }
    let (library, program) = (library(), Privileged::new());
    let output = Command::new(&program.0)
        .args(["--exact", this_test!(), "--nocapture"])
        .env(CHILD, "1")
        .env("NVTX_INJECTION64_PATH", library)
        .env("TOOL_LOG", log_of("privileged"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn warnings_that_become_marks_do_not_deadlock() {
    use tracing_subscriber::layer::SubscriberExt;
    only_alone!("NVTX_INJECTION64_PATH" => Path::new("/nowhere/libtool.so"));
    let subscriber = tracing_subscriber::registry().with(warpsmith_runtime::ranges::RangeLayer::new());
    tracing::subscriber::with_default(subscriber, || drop(range!("first")));
    assert_eq!(nvtx::tool(), None);
}

#[test]
fn libraries_without_the_symbol_are_one_warning() {
    // The library exists: it is the C library that this program uses.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.starts_with('/') && word.contains("/libc.so"));
    only_alone!("NVTX_INJECTION64_PATH" => Path::new(libc.unwrap()));
    assert!(warnings_with_ranges().contains("exports no `InitializeInjectionNvtx2`"));
}

#[test]
fn tools_whose_initializer_fails_are_one_warning() {
    let (library, log) = (library(), log_of("fails"));
    only_alone!("NVTX_INJECTION64_PATH" => library, "TOOL_LOG" => log, "TOOL_FAILS" => "1");
    assert!(warnings_with_ranges().contains("`InitializeInjectionNvtx2` failed"));
}

#[test]
fn libcupti_is_refused_until_it_is_allowed() {
    let (library, log) = (library(), log_of("cupti"));
    let cupti = library.with_file_name("libcupti.so.13");
    if library != cupti {
        std::fs::copy(&library, &cupti).unwrap();
    }
    only_alone!("NVTX_INJECTION64_PATH" => cupti, "TOOL_LOG" => log);
    assert!(!nvtx::allow_cupti(false), "it is not attached");
    assert!(warnings_with_ranges().contains("libcupti"));
    assert_eq!(written(), [""; 0]);
    assert!(!nvtx::allow_cupti(true));
    drop(range!("allowed"));
    assert!(nvtx::tool().is_some() && nvtx::allow_cupti(false), "it is attached now");
    assert!(written().iter().any(|line| line == "pop"));
}
