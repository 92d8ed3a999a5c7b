//! A record of the store and its line in the file. Parsing a line returns a record in this version's format, or the
//! reason why the line is not used.

use std::borrow::Cow;
use std::path::Path;

use crate::launch::policy::GridChoice;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::problem::StoreProblem;
use super::subject::{LaunchSubject, TunedSubject};
use super::tuned::TunedConfiguration;
use super::{cannot, lines};

/// Version of the line format. Lines of other versions are ignored.
const VERSION: u32 = 2;
/// Maximum length of a damaged line's description, in characters.
const MAX_SAID: usize = 160;

/// A record in a store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Record<'a> {
    /// The block and grid size for launches of an instance that do not specify them.
    Launch {
        #[serde(rename = "for")]
        subject: LaunchSubject<'a>,
        block: u32,
        #[serde(serialize_with = "grid_to_text", deserialize_with = "grid_from_text")]
        grid: GridChoice,
        /// Median of the measured times, in microseconds.
        median_us: f64,
    },
    /// The tuned configuration of a kernel.
    Tuned {
        #[serde(rename = "for")]
        subject: TunedSubject<'a>,
        #[serde(flatten)]
        configuration: Cow<'a, TunedConfiguration>,
    },
}

impl Record<'_> {
    /// Returns an error if the record contains values that neither a launch nor a tuner can produce.
    fn check(&self) -> Result<(), StoreProblem> {
        let wrong = |what: &str| Err(StoreProblem::Configuration { what: what.to_owned() });
        match self {
            Record::Launch { subject, block, median_us, .. } => match () {
                () if !subject.is_possible() => wrong("there is no such bucket"),
                () if *block == 0 => wrong("a block of 0 threads cannot be launched"),
                () if !(median_us.is_finite() && *median_us >= 0.0) => wrong("the time is invalid"),
                () => Ok(()),
            },
            Record::Tuned { subject, .. } if !subject.is_possible() => {
                wrong("there is no such bucket or alignment")
            }
            Record::Tuned { configuration, .. } => configuration.check(),
        }
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
/// Returns a text that states the failed operation, the file, the cause and the remedy.
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

/// Returns an error if a line of the file cannot be used.
///
/// # Errors
/// Returns the reason why the line is damaged.
pub fn check_line(line: &[u8]) -> Result<(), String> {
    match from_line(line) {
        Ok(_) => Ok(()),
        Err(Unusable::OtherVersion) => Err(format!("its version is not {VERSION}")),
        Err(Unusable::Damaged(what)) => Err(what),
    }
}

/// Serializes the rule as `all`, `balanced`, `waves:N` or `blocks:N`.
fn grid_to_text<S: Serializer>(grid: &GridChoice, serializer: S) -> Result<S::Ok, S::Error> {
    match grid {
        GridChoice::All => serializer.serialize_str("all"),
        GridChoice::Balanced => serializer.serialize_str("balanced"),
        GridChoice::Waves(waves) => serializer.collect_str(&format_args!("waves:{waves}")),
        GridChoice::Blocks(blocks) => serializer.collect_str(&format_args!("blocks:{blocks}")),
    }
}

fn grid_from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GridChoice, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    let count = |digits: &str| digits.parse::<u32>().ok().filter(|count| *count > 0);
    let grid = match (&*text, text.split_once(':')) {
        ("all", _) => Some(GridChoice::All),
        ("balanced", _) => Some(GridChoice::Balanced),
        (_, Some(("waves", waves))) => count(waves).map(GridChoice::Waves),
        (_, Some(("blocks", blocks))) => count(blocks).map(GridChoice::Blocks),
        _ => None,
    };
    grid.ok_or_else(|| serde::de::Error::custom(format_args!("`{text}` is no grid")))
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

    fn records() -> [Record<'static>; 2] {
        let device = DeviceClass {
            name: "NVIDIA H200".into(),
            capability: (9, 0),
            multiprocessors: 132,
            l2_bytes: 50 << 20,
            driver: "13".into(),
        };
        let code = Code { package: "test".into(), image: 7, runtime: "".into() };
        let values = [("block", "256"), ("grid", "waves:4"), ("a \"b\"\n", "µ")];
        let configuration = TunedConfiguration {
            values: values.map(|(axis, value)| (axis.to_owned(), value.to_owned())).into(),
            symbol: Some("axpy__f32_8_16".to_owned()),
            median_us: 3.5,
            toolchain: "rustc 1.96.0".to_owned(),
        };
        let launch = LaunchSubject {
            device: device.clone(),
            code: code.clone(),
            symbol: "axpy".into(),
            is_loop: false,
            bucket: 19,
        };
        let (kernel, types) = ("axpy".into(), "f32".into());
        let code = Code { image: 0, runtime: "0.1.0".into(), ..code };
        let tuned = TunedSubject { device, code, kernel, types, bucket: 19, alignment: 16 };
        [
            Record::Launch { subject: launch, block: 128, grid: GridChoice::Waves(2), median_us: 3.5 },
            Record::Tuned { subject: tuned, configuration: Cow::Owned(configuration) },
        ]
    }

    #[test]
    fn lines_round_trip_and_are_one_line() {
        for record in records() {
            let line = to_line(&record).unwrap();
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(from_line(&line), Ok(record), "{}", String::from_utf8_lossy(&line));
        }
    }

    #[test]
    fn lines_of_earlier_programs_are_read() {
        let launch = r#"{"version":2,"kind":"launch","for":{"device":{"name":"NVIDIA H200","capability":[9,0],"multiprocessors":132,"l2_bytes":52428800,"driver":"13"},"code":{"package":"test","image":"0000000000000007"},"symbol":"axpy","is_loop":false,"bucket":19},"block":128,"grid":"waves:2","median_us":3.5}"#;
        let tuned = r#"{"version":2,"kind":"tuned","for":{"device":{"name":"NVIDIA H200","capability":[9,0],"multiprocessors":132,"l2_bytes":52428800,"driver":"13"},"code":{"package":"test","image":"0","runtime":"0.1.0"},"kernel":"axpy","types":"f32","bucket":19,"alignment":16},"values":[["block","256"],["grid","waves:4"],["a \"b\"\n","µ"]],"symbol":"axpy__f32_8_16","median_us":3.5,"toolchain":"rustc 1.96.0"}"#;
        assert_eq!([launch, tuned].map(|line| from_line(line.as_bytes()).unwrap()), records());
    }

    #[test]
    fn foreign_lines_and_other_versions_are_distinguished() {
        let [launch, tuned] = records().map(|record| String::from_utf8(to_line(&record).unwrap()).unwrap());
        let of = |line: &str| from_line(line.as_bytes()).unwrap_err();
        for version in ["1", "3"] {
            let other = launch.replace("\"version\":2", &format!("\"version\":{version}"));
            assert_eq!(of(&other), Unusable::OtherVersion);
        }
        assert_eq!(of(r#"{"version":1,"device":"x"}"#), Unusable::OtherVersion);
        let damaged = [
            (launch.replace("waves:2", "waves:0"), "waves:0"),
            (launch.replace("waves:2", "sometimes"), "sometimes"),
            (launch.replace("\"block\":128", "\"block\":0"), "block 0"),
            (launch.replace("\"median_us\":3.5", "\"median_us\":-3.5"), "time"),
            (launch.replace("\"bucket\":19", "\"bucket\":128"), "bucket"),
            (launch.replace("\"image\":\"", "\"image\":\"x"), "base 16"),
            (launch.replace("launch", "lunch"), "lunch"),
            (tuned.replace("\"alignment\":16", "\"alignment\":3"), "alignment"),
            (tuned.replace("\"median_us\":3.5", "\"median_us\":0"), "above 0"),
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
