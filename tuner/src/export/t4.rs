//! Results in the form of the T4 results schema, version 1.0.0, which Kernel Tuner and its analysis tools read.
//!
//! Guarantees: each result has a configuration of its own: beside the axes stand the case's kernel, type, size and mode, as
//! `case.kernel`, `case.dtype`, `case.n` and `case.mode`. Times are in milliseconds, as Kernel Tuner has them. Beside the results stands
//! `metadata`, which the schema leaves open: the run and the device with its driver, clocks, temperature and power. Results
//! of an earlier run have no `runtimes`, which the schema does not demand, and are marked by the measurement `is_logged`.

use serde_json::{Map, Value, json};

use super::name;
use crate::document::{Document, Outcome, Record};
use crate::measure::Timing;

/// The document as T4 results (JSON text, ending in a line feed).
pub fn t4(document: &Document) -> String {
    let timestamp = timestamp(document.run.started);
    let results: Vec<Value> = document.results.iter().map(|record| result(record, &timestamp)).collect();
    let metadata = json!({ "run": document.run, "device": document.device });
    let whole = json!({ "schema_version": "1.0.0", "metadata": metadata, "results": results });
    let mut text = serde_json::to_string_pretty(&whole).expect("plain data always becomes JSON");
    text.push('\n');
    text
}

fn result(record: &Record, timestamp: &str) -> Value {
    let mut configuration = Map::new();
    configuration.insert("case.kernel".into(), json!(record.kernel));
    configuration.insert("case.dtype".into(), json!(record.dtype));
    configuration.insert("case.n".into(), json!(record.n));
    configuration.insert("case.mode".into(), json!(name(&record.mode())));
    for (axis, value) in record.configuration.iter() {
        configuration.insert(axis.to_owned(), json!(value));
    }
    let mut times = Map::new();
    // The medians of an earlier run are no run times.
    if record.timing.as_ref().is_none_or(|timing| timing.logged.is_none()) {
        let samples = record.timing.as_ref().map_or(&[][..], |timing| &timing.samples_us);
        times.insert("runtimes".into(), samples.iter().map(|us| json!(us / 1e3)).collect());
    }
    json!({
        "timestamp": timestamp,
        "configuration": configuration,
        "times": times,
        "invalidity": match record.outcome {
            Outcome::Correct => "correct",
            Outcome::Wrong => "correctness",
            Outcome::Failed | Outcome::Crashed => "runtime",
        },
        "correctness": f64::from(u8::from(record.outcome == Outcome::Correct)),
        "measurements": measurements(record),
        "objectives": ["time"],
    })
}

fn measurements(record: &Record) -> Vec<Value> {
    let mut all = Vec::new();
    let mut add = |name: &str, value: Option<f64>, unit: &str| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            all.push(json!({ "name": name, "value": value, "unit": unit }));
        }
    };
    let summary = record.timing.as_ref().and_then(Timing::percentiles);
    add("time", record.median_us().map(|us| us / 1e3), "ms");
    add("time_p10", summary.map(|summary| summary.p10 / 1e3), "ms");
    add("time_p90", summary.map(|summary| summary.p90 / 1e3), "ms");
    add("bandwidth", record.gbps(), "GB/s");
    add("share_of_probe", record.of_probe(), "");
    add("max_error", record.max_error, "");
    add("rejected_samples", record.timing.as_ref().map(|timing| f64::from(timing.rejected)), "");
    let is_logged = record.timing.as_ref().is_some_and(|timing| timing.logged.is_some());
    add("is_logged", is_logged.then_some(1.0), "");
    add("is_winner", record.is_winner.then_some(1.0), "");
    if !record.problem.is_empty() {
        all.push(json!({ "name": "problem", "value": record.problem, "unit": "" }));
    }
    all
}

/// Seconds since 1970 as the date and time of day that they are in UTC.
fn timestamp(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have their odd day last; eras of 400 of them have 146 097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}+00:00")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::tests::{document, record};
    use crate::measure::Logged;

    /// Whether a value is what the T4 results schema 1.0.0 demands of a field of this name.
    fn fits(field: &str, value: &Value) -> bool {
        match field {
            "timestamp" | "name" | "unit" | "schema_version" => value.is_string(),
            "configuration" | "times" | "metadata" => value.is_object(),
            "objectives" | "runtimes" | "measurements" | "results" => value.is_array(),
            "correctness" | "compilation_time" | "framework" | "search_algorithm" | "validation" => {
                value.is_number()
            }
            "invalidity" => ["timeout", "compile", "runtime", "correctness", "constraints", "correct"]
                .contains(&value.as_str().unwrap_or_default()),
            "value" => value.is_number() || value.is_string() || value.is_array(),
            _ => false,
        }
    }

    fn check(value: &Value, required: &[&str]) {
        let object = value.as_object().unwrap();
        for field in required {
            assert!(object.contains_key(*field), "{field} is missing: {value}");
        }
        for (field, value) in object {
            assert!(fits(field, value), "{field}: {value}");
        }
    }

    fn results() -> Vec<Value> {
        let mut failed = record("axpy", 256, 1.0, Outcome::Failed);
        (failed.timing, failed.probe_us, failed.problem) = (None, None, "no resources".into());
        let mut known = record("copy", 64, 11.0, Outcome::Correct);
        known.timing.as_mut().unwrap().logged = Some(Logged { samples: 37, interval_us: None });
        let records = vec![
            Record { is_winner: true, ..record("copy", 128, 10.0, Outcome::Correct) },
            record("copy", 256, 9.0, Outcome::Wrong),
            failed,
            record("axpy", 512, 9.0, Outcome::Crashed),
            known,
        ];
        let whole: Value = serde_json::from_str(&t4(&document(records))).unwrap();
        check(&whole, &["schema_version", "results"]);
        assert_eq!(whole["schema_version"], "1.0.0");
        assert_eq!(whole["metadata"]["device"]["driver"], "580.95");
        assert_eq!(whole["metadata"]["run"]["command"], "bench");
        whole["results"].as_array().unwrap().clone()
    }

    #[test]
    fn results_have_the_fields_and_types_of_the_schema() {
        for result in results() {
            check(&result, &["configuration", "times", "invalidity", "correctness"]);
            check(&result["times"], &[]);
            for measurement in result["measurements"].as_array().unwrap() {
                check(measurement, &["name", "value", "unit"]);
            }
        }
    }

    #[test]
    fn results_say_what_was_measured_and_what_became_of_it() {
        let results = results();
        let invalidity: Vec<&str> =
            results.iter().map(|result| result["invalidity"].as_str().unwrap()).collect();
        assert_eq!(invalidity, ["correct", "correctness", "runtime", "runtime", "correct"]);
        assert_eq!((&results[0]["correctness"], &results[1]["correctness"]), (&json!(1.0), &json!(0.0)));
        assert_eq!(results[0]["configuration"]["block"], 128);
        assert_eq!(results[0]["configuration"]["grid"], "waves:4");
        assert_eq!(results[0]["configuration"]["case.kernel"], "copy");
        assert_eq!(results[0]["measurements"][0], json!({"name": "time", "value": 0.01, "unit": "ms"}));
        assert_eq!(results[0]["times"]["runtimes"].as_array().unwrap().len(), 5);
        assert!(results[2]["times"]["runtimes"].as_array().unwrap().is_empty());
        assert_eq!(results[4]["times"], json!({}), "an earlier run's samples are not there");
        let logged = json!({"name": "is_logged", "value": 1.0, "unit": ""});
        assert!(results[4]["measurements"].as_array().is_some_and(|all| all.contains(&logged)));
        assert_eq!(results[2]["measurements"][0]["value"], "no resources");
        let winner = json!({"name": "is_winner", "value": 1.0, "unit": ""});
        let wins =
            |result: &&Value| result["measurements"].as_array().is_some_and(|all| all.contains(&winner));
        assert_eq!(results.iter().filter(wins).count(), 1);
    }

    #[test]
    fn timestamps_are_dates_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00+00:00"),
            (951_782_399, "2000-02-28T23:59:59+00:00"),
            (951_782_400, "2000-02-29T00:00:00+00:00"),
            (1_735_689_599, "2024-12-31T23:59:59+00:00"),
            (4_107_542_400, "2100-03-01T00:00:00+00:00"),
        ] {
            assert_eq!(timestamp(seconds), text);
        }
    }
}
