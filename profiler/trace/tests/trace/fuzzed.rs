//! What is done with the bytes of a fuzzer that stand for the file of a trace: no input may panic, hang or unfold without bound.

use warpsmith_trace::{ChromeWriter, Trace};

/// Reads bytes as a trace; what is read is written and read again, summed up, and made a page of.
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
