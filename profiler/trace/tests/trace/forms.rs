//! Traces of other programs and of earlier versions. Every form must be read, and missing data must be reported.

use std::fmt::Write as _;

use warpsmith_trace::*;

use crate::fixture::chrome;

fn open(text: &str) -> Opened {
    Trace::from_bytes(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Reads a trace with these events, and checks that it is not damaged and nothing is omitted.
fn whole(events: &str) -> Trace {
    let opened = open(&format!(r#"{{"traceEvents":[{events}]}}"#));
    assert_eq!((opened.damage, opened.trace.definitions.left_out()), (None, vec![]), "{events}");
    opened.trace
}

/// Returns the content that the reader omitted, and whether it makes the tables incomplete.
fn left_out(trace: &Trace) -> Vec<(String, bool)> {
    trace.definitions.left_out().into_iter().map(|what| (what.text, what.is_lost)).collect()
}

fn kernel(name: &str, ts: &str, dur: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{ts},"dur":{dur},"args":{{"device":0,"stream":7}}}}"#
    )
}

/// Times in microseconds, and the same times in nanoseconds. The texts have more digits than an `f64` can represent.
const TIMES: [(&str, u64); 14] = [
    ("1723456789012345", 1_723_456_789_012_345_000),
    ("1723456789012345.678", 1_723_456_789_012_345_678),
    ("\"1723456789012345.678\"", 1_723_456_789_012_345_678),
    ("\" 1723456789012345.678 \"", 1_723_456_789_012_345_678),
    ("1723456789012345.6784999999999999999999999999999999", 1_723_456_789_012_345_678),
    ("1723456789012345.6785", 1_723_456_789_012_345_679),
    ("1723456789012345.9999", 1_723_456_789_012_346_000),
    ("1.723456789012345678e15", 1_723_456_789_012_345_678),
    ("1723456789012345678E-3", 1_723_456_789_012_345_678),
    ("\"17234567890123456.78e-1\"", 1_723_456_789_012_345_678),
    ("001723456789012345.678000000000000000000000000000000000000000", 1_723_456_789_012_345_678),
    ("9007199254740993.001", 9_007_199_254_740_993_001),
    ("9223372036854775.807", i64::MAX as u64),
    ("0.0015", 2),
];

#[test]
fn times_are_read_as_their_decimals() {
    for (text, expected) in TIMES {
        let trace = whole(&kernel("k", text, "0.001"));
        let kernel = trace.kernels[0];
        let expected = (expected, expected + 1);
        assert_eq!((kernel.start, kernel.end), expected, "{text}");
        // Writing must not change times.
        let again = Trace::from_bytes(&chrome(&trace)).unwrap().trace.kernels[0];
        assert_eq!((again.start, again.end), expected, "{text}");
    }
    let gap = format!(
        "{},{}",
        kernel("a", "1723456789012345.671", "0.002"),
        kernel("b", "1723456789012345.676", "0.002")
    );
    let summary = whole(&gap).summary();
    assert_eq!((summary.span, summary.devices[0].busy, summary.devices[0].idle), (7, 4, 3));
}

#[test]
fn times_may_be_before_the_base() {
    let text = format!(
        r#"{{"baseTimeNanoseconds":"1723456789012345678","traceEvents":[{}]}}"#,
        kernel("k", "-1.0005", "2e0")
    );
    let kernel = open(&text).trace.kernels[0];
    assert_eq!((kernel.start, kernel.end), (1_723_456_789_012_344_677, 1_723_456_789_012_346_677));
}

#[test]
fn numbers_beyond_floats_are_exact() {
    const BIG: u64 = (1 << 53) + 1;
    for number in [
        BIG.to_string(),
        format!("\"{BIG}\""),
        format!("{BIG}.0"),
        format!("{BIG}e0"),
        format!("\"{BIG}.000\""),
    ] {
        let trace = whole(&format!(
            r#"{{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":0,"tid":7,"ts":5,"dur":1,
                "args":{{"device":0,"stream":{number},"correlation":{number},"External id":{number},"bytes":{number},"graph node id":{number}}}}},
            {{"ph":"X","cat":"cuda_runtime","name":"cudaMemcpyAsync","pid":1,"tid":{number},"ts":4,"dur":1,"args":{{"correlation":{number}}}}},
            {{"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":2,"ts":4,
                "args":{{"Device Type":1,"Device Id":0,"Addr":{number},"Bytes":{number},"Total Allocated":{number},"Total Reserved":{number}}}}}"#
        ));
        let (copy, call, memory) = (trace.transfers[0], trace.calls[0], trace.memory[0]);
        let of_copy = [copy.correlation, copy.range, copy.bytes, copy.node, call.correlation];
        assert_eq!(of_copy, [BIG; 5], "{number}");
        assert_eq!(
            [memory.address, memory.bytes as u64, memory.allocated, memory.reserved],
            [BIG; 4],
            "{number}"
        );
        assert_eq!(trace.definitions.streams()[copy.stream.index()].id, BIG as i64, "{number}");
        assert_eq!(trace.definitions.threads()[call.thread.index()].id, BIG as i64, "{number}");
        assert_eq!(trace.summary().launches.kernels, 0);
    }
    let most = whole(
        &kernel("k", "5", "1").replace(r#""stream":7"#, r#""stream":7,"correlation":18446744073709551615"#),
    );
    assert_eq!(most.kernels[0].correlation, u64::MAX);
}

#[test]
fn counters_keep_their_digits() {
    for (text, expected) in
        [("0.1", 0.1), ("1e300", 1e300), ("-2.5", -2.5), ("123456789.123456789", 123_456_789.123_456_79)]
    {
        let trace = whole(&format!(
            r#"{{"ph":"C","cat":"device_counter","name":"power (W)","pid":0,"tid":0,"ts":5,"args":{{"value":{text}}}}}"#
        ));
        assert_eq!(trace.samples[0].value, expected, "{text}");
        assert_eq!(Trace::from_bytes(&chrome(&trace)).unwrap().trace.samples[0].value, expected);
    }
    let mut trace = Trace::default();
    let counter = trace.definitions.counter(None, "loss", "");
    let name = trace.definitions.names.intern("step");
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0] {
        trace.push(Record::Sample(Sample { at: 9, counter, value }));
        trace.push(Record::Mark(Mark { at: 9, name, payload: Payload::Float(value), ..Mark::default() }));
    }
    let again = Trace::from_bytes(&chrome(&trace)).unwrap().trace;
    let values =
        |trace: &Trace| trace.samples.iter().map(|sample| sample.value.to_bits()).collect::<Vec<_>>();
    assert_eq!(values(&again), values(&trace));
    let payloads =
        |trace: &Trace| trace.marks.iter().map(|mark| format!("{:?}", mark.payload)).collect::<Vec<_>>();
    assert_eq!(payloads(&again), payloads(&trace));
}

#[test]
fn events_without_a_time_do_not_count() {
    let (a, b) = (kernel("a", "1723456789012345", "10"), kernel("b", "1723456789012365", "10"));
    let lost = kernel("c", "0", "0");
    let ended = kernel("c", "0", "1723456789012380");
    let without = lost.replace(r#""ts":0,"#, "");
    let words =
        ["null", "\"\"", "\"soon\"", "NaN", "-Infinity", "[]", "{}", "1e300", "-7", "false", "0.0", "\"0\""];
    let lost: Vec<String> =
        words.iter().map(|word| kernel("c", word, "0")).chain([lost, ended, without]).collect();
    for lost in lost {
        for events in [format!("{lost},{a},{b}"), format!("{a},{lost},{b}"), format!("{a},{b},{lost}")] {
            let opened = open(&format!(r#"{{"traceEvents":[{events}]}}"#));
            let summary = opened.trace.summary();
            assert_eq!((summary.records, summary.span, opened.damage), (2, 30_000, None), "{lost}");
            assert_eq!((summary.devices[0].busy, summary.devices[0].idle), (20_000, 10_000), "{lost}");
            let left_out = left_out(&opened.trace);
            assert_eq!(left_out[0], ("events without a time: 1 (kernel 1)".to_owned(), true), "{lost}");
            assert!(summary.text(5).contains("events without a time: 1 (kernel 1)\n"), "{}", summary.text(5));
        }
    }
}

/// Kineto writes times as offsets from a base. It writes the offset 0 for an event whose time was lost.
#[test]
fn a_time_at_the_base_of_another_program_is_none() {
    let events = [
        kernel("lost", "0.000", "0.000"),
        kernel("a", "52000000.125", "10"),
        kernel("b", "52000020.125", "10"),
    ]
    .join(",");
    let theirs = format!(
        r#"{{"schemaVersion":1,"baseTimeNanoseconds":1723000000000000000,"traceEvents":[{events}]}}"#
    );
    let trace = open(&theirs).trace;
    assert_eq!((trace.kernels.len(), trace.summary().span), (2, 30_000));
    assert_eq!(left_out(&trace).len(), 1);
    // This crate's first record is at the base, even if the next one arrives much later. Older files contain only at
    // their end that this crate wrote them.
    let mut ours = Trace::default();
    for start in [7, 7_000_000_000_000] {
        ours.push(Record::Kernel(Kernel { start, end: start + 1, ..Kernel::default() }));
    }
    let written = String::from_utf8(chrome(&ours)).unwrap();
    let older = written.replace(r#""traceName":"warpsmith","#, "");
    assert_ne!(written, older);
    for text in [written, older] {
        let trace = open(&text).trace;
        assert_eq!((trace.kernels.len(), left_out(&trace)), (2, vec![]));
        assert_eq!(trace.kernels[0].start + trace.kernels[1].start, 7_000_000_000_007);
    }
}

#[test]
fn a_trace_may_begin_at_time_zero() {
    let small = whole(&[kernel("a", "0", "10"), kernel("b", "20", "10")].join(","));
    assert_eq!((small.kernels.len(), small.summary().span), (2, 30_000));
    // This range is still open when the next event arrives, two seconds later.
    let range = r#"{"ph":"X","cat":"user_annotation","name":"all","pid":1,"tid":1,"ts":0,"dur":3e6}"#;
    let long = whole(&[range.to_owned(), kernel("a", "2e6", "10")].join(","));
    assert_eq!((long.ranges.len(), long.kernels.len()), (1, 1));
    assert_eq!(whole(&kernel("alone", "0", "5")).kernels[0].end, 5_000);
}

/// Events in many forms, which the tests damage.
pub const SEED: &str = r#"{"deviceProperties":null,"baseTimeNanoseconds":1723000000000000000,"traceEvents":[
    {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":"stream 7","ts":"1000.125","dur":2e1,"args":{"stream":7,"correlation":9007199254740993,"grid":[1,2,3]}},
    {"ph":"C","cat":"host_counter","name":"loss","pid":1,"ts":5,"args":{"value":NaN}},{"ph":"M","name":"thread_name","pid":1,"tid":"main","args":{"name":"\ud800 \x"}},
    {"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":0,"args":{"Device Type":1,"Device Id":0,"Bytes":-5}},
]"#;

/// Deviations of writers that Chrome's viewer, Perfetto or Python accept.
#[test]
fn unusual_json_is_read() {
    let event = kernel("k", "5", "1");
    let with = |what: &str| event.replacen("\"args\":{", &format!("\"args\":{{{what},"), 1);
    let object = |events: &str| format!(r#"{{"traceEvents":[{events}]}}"#);
    let forms = [
        format!("\u{feff}{}", object(&event)),
        format!("\u{feff}[{event}]"),
        object(&event).replace(',', ",\r\n").replace('{', "{\r\n"),
        object(&format!("{event},")),
        object(&format!(",{event},,")),
        format!("[{event},]"),
        format!(r#"{{"deviceProperties":null,"traceEvents":[{event}]}}"#),
        format!(r#"{{"deviceProperties":{{}},"traceEvents":[{event}],}}"#),
        format!(
            r#"{{"deviceProperties":[null,{{}},5],"distributedInfo":null,"traceEvents":[null,{event}]}}"#
        ),
        format!(r#"{{"traceEvents":null,"traceEvents":[{event}]}}"#),
        object(&format!(
            r#"{event},{{"ph":"s","args":[]}},{{"ph":"M","args":null}},{{"ph":"M","args":"x"}},{{"ph":"M","args":[[{{}}]]}}"#
        )),
        object(&with(
            r#""occupancy":NaN,"memory bandwidth (GB/s)":Infinity,"a":-Infinity,"b":nan,"c":inf,"d":-inf,"e":-nan(ind)"#,
        )),
        object(&with(r#""est. achieved occupancy %":-NaN"#)),
        object(&with(r#""path":"C:\users\new \x \u12"#).replace(r"\u12,", r#"\u12","#)),
        object(&with("\"text\":\"a\u{1}b\nc\td\"")),
        object(&with(r#""deep":[[[[{"a":[{}]}]]]]"#)),
        object(&with(r#""device":0,"device":0"#)),
        object(&event.replace("\"args\"", "\"unknown\":{\"args\":[1]},\"args\"")),
        format!("{} \n\n", object(&event)),
    ];
    for text in forms {
        let opened = open(&text);
        assert_eq!((&opened.damage, left_out(&opened.trace)), (&None, vec![]), "{text}");
        let kernels: Vec<_> =
            opened.trace.kernels.iter().map(|kernel| (opened.trace.text(kernel.name), kernel.end)).collect();
        assert_eq!(kernels, [("k", 6_000)], "{text}");
    }
}

#[test]
fn texts_are_read_as_far_as_they_are_text() {
    for (text, expected) in [
        (r"\ud83d\ude00", "😀"),
        (r"a\ud83db", "a\u{fffd}b"),
        (r"\ude00", "\u{fffd}"),
        (r"\ud83d", "\u{fffd}"),
        (r"\ud83d\ud83d\ude00", "\u{fffd}😀"),
        (r"\u00e9\/\\\n", "é/\\\n"),
        (r"C:\windows\py", r"C:\windows\py"),
    ] {
        let trace = whole(&kernel(text, "5", "1"));
        assert_eq!(trace.text(trace.kernels[0].name), expected, "{text}");
    }
    let mut bytes = format!("[{}]", kernel("?", "5", "1")).into_bytes();
    let at = bytes.iter().position(|byte| *byte == b'?').unwrap();
    bytes[at] = 0xff;
    let trace = Trace::from_bytes(&bytes).unwrap().trace;
    assert_eq!(trace.text(trace.kernels[0].name), "\u{fffd}");
}

#[test]
fn a_file_may_lack_its_end() {
    let event = kernel("k", "5", "1");
    let note = "end of the file: the end is missing; all events in the file were read";
    for text in [
        format!("[{event}"),
        format!("[{event},\n"),
        format!(r#"{{"traceEvents":[{event}"#),
        format!(r#"{{"traceEvents":[{event}]"#),
        format!(r#"{{"traceEvents":[{event}], "displayTimeUnit":"ms","#),
    ] {
        let opened = open(&text);
        assert_eq!((opened.damage, opened.trace.kernels.len()), (None, 1), "{text}");
        assert_eq!(left_out(&opened.trace), [(note.to_owned(), false)], "{text}");
    }
    // Data is missing within an event. Files of this crate must always have their end.
    for text in [
        format!("[{event},{{\"ph\":"),
        format!("[{event},{{"),
        format!("[{event},{}", &event[..event.len() - 1]),
    ] {
        assert!(open(&text).damage.unwrap().reason.contains("truncated"), "{text}");
    }
    let mut ours = Trace::default();
    ours.push(Record::Kernel(Kernel { start: 1, end: 2, ..Kernel::default() }));
    let written = String::from_utf8(chrome(&ours)).unwrap();
    let end = written.find("\n],").unwrap();
    assert!(open(&written[..end]).damage.is_some());
}

#[test]
fn compressed_files_of_several_members_are_read() {
    let text = format!("[{}]", kernel("k", "5", "1"));
    let mut bytes = Vec::new();
    for piece in text.as_bytes().chunks(40) {
        let mut encoder = flate2::write::GzEncoder::new(&mut bytes, flate2::Compression::best());
        std::io::Write::write_all(&mut encoder, piece).unwrap();
        encoder.finish().unwrap();
    }
    assert_eq!(Trace::from_bytes(&bytes).unwrap().trace.kernels.len(), 1);
}

#[test]
fn missing_values_join_nothing() {
    let trace = whole(
        r#"{"ph":"X","cat":"kernel","name":"a","pid":0,"ts":50,"dur":10},
           {"ph":"X","cat":"kernel","name":"b","pid":0,"tid":0,"ts":55,"dur":10,"args":{"device":0,"stream":0}},
           {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":10,"dur":1},
           {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":20,"dur":1,"args":{"correlation":-1}},
           {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":"worker","tid":"main","ts":20,"dur":1},
           {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":"worker","tid":"loader","ts":20,"dur":1}"#,
    );
    let summary = trace.summary();
    assert_eq!((summary.launches.kernels, summary.launches.with_call), (2, 0));
    let streams: Vec<_> = summary.streams.iter().map(|row| (row.stream, row.busy)).collect();
    assert_eq!(streams, [(-1, 10_000), (0, 10_000)]);
    assert_ne!(trace.ranges[0].thread, trace.ranges[1].thread);
    let names: Vec<_> = trace.definitions.threads().iter().map(|thread| thread.name.as_str()).collect();
    assert!(names.contains(&""), "{names:?}");
}

#[test]
fn a_file_of_unknown_events_says_so() {
    let trace = open(r#"[{"ph":"X","cat":"gc","name":"a","ts":1,"dur":2},{"ph":"Q","ts":1}]"#).trace;
    assert_eq!(left_out(&trace), [("none of the events is read: gc 1, phase Q 1".to_owned(), true)]);
    let mut many = String::new();
    for kind in 0..1000 {
        write!(many, r#"{{"ph":"X","cat":"kind {kind}","ts":1}},"#).unwrap();
    }
    let trace = open(&format!("[{many}{}]", kernel("k", "5", "1"))).trace;
    assert_eq!(left_out(&trace), []);
    assert!(trace.definitions.about["events not read"].contains("others 900"));
}

#[test]
fn streams_without_a_queue_have_no_columns_for_it() {
    let alone = whole(&kernel("k", "5", "1")).summary().text(5);
    assert!(!alone.contains("queue") && !alone.contains("-0.0"), "{alone}");
}
