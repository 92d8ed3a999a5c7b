//! A record of the store and its line in the file.

use std::borrow::Cow;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::problem::StoreProblem;
use super::subject::TunedSubject;
use super::tuned::TunedConfiguration;
use super::{cannot, lines};

/// Version of the line format.
const VERSION: u32 = 2;
/// Maximum length of a damaged line's description, in characters.
const MAX_SAID: usize = 160;

/// A record in a store: the tuned configuration of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record<'a> {
    #[serde(rename = "for")]
    pub subject: TunedSubject<'a>,
    #[serde(flatten)]
    pub configuration: Cow<'a, TunedConfiguration>,
}

impl Record<'_> {
    /// Returns an error if the record contains values that a tuner cannot produce.
    fn check(&self) -> Result<(), StoreProblem> {
        if !self.subject.is_possible() {
            let what = "there is no such bucket or alignment".to_owned();
            return Err(StoreProblem::Configuration { what });
        }
        self.configuration.check()
    }
}

#[derive(Serialize)]
struct Line<'a> {
    version: u32,
    #[serde(flatten)]
    record: &'a Record<'a>,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Reason why a line is not used.
#[derive(Debug, PartialEq)]
pub enum Unusable {
    OtherVersion,
    Damaged(String),
}

/// Returns the line of a record, including its newline.
fn to_line(record: &Record<'_>) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Line { version: VERSION, record })?;
    line.push(b'\n');
    Ok(line)
}

/// Appends a record to a file.
///
/// # Errors
/// Returns a message that states the failed operation, the file, the cause and the remedy.
pub fn append(file: &Path, record: &Record<'_>) -> Result<(), String> {
    let line = to_line(record).map_err(std::io::Error::from);
    line.and_then(|line| lines::append(file, &line)).map_err(|error| cannot("write", file, &error))
}

/// Parses the record in a line.
pub fn from_line(line: &[u8]) -> Result<Record<'static>, Unusable> {
    let damaged = |error: serde_json::Error| Unusable::Damaged(shorten(&error.to_string()));
    let Version { version } = serde_json::from_slice(line).map_err(damaged)?;
    if version != VERSION {
        return Err(Unusable::OtherVersion);
    }
    let record: Record<'static> = serde_json::from_slice(line).map_err(damaged)?;
    match record.check() {
        Ok(()) => Ok(record),
        Err(problem) => Err(Unusable::Damaged(shorten(&problem.to_string()))),
    }
}

/// Returns an error if a line of the file is damaged.
///
/// # Errors
/// Returns the reason.
pub fn check_line(line: &[u8]) -> Result<(), String> {
    match from_line(line) {
        Ok(_) => Ok(()),
        Err(Unusable::OtherVersion) => Err(format!("its version is not {VERSION}")),
        Err(Unusable::Damaged(what)) => Err(what),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_SAID) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::store::subject::{Code, DeviceClass};

    fn record() -> Record<'static> {
        let device = DeviceClass {
            name: "NVIDIA H200".into(),
            capability: (9, 0),
            multiprocessors: 132,
            l2_bytes: 50 << 20,
            driver: "13".into(),
        };
        let values = [("block", "256"), ("grid", "waves:4"), ("a \"b\"\n", "µ")];
        let configuration = TunedConfiguration {
            values: values.map(|(axis, value)| (axis.to_owned(), value.to_owned())).into(),
            symbol: Some("axpy__f32_8_16".to_owned()),
            threads: None,
            median_us: 3.5,
            toolchain: "rustc 1.96.0".to_owned(),
        };
        let (kernel, types) = ("axpy".into(), "f32".into());
        let code = Code { package: "test".into(), image: 0, runtime: "0.1.0".into() };
        let subject = TunedSubject { device, code, kernel, types, bucket: 19, alignment: 16 };
        Record { subject, configuration: Cow::Owned(configuration) }
    }

    #[test]
    fn lines_round_trip_and_are_one_line() {
        let line = to_line(&record()).unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(from_line(&line), Ok(record()), "{}", String::from_utf8_lossy(&line));
    }

    #[test]
    fn lines_of_earlier_programs_are_read() {
        let tuned = r#"{"version":2,"kind":"tuned","for":{"device":{"name":"NVIDIA H200","capability":[9,0],"multiprocessors":132,"l2_bytes":52428800,"driver":"13"},"code":{"package":"test","image":"0","runtime":"0.1.0"},"kernel":"axpy","types":"f32","bucket":19,"alignment":16},"values":[["block","256"],["grid","waves:4"],["a \"b\"\n","µ"]],"symbol":"axpy__f32_8_16","median_us":3.5,"toolchain":"rustc 1.96.0"}"#;
        assert_eq!(from_line(tuned.as_bytes()), Ok(record()));
    }

    #[test]
    fn foreign_lines_and_other_versions_are_distinguished() {
        let tuned = String::from_utf8(to_line(&record()).unwrap()).unwrap();
        let of = |line: &str| from_line(line.as_bytes()).unwrap_err();
        for version in ["1", "3"] {
            let other = tuned.replace("\"version\":2", &format!("\"version\":{version}"));
            assert_eq!(of(&other), Unusable::OtherVersion);
        }
        assert_eq!(of(r#"{"version":1,"device":"x"}"#), Unusable::OtherVersion);
        let damaged = [
            (tuned.replace("\"bucket\":19", "\"bucket\":128"), "bucket"),
            (tuned.replace("\"image\":\"", "\"image\":\"x"), "hexadecimal"),
            (tuned.replace("\"alignment\":16", "\"alignment\":3"), "alignment"),
            (tuned.replace("\"median_us\":3.5", "\"median_us\":0"), "positive"),
            (tuned.replace("\"median_us\":3.5", "\"median_us\":null"), "null"),
            (tuned[..tuned.len() / 2].to_owned(), "EOF"),
            ("[1, 2]".to_owned(), "trailing"),
            ("{}".to_owned(), "version"),
            ("\u{fffd}\0".to_owned(), "expected value"),
            (format!("{{\"version\":\"{}\"}}", "v".repeat(10_000)), "…"),
        ];
        for (line, what) in damaged {
            let Unusable::Damaged(said) = of(&line) else { panic!("{line} is of another version") };
            assert!(said.contains(what) && said.chars().count() <= MAX_SAID + 1, "{line}: {said}");
        }
    }
}
