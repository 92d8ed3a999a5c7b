//! A record of the store and its line in the file.

use std::borrow::Cow;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::subject::TunedSubject;
use super::tuned::TunedConfiguration;
use super::{cannot, lines};

/// Version of the line format.
const VERSION: u32 = 2;

/// A record in a store: the tuned configuration of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record<'a> {
    #[serde(rename = "for")]
    pub subject: TunedSubject<'a>,
    #[serde(flatten)]
    pub configuration: Cow<'a, TunedConfiguration>,
}

impl Record<'_> {
    /// Returns true if a tuner can have produced the record's values.
    fn is_possible(&self) -> bool {
        self.subject.is_possible() && self.configuration.check().is_ok()
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

/// Parses the record in a line. Returns `None` for a damaged line and for a line of another version.
pub fn from_line(line: &[u8]) -> Option<Record<'static>> {
    let Version { version } = serde_json::from_slice(line).ok()?;
    if version != VERSION {
        return None;
    }
    serde_json::from_slice(line).ok().filter(Record::is_possible)
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
        assert_eq!(from_line(&line), Some(record()), "{}", String::from_utf8_lossy(&line));
    }

    #[test]
    fn lines_of_earlier_programs_are_read() {
        let tuned = r#"{"version":2,"kind":"tuned","for":{"device":{"name":"NVIDIA H200","capability":[9,0],"multiprocessors":132,"l2_bytes":52428800,"driver":"13"},"code":{"package":"test","image":"0","runtime":"0.1.0"},"kernel":"axpy","types":"f32","bucket":19,"alignment":16},"values":[["block","256"],["grid","waves:4"],["a \"b\"\n","µ"]],"symbol":"axpy__f32_8_16","median_us":3.5,"toolchain":"rustc 1.96.0"}"#;
        assert_eq!(from_line(tuned.as_bytes()), Some(record()));
    }

    #[test]
    fn damaged_lines_and_other_versions_are_not_used() {
        let tuned = String::from_utf8(to_line(&record()).unwrap()).unwrap();
        let replacements = [
            ("\"version\":2", "\"version\":1"),
            ("\"version\":2", "\"version\":3"),
            ("\"bucket\":19", "\"bucket\":128"),
            ("\"image\":\"", "\"image\":\"x"),
            ("\"alignment\":16", "\"alignment\":3"),
            ("\"median_us\":3.5", "\"median_us\":0"),
            ("\"median_us\":3.5", "\"median_us\":null"),
            ("\"test\"", "\"\0\""),
        ];
        for (good, bad) in replacements {
            let line = tuned.replace(good, bad);
            assert!(line != tuned && from_line(line.as_bytes()).is_none(), "{line}");
        }
        for line in [&tuned.as_bytes()[..tuned.len() / 2], b"{\"version\":2}", b"[1, 2]", b"\xff\xfe"] {
            assert_eq!(from_line(line), None);
        }
    }
}
