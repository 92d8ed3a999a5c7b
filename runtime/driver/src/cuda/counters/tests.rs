//! Tests of sessions with the [`fake`](super::fake) library.

use cudarc::driver::sys::CUcontext;

use super::fake::{self, INVALID_OPERATION};
use super::params::support::{DISABLED, SUPPORTED, UNSUPPORTED};
use super::session::Session;
use crate::counters::{CounterError, CounterKind, CounterResult, Obstacle};

fn open() -> CounterResult<Session> {
    Session::open(fake::calls(), 0x10 as CUcontext, 11)
}

/// Counts kernels that have these values.
fn count(session: &mut Session, kernels: &[u64]) -> CounterResult<crate::counters::Counted> {
    session.begin()?;
    fake::with(|fake| fake.kernels = kernels.to_vec());
    session.end()
}

/// Returns the first value of each kernel.
fn firsts(counted: &crate::counters::Counted) -> Vec<Option<f64>> {
    counted.kernels.iter().map(|values| values[0]).collect()
}

#[test]
fn each_part_has_the_values_of_its_kernels() {
    let _turn = fake::turn();
    let mut session = open().unwrap();
    assert_eq!((session.setup().chip.as_str(), session.setup().passes), ("GH100", 6));
    let kinds: Vec<&CounterKind> = session.setup().counters.iter().map(|counter| &counter.kind).collect();
    let stall = |reason: &str| CounterKind::Stall(reason.to_owned());
    let stalls = ["long_scoreboard", "math_pipe_throttle", "mio_throttle", "selected"].map(stall);
    assert_eq!(*kinds[0], CounterKind::Duration);
    assert_eq!(kinds[6..], stalls.iter().collect::<Vec<_>>());
    let last = &session.setup().counters[9].name;
    assert_eq!(last, "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio");

    let one = count(&mut session, &[7]).unwrap();
    assert_eq!((one.kernels.len(), one.kernels[0].len(), one.dropped), (1, 10, 0));
    assert_eq!(one.kernels[0][..4], [Some(700.0), Some(701.0), Some(702.0), None], "no number is no value");
    assert_eq!(firsts(&count(&mut session, &[]).unwrap()), []);
    assert_eq!(firsts(&count(&mut session, &[1, 2]).unwrap()), [Some(100.0), Some(200.0)]);
    drop(session);
    assert!(fake::with(|fake| fake.is_closed()));
    let calls = fake::with(|fake| fake.calls.clone());
    let part = ["start", "push_range", "pop_range", "stop", "decode", "data_info"];
    let at = calls.iter().position(|call| *call == "start").unwrap();
    assert_eq!(calls[at..at + 6], part);
    assert_eq!(calls[at - 2..at], ["data_initialize", "set_config"]);
}

#[test]
fn kernels_beyond_the_space_are_dropped_and_reported() {
    let _turn = fake::turn();
    let mut session = open().unwrap();
    let counted = count(&mut session, &[1; 10]).unwrap();
    assert_eq!((counted.kernels.len(), counted.dropped), (7, 3));
}

#[test]
fn a_refused_push_is_done_without() {
    let _turn = fake::turn();
    let mut session = open().unwrap();
    fake::with(|fake| fake.failures.insert("push_range", (INVALID_OPERATION, 1)));
    assert_eq!(firsts(&count(&mut session, &[1]).unwrap()), [Some(100.0)]);
    assert_eq!(firsts(&count(&mut session, &[2]).unwrap()), [Some(200.0)]);
    let calls = fake::with(|fake| fake.calls.clone());
    assert_eq!(calls.iter().filter(|call| call.ends_with("_range")).count(), 1);
}

#[test]
fn a_demanded_push_is_made() {
    let _turn = fake::turn();
    let mut session = open().unwrap();
    fake::with(|fake| fake.demands_push = true);
    assert_eq!(firsts(&count(&mut session, &[1]).unwrap()), [Some(100.0)]);
}

#[test]
fn a_profiler_that_refuses_its_configuration_is_renewed() {
    let _turn = fake::turn();
    let mut session = open().unwrap();
    fake::with(|fake| fake.failures.insert("set_config", (INVALID_OPERATION, 1)));
    assert_eq!(firsts(&count(&mut session, &[1]).unwrap()), [Some(100.0)]);
    let enabled = fake::with(|fake| fake.calls.iter().filter(|call| **call == "enable").count());
    assert_eq!(enabled, 2);
    fake::with(|fake| fake.failures.insert("set_config", (INVALID_OPERATION, 2)));
    let error = count(&mut session, &[1]).unwrap_err();
    assert!(error.to_string().contains("cuptiRangeProfilerSetConfig"), "{error}");
    assert_eq!(firsts(&count(&mut session, &[2]).unwrap()), [Some(200.0)], "the next part is counted");
}

#[test]
fn an_error_ends_the_part() {
    for failing in ["stop", "decode", "data_info", "evaluate", "pop_range"] {
        let _turn = fake::turn();
        let mut session = open().unwrap();
        fake::with(|fake| fake.failures.insert(failing, (999, 1)));
        let error = count(&mut session, &[1]).unwrap_err();
        assert!(error.to_string().contains("error 999: fake text of 999"), "{failing}: {error}");
        assert!(matches!(session.end(), Err(CounterError::Misuse(_))), "{failing}: it has ended");
    }
}

#[test]
fn parts_do_not_nest() {
    let _turn = fake::turn();
    let mut session = open().unwrap();
    assert!(matches!(session.end(), Err(CounterError::Misuse(_))));
    session.begin().unwrap();
    assert!(matches!(session.begin(), Err(CounterError::Misuse(_))));
    drop(session);
    assert!(fake::with(|fake| fake.is_closed()), "a part that was begun is ended");
}

#[test]
fn missing_passes_are_an_error() {
    let _turn = fake::turn();
    let mut session = open().unwrap();
    fake::with(|fake| fake.is_complete = false);
    let error = count(&mut session, &[1]).unwrap_err().to_string();
    assert!(error.contains("once per pass"), "{error}");
    assert_eq!(count(&mut session, &[]).unwrap().kernels.len(), 0);
}

#[test]
fn a_chip_without_some_metrics_has_the_others() {
    let _turn = fake::turn();
    fake::with(|fake| {
        fake.chip = c"GB202";
        fake.metrics = vec!["gpu__time_duration.sum", "dram__bytes_op_read.sum"];
        fake.ratios.clear();
    });
    let names: Vec<String> =
        open().unwrap().setup().counters.iter().map(|counter| counter.name.clone()).collect();
    assert_eq!(names, ["gpu__time_duration.sum", "dram__bytes_op_read.sum"]);
    fake::with(|fake| fake.metrics.clear());
    let text = open().unwrap_err().to_string();
    assert!(text.contains("device 3 has no hardware counters") && text.contains("GB202"), "{text}");
    assert!(fake::with(|fake| fake.is_closed()));
}

#[test]
fn obstacles_of_the_device_are_named() {
    let cases = [
        ([UNSUPPORTED; 7], Obstacle::Architecture),
        ([1, SUPPORTED, SUPPORTED, DISABLED, 3, 3, 3], Obstacle::VirtualGpuDisabled),
        ([1, 3, 3, UNSUPPORTED, 3, 3, 3], Obstacle::VirtualGpu),
        ([1, 3, 3, 3, UNSUPPORTED, 3, 3], Obstacle::ConfidentialComputing),
        ([1, 3, 3, 3, 3, UNSUPPORTED, 3], Obstacle::MiningProcessor),
        ([1, 3, UNSUPPORTED, 3, 3, 3, 3], Obstacle::Sli),
        ([1, 3, 3, 3, 3, 3, UNSUPPORTED], Obstacle::Wsl),
        ([0; 7], Obstacle::Unknown),
    ];
    for (levels, wanted) in cases {
        let _turn = fake::turn();
        fake::with(|fake| fake.support = levels);
        assert_eq!(open().unwrap_err(), CounterError::Device { device: 3, obstacle: wanted });
    }
}

#[test]
fn refusals_of_cupti_name_the_remedy() {
    let cases: [(&'static str, u32, &[&str]); 9] = [
        (
            "enable",
            35,
            &[
                "cuptiRangeProfilerEnable is not permitted",
                "NVreg_RestrictProfilingToAdminUsers=0",
                "CAP_SYS_ADMIN",
            ],
        ),
        ("availability", 40, &["is not permitted", "--cap-add SYS_ADMIN"]),
        ("enable", 26, &["in use by another process", "ncu", "dcgmi profile --pause"]),
        ("initialize", 39, &["in use by `CUPTI for other`"]),
        ("initialize", 36, &["older event API"]),
        ("enable", 43, &["MIG instance"]),
        ("enable", 45, &["Windows Subsystem"]),
        ("host_initialize", 46, &["does not support the chip GH100"]),
        ("host_initialize", 15, &["cuptiProfilerHostInitialize failed with CUPTI error 15"]),
    ];
    for (function, code, parts) in cases {
        let _turn = fake::turn();
        fake::with(|fake| fake.failures.insert(function, (code, 1)));
        let text = open().unwrap_err().to_string();
        for part in parts {
            assert!(text.contains(part), "{function} {code}: {part}: {text}");
        }
        assert!(fake::with(|fake| fake.is_closed()), "{function} {code}: nothing stays open");
    }
}

#[test]
fn availability_that_is_not_known_is_done_without() {
    let _turn = fake::turn();
    // Without the image, any chip is accepted; the fake library otherwise requires it.
    fake::with(|fake| fake.failures.insert("availability", (999, 1)));
    fake::with(|fake| fake.failures.insert("host_initialize", (46, 1)));
    assert!(matches!(open(), Err(CounterError::Device { obstacle: Obstacle::Chip(_), .. })));
}
