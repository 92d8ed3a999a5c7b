//! Content of a page. Text must remain text, nothing may be loaded from elsewhere, and there must not be more slices
//! than a page can display.

use serde_json::Value;
use warpsmith_trace::*;

use crate::fixture::{launches, step};

pub const HOSTILE: &str =
    "</script><b><!--<img src=x onerror=\"window.taken=1\"><script>window.taken=1</script>&amp;\u{2028}'";

/// Returns a trace in which every name is potentially harmful.
pub fn hostile() -> Trace {
    let mut trace = step();
    let definitions = &mut trace.definitions;
    let name = definitions.names.intern(HOSTILE);
    definitions.devices.get_mut(&0).unwrap().name = HOSTILE.into();
    definitions.about.insert(HOSTILE.into(), HOSTILE.into());
    for index in 0..definitions.streams().len() {
        let stream = definitions.streams()[index].clone();
        let id = definitions.stream(stream.device, stream.id);
        definitions.name_stream(id, HOSTILE);
    }
    let counter = definitions.counter(Some(0), HOSTILE, HOSTILE);
    trace.kernels.iter_mut().for_each(|kernel| (kernel.name, kernel.line) = (name, name));
    trace.calls.iter_mut().for_each(|call| (call.name, call.detail) = (name, name));
    trace.ranges.iter_mut().for_each(|range| (range.name, range.category) = (name, name));
    trace.marks.iter_mut().for_each(|mark| mark.name = name);
    trace.waits.iter_mut().for_each(|wait| wait.buffer = name);
    trace.samples.iter_mut().for_each(|sample| sample.counter = counter);
    trace
}

/// Returns the data that the page's script reads.
fn data(page: &str) -> Value {
    let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    serde_json::from_str(data).unwrap()
}

/// Returns the number of slices on a page, and the number of slices in the trace that they represent.
fn slices(page: &str) -> (usize, u64) {
    let (mut drawn, mut stand_for) = (0, 0);
    for track in data(page)["timeline"]["tracks"].as_array().unwrap() {
        for row in track["rows"].as_array().unwrap() {
            let count = row["s"].as_array().unwrap().len();
            let joined = row["joined"].as_array().unwrap();
            drawn += count;
            stand_for += (count - joined.len()) as u64;
            stand_for += joined.iter().map(|joined| joined[1].as_u64().unwrap()).sum::<u64>();
        }
    }
    (drawn, stand_for)
}

#[test]
fn text_of_a_trace_stays_text() {
    let page = hostile().html(HOSTILE);
    assert_eq!(page.matches("</script>").count(), 2, "those of the page itself");
    assert!(!page.contains("<img") && !page.contains("<!--") && !page.contains("<b>"));
    assert!(data(&page)["timeline"]["names"].as_array().unwrap().contains(&HOSTILE.into()));
    assert_eq!(data(&page)["summary"]["devices"][0]["name"], HOSTILE);
}

#[test]
fn the_page_stands_alone() {
    let page = step().html("step");
    for outside in ["http:", "https:", "src=", "<link", "url(", "@import", "fetch(", "XMLHttp", "innerHTML"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn slices_inside_others_are_below() {
    let timeline = &data(&step().html("step"))["timeline"];
    let track = |name: &str| {
        let tracks = timeline["tracks"].as_array().unwrap();
        tracks.iter().find(|track| track["name"] == name).unwrap_or_else(|| panic!("{name}")).clone()
    };
    let names = |row: &Value| -> Vec<String> {
        let ids = row["n"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as usize);
        ids.map(|id| timeline["names"][id].as_str().unwrap().to_owned()).collect()
    };
    let main = track("main");
    let rows: Vec<Vec<String>> = main["rows"].as_array().unwrap().iter().map(names).collect();
    assert_eq!(rows[0], ["step"]);
    assert_eq!(rows[1], ["gemm \"wide\"\\ 8x4x2", "launch graph"]);
    assert_eq!(rows[2], ["cuLaunchKernelEx", "cuLaunchKernelEx"]);
    // The two kernels overlap, and the synchronization is displayed below both.
    let compute = track("stream 7");
    assert_eq!(compute["rows"].as_array().unwrap().len(), 3);
    assert_eq!(names(&compute["rows"][2]), ["stream synchronize"]);
    assert_eq!(names(&compute["points"]), ["weights"]);
    // The first kernel starts 15 us after the start of the trace.
    assert_eq!((&compute["rows"][0]["s"][0], &compute["rows"][0]["d"][0]), (&15_000.into(), &5000.into()));
    assert_eq!(track("memory allocated")["series"]["v"], serde_json::json!([1_048_576.0, 0.0]));
}

#[test]
fn large_traces_are_reduced_with_a_note() {
    let small = launches(2000).html("small");
    assert_eq!(slices(&small), (4000, 4000));
    assert_eq!(data(&small)["notes"], serde_json::json!([]));
    let large = launches(150_000).html("large");
    let (drawn, stand_for) = slices(&large);
    assert!(drawn > 20_000 && drawn <= 200_000, "{drawn}");
    assert_eq!(stand_for, 300_000, "each slice is drawn, or is in one that is");
    let notes = data(&large)["notes"].to_string();
    assert!(notes.contains("are merged with their neighbors"), "{notes}");
    assert!(large.len() < 20 << 20, "{} bytes", large.len());
}

#[test]
fn pages_of_long_series_keep_extremes() {
    let mut trace = Trace::default();
    let counter = trace.definitions.counter(None, "load", "");
    for at in 0..300_000 {
        let value = if at == 123_457 { 99.0 } else { (at % 10) as f64 };
        trace.push(Record::Sample(Sample { at, counter, value }));
    }
    let page = data(&trace.html("load"));
    let values = page["timeline"]["tracks"][0]["series"]["v"].as_array().unwrap();
    assert!(values.len() <= 100_002 && values.contains(&99.0.into()), "{}", values.len());
    assert!(page["notes"][0].as_str().unwrap().contains("the minimum and the maximum"));
}
