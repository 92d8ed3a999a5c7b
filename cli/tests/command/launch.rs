//! `warpsmith launch`, with shell scripts as programs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::shared::{Run, command, folder};

/// Runs `warpsmith launch OPTIONS sh -c SCRIPT`.
fn launch(options: &[&str], script: &str) -> Run {
    let folder = folder();
    let output = command(&folder, &["launch"]).args(options).args(["sh", "-c", script]).output().unwrap();
    Run { folder, output }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn each_process_has_its_rank() {
    let script = r#"echo "$WARPSMITH_RANK of $WARPSMITH_WORLD_SIZE, $WARPSMITH_LOCAL_RANK of $WARPSMITH_LOCAL_WORLD_SIZE""#;
    let run = launch(&["-n", "3"], script);
    assert_eq!((run.code(), run.stderr()), (Some(0), String::new()));
    assert_eq!(sorted(&run.stdout()), ["0 of 3, 0 of 3", "1 of 3, 1 of 3", "2 of 3, 2 of 3"]);
}

#[test]
fn all_have_one_store_and_one_token() {
    let run = launch(
        &["-n", "2"],
        r#"echo "$WARPSMITH_STORE $WARPSMITH_TOKEN $WARPSMITH_STORE_SERVER $WARPSMITH_RUN_ID""#,
    );
    let text = run.stdout();
    let lines = sorted(&text);
    assert_eq!(lines[0], lines[1]);
    let words: Vec<&str> = lines[0].split(' ').collect();
    assert!(
        words[0].starts_with("127.0.0.1:") && words[1].len() == 64 && words[2] == "launcher",
        "{words:?}"
    );
    let other = launch(&["-n", "1"], "echo $WARPSMITH_TOKEN");
    assert_ne!(other.stdout().trim(), words[1]);
}

#[test]
#[cfg(target_os = "linux")]
fn nccl_uses_the_loopback_interface_unless_told_otherwise() {
    let script = r#"echo "$NCCL_SOCKET_IFNAME""#;
    let launched = |set: Option<&str>| {
        let folder = folder();
        let mut command = command(&folder, &["launch"]);
        command.env_remove("NCCL_SOCKET_IFNAME").args(["-n", "1", "sh", "-c", script]);
        command.envs(set.map(|value| ("NCCL_SOCKET_IFNAME", value)));
        let output = command.output().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(launched(None), "lo\n");
    assert_eq!(launched(Some("eth1")), "eth1\n");
}

#[test]
fn lines_begin_with_their_rank() {
    let script = "echo one; echo two >&2; printf 'no end'";
    let run = launch(&["-n", "2", "--prefix", "always"], script);
    assert_eq!(run.code(), Some(0));
    assert_eq!(sorted(&run.stdout()), ["[0] no end", "[0] one", "[1] no end", "[1] one"]);
    assert_eq!(sorted(&run.stderr()), ["[0] two", "[1] two"]);
    // No prefix in a file, unless requested.
    assert_eq!(launch(&["-n", "1"], script).stdout(), "one\nno end");
}

#[test]
fn long_output_comes_whole() {
    let script = "i=0; while [ $i -lt 2000 ]; do echo $i $WARPSMITH_RANK; i=$((i+1)); done";
    let run = launch(&["-n", "3", "--prefix", "always"], script);
    let text = run.stdout();
    assert_eq!(text.lines().count(), 6000);
    for rank in 0..3 {
        let prefix = format!("[{rank}] ");
        let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        assert!(lines.iter().enumerate().all(|(i, line)| *line == format!("{i} {rank}")), "{rank}");
    }
}

#[test]
fn only_the_first_rank_has_the_input() {
    let folder = folder();
    let mut command = command(&folder, &["launch", "-n", "2", "--prefix", "always", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"text\n").unwrap();
    let run = Run { folder, output: child.wait_with_output().unwrap() };
    assert_eq!((run.code(), run.stdout().as_str()), (Some(0), "[0] text\n"));
}

#[test]
fn a_rank_that_fails_is_named_and_ends_the_others() {
    let began = Instant::now();
    for (end, how, code) in [
        ("exit 37", "ended with exit code 37", 37),
        ("kill -SEGV $$", "was terminated by SIGSEGV", 128 + 11),
        (
            "kill -KILL $$",
            "was terminated by SIGKILL, for example by the system when memory ran out",
            128 + 9,
        ),
    ] {
        let run =
            launch(&["-n", "4"], &format!("if [ $WARPSMITH_RANK = 2 ]; then {end}; fi; exec sleep 600"));
        assert_eq!(run.code(), Some(code));
        let said = run.stderr();
        assert!(said.starts_with("warpsmith: rank 2 (process "), "{said}");
        assert!(
            said.contains(&format!(") {how}; the other ranks were terminated")) && said.lines().count() == 1,
            "{said}"
        );
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_rank_that_does_not_end_is_killed() {
    let began = Instant::now();
    let run = launch(
        &["-n", "2"],
        r#"
            if [ $WARPSMITH_RANK = 1 ]; then
                while [ ! -e ready ]; do sleep 0.01; done
                exit 3
            fi
            trap '' TERM
            : > ready
            while :; do sleep 0.1; done"#,
    );
    assert_eq!(run.code(), Some(3));
    assert!((4..20).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let folder = folder();
    let output = command(&folder, &["launch", "-n", "2", "./no-such-program"]).output().unwrap();
    let run = Run { folder, output };
    assert_eq!(run.code(), Some(2));
    assert!(run.stderr().contains("cannot run `./no-such-program`"), "{}", run.stderr());
    for arguments in [&["launch", "sh"][..], &["launch", "-n", "0", "sh"], &["launch", "-n", "2"]] {
        let folder = crate::shared::folder();
        let run = Run { output: command(&folder, arguments).output().unwrap(), folder };
        assert_eq!(run.code(), Some(2), "{arguments:?}");
    }
}

/// Starts a run whose ranks print their process IDs (`echo $$ $!`), and returns it with these IDs.
fn started(script: &str) -> (Child, BufReader<std::process::ChildStdout>, Vec<i32>) {
    let folder = folder();
    let mut command = command(&folder, &["launch", "-n", "3", "sh", "-c", script]);
    let mut child =
        command.stdout(Stdio::piped()).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut processes = Vec::new();
    for _ in 0..3 {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        processes.extend(line.split_whitespace().map(|process| process.parse::<i32>().unwrap()));
    }
    std::fs::remove_dir_all(folder).unwrap();
    (child, lines, processes)
}

fn is_alive(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // A zombie process does not count.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn kill(process: u32, signal: i32) {
    // SAFETY: `kill` does not access memory. The process was started here and has not been waited for.
    unsafe { libc::kill(process.try_into().unwrap(), signal) };
}

#[test]
fn signals_are_passed_on() {
    let script = "trap 'echo caught; exit 0' INT TERM; echo $$; while :; do sleep 0.05; done";
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let (mut child, lines, _) = started(script);
        kill(child.id(), signal);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(lines.lines().map(Result::unwrap).collect::<Vec<_>>(), ["caught"; 3]);
    }
    let (mut child, _, processes) = started("echo $$; exec sleep 600");
    kill(child.id(), libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGTERM));
    assert!(processes.iter().all(|process| !is_alive(*process)));
}

#[cfg(target_os = "linux")]
fn parent_of(process: i32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    parent.trim().parse().unwrap()
}

/// Waits until all processes have ended.
#[cfg(target_os = "linux")]
#[track_caller]
fn assert_all_end(processes: &[i32]) {
    let until = Instant::now() + Duration::from_secs(5);
    while processes.iter().any(|process| is_alive(*process)) {
        let left: Vec<_> = processes.iter().filter(|process| is_alive(**process)).collect();
        assert!(Instant::now() < until, "{left:?} of {processes:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ways in which a rank starts processes that outlive it: in its process group, in a new session, as children of a
/// process that has ended, and ignoring SIGTERM. None of them holds the output, so it ends with the command.
#[cfg(target_os = "linux")]
const HELPERS: [&str; 4] = [
    "sleep 600 >/dev/null 2>&1 & echo $$ $!",
    "setsid sleep 600 >/dev/null 2>&1 & sleep 0.1; echo $$ $!",
    "echo $$ $(sh -c 'sleep 600 >/dev/null 2>&1 & echo $!')",
    "(trap '' TERM; exec sleep 600) >/dev/null 2>&1 & sleep 0.1; echo $$ $!",
];

#[cfg(target_os = "linux")]
#[test]
fn helpers_of_ranks_end_with_the_run() {
    for helper in HELPERS {
        // All ranks end normally; or one fails while another ignores SIGTERM.
        let failing = format!(
            "if [ $WARPSMITH_RANK = 1 ]; then sleep 0.3; exit 3; fi; trap '' TERM; {helper}; while :; do sleep 0.1; done"
        );
        let ending = format!("{helper}; exit 0");
        for (script, ranks, code) in [(&ending, 2, 0), (&failing, 2, 3)] {
            let began = Instant::now();
            let run = launch(&["-n", &ranks.to_string()], script);
            assert_eq!(run.code(), Some(code), "{script}: {}", run.stderr());
            let text = run.stdout();
            let processes: Vec<i32> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
            assert!(processes.len() >= 2, "{script}: {text}");
            let left: Vec<_> = processes.iter().filter(|process| is_alive(**process)).collect();
            assert!(left.is_empty(), "{script}: {left:?} of {text}");
            assert!(began.elapsed() < Duration::from_secs(20), "{script}: {:?}", began.elapsed());
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn helpers_of_ranks_end_after_a_signal() {
    for helper in HELPERS {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let (mut child, _, processes) = started(&format!("{helper}; exec sleep 600"));
            assert_eq!(processes.len(), 6, "{helper}");
            kill(child.id(), signal);
            assert_eq!(child.wait().unwrap().code(), Some(128 + signal), "{helper}");
            let left: Vec<_> = processes.iter().filter(|process| is_alive(**process)).collect();
            assert!(left.is_empty(), "{helper}: {left:?} of {processes:?}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn no_process_outlives_a_killed_command() {
    for helper in HELPERS {
        let script = format!("trap '' TERM; {helper}; while :; do sleep 0.05; done");
        let (mut child, _, processes) = started(&script);
        assert!(processes.iter().all(|process| is_alive(*process)), "{helper}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_all_end(&processes);

        // The same for the process of the command that starts the ranks.
        let (mut child, _, processes) = started(&script);
        kill(parent_of(processes[0]), libc::SIGKILL);
        assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGKILL));
        assert_all_end(&processes);
    }
}

/// Signals all processes of a job, as a batch system does.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_to_all_processes_is_one_signal() {
    let script = "trap 'sleep 1; echo saved; exit 0' TERM; echo $$; while :; do sleep 0.05; done";
    let (mut child, lines, processes) = started(script);
    for process in [child.id(), parent_of(processes[0])] {
        kill(process, libc::SIGTERM);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(lines.lines().map(Result::unwrap).collect::<Vec<_>>(), ["saved"; 3]);
}
