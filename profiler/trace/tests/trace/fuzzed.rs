//! Processing of fuzzer input as a trace file. No input may cause a panic, a hang or unbounded memory.

use warpsmith_trace::{ChromeWriter, Trace};

/// Reads bytes as a trace; then writes, rereads and summarizes the trace, and creates a page.
pub fn trace(bytes: &[u8]) {
    let Ok(opened) = Trace::from_bytes(bytes) else { return };
    let trace = opened.trace;
    let chrome = trace.chrome(ChromeWriter::new(Vec::new())).expect("memory can be written");
    let again = Trace::from_bytes(&chrome).expect("our own file");
    assert_eq!((again.damage, again.trace.len()), (None, trace.len()));
    let summary = trace.summary();
    assert_eq!(summary.records, trace.len());
    let text = summary.text(3);
    assert!(text.chars().all(|char| char == '\n' || !char.is_control()), "{text:?}");
    summary.since(&summary).text(3);
    let page = trace.html("fuzzed");
    assert_eq!(page.matches("</script").count(), 2, "those of the page itself");
}
