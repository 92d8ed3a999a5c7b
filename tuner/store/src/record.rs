//! A line of the store's file: JSON of this version's form, or what is wrong with it.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use warpsmith_runtime::launch::TunedConfiguration;
use warpsmith_runtime::launch::store::{
    Code, DeviceClass, GridChoice, LaunchSubject, Record, TunedSubject, Winner,
};

/// The version of a line's form. Lines of others are passed over.
const VERSION: u32 = 2;
/// The most characters that are said of a damaged line.
const MOST_SAID: usize = 160;

/// What a line says.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Entry<'a> {
    Launch {
        #[serde(rename = "for")]
        subject: LaunchFor<'a>,
        block: u32,
        /// `all`, `balanced`, `waves:N` or `blocks:N`.
        grid: String,
        median_us: f64,
    },
    Tuned {
        #[serde(rename = "for")]
        subject: TunedFor<'a>,
        values: Cow<'a, [(String, String)]>,
        symbol: Cow<'a, Option<String>>,
        median_us: f64,
        toolchain: Cow<'a, str>,
    },
}

#[derive(Serialize, Deserialize)]
struct Device<'a> {
    name: Cow<'a, str>,
    capability: (u32, u32),
    multiprocessors: u32,
    l2_bytes: u64,
    driver: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct CodeOf<'a> {
    package: Cow<'a, str>,
    #[serde(serialize_with = "to_hex", deserialize_with = "from_hex")]
    image: u64,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    runtime: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct LaunchFor<'a> {
    device: Device<'a>,
    code: CodeOf<'a>,
    symbol: Cow<'a, str>,
    is_loop: bool,
    bucket: u32,
}

#[derive(Serialize, Deserialize)]
struct TunedFor<'a> {
    device: Device<'a>,
    code: CodeOf<'a>,
    kernel: Cow<'a, str>,
    types: Cow<'a, str>,
    bucket: u32,
    alignment: u32,
}

#[derive(Serialize)]
struct Line<'a> {
    version: u32,
    #[serde(flatten)]
    entry: Entry<'a>,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Why a line is not used.
#[derive(Debug, PartialEq)]
pub enum Unusable {
    OtherVersion,
    Damaged(String),
}

/// The line of a record, with its end.
pub fn to_line(record: &Record<'_>) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Line { version: VERSION, entry: Entry::of(record) })?;
    line.push(b'\n');
    Ok(line)
}

/// The record of a line.
pub fn from_line(line: &[u8]) -> Result<Record<'static>, Unusable> {
    let damaged = |error: serde_json::Error| Unusable::Damaged(shorten(&error.to_string()));
    let Version { version } = serde_json::from_slice(line).map_err(damaged)?;
    if version != VERSION {
        return Err(Unusable::OtherVersion);
    }
    let entry: Entry<'static> = serde_json::from_slice(line).map_err(damaged)?;
    let record = entry.into_record().map_err(|what| Unusable::Damaged(shorten(&what)))?;
    match record.check() {
        Ok(()) => Ok(record),
        Err(problem) => Err(Unusable::Damaged(shorten(&problem.to_string()))),
    }
}

/// Whether a line of the file can be used.
///
/// # Errors
/// What is wrong with it.
pub fn check_line(line: &[u8]) -> Result<(), String> {
    match from_line(line) {
        Ok(_) => Ok(()),
        Err(Unusable::OtherVersion) => Err(format!("it is not of version {VERSION}")),
        Err(Unusable::Damaged(what)) => Err(what),
    }
}

impl<'a> Entry<'a> {
    fn of(record: &'a Record<'_>) -> Self {
        match record {
            Record::Launch { subject, winner, median_us } => {
                let LaunchSubject { device, code, symbol, is_loop, bucket } = subject;
                let (device, code) = (Device::of(device), CodeOf::of(code));
                let grid = match winner.grid {
                    GridChoice::All => "all".to_owned(),
                    GridChoice::Balanced => "balanced".to_owned(),
                    GridChoice::Waves(waves) => format!("waves:{waves}"),
                    GridChoice::Blocks(blocks) => format!("blocks:{blocks}"),
                };
                let subject = LaunchFor {
                    device,
                    code,
                    symbol: (&**symbol).into(),
                    is_loop: *is_loop,
                    bucket: *bucket,
                };
                Entry::Launch { subject, block: winner.block, grid, median_us: *median_us }
            }
            Record::Tuned { subject, configuration } => {
                let TunedSubject { device, code, kernel, types, bucket, alignment } = subject;
                let (device, code) = (Device::of(device), CodeOf::of(code));
                let (kernel, types) = ((&**kernel).into(), (&**types).into());
                let subject =
                    TunedFor { device, code, kernel, types, bucket: *bucket, alignment: *alignment };
                let TunedConfiguration { values, symbol, median_us, toolchain } = configuration;
                let (values, symbol) = (values.into(), Cow::Borrowed(symbol));
                Entry::Tuned { subject, values, symbol, median_us: *median_us, toolchain: toolchain.into() }
            }
        }
    }

    fn into_record(self) -> Result<Record<'a>, String> {
        Ok(match self {
            Entry::Launch { subject, block, grid, median_us } => {
                let LaunchFor { device, code, symbol, is_loop, bucket } = subject;
                let (device, code) = (device.into_class(), code.into_code());
                let grid =
                    grid_of(&grid).ok_or_else(|| format!("block {block} and grid `{grid}` are no launch"))?;
                let subject = LaunchSubject { device, code, symbol, is_loop, bucket };
                Record::Launch { subject, winner: Winner { block, grid }, median_us }
            }
            Entry::Tuned { subject, values, symbol, median_us, toolchain } => {
                let TunedFor { device, code, kernel, types, bucket, alignment } = subject;
                let (device, code) = (device.into_class(), code.into_code());
                let subject = TunedSubject { device, code, kernel, types, bucket, alignment };
                let (values, symbol) = (values.into_owned(), symbol.into_owned());
                let toolchain = toolchain.into_owned();
                Record::Tuned {
                    subject,
                    configuration: TunedConfiguration { values, symbol, median_us, toolchain },
                }
            }
        })
    }
}

impl<'a> Device<'a> {
    fn of(device: &'a DeviceClass<'_>) -> Self {
        let DeviceClass { name, capability, multiprocessors, l2_bytes, driver } = device;
        Self {
            name: (&**name).into(),
            capability: *capability,
            multiprocessors: *multiprocessors,
            l2_bytes: *l2_bytes,
            driver: (&**driver).into(),
        }
    }

    fn into_class(self) -> DeviceClass<'a> {
        let Self { name, capability, multiprocessors, l2_bytes, driver } = self;
        DeviceClass { name, capability, multiprocessors, l2_bytes, driver }
    }
}

impl<'a> CodeOf<'a> {
    fn of(code: &'a Code<'_>) -> Self {
        let Code { package, image, runtime } = code;
        Self { package: (&**package).into(), image: *image, runtime: (&**runtime).into() }
    }

    fn into_code(self) -> Code<'a> {
        let Self { package, image, runtime } = self;
        Code { package, image, runtime }
    }
}

fn grid_of(text: &str) -> Option<GridChoice> {
    let count = |digits: &str| digits.parse::<u32>().ok().filter(|count| *count > 0);
    match (text, text.split_once(':')) {
        ("all", _) => Some(GridChoice::All),
        ("balanced", _) => Some(GridChoice::Balanced),
        (_, Some(("waves", waves))) => Some(GridChoice::Waves(count(waves)?)),
        (_, Some(("blocks", blocks))) => Some(GridChoice::Blocks(count(blocks)?)),
        _ => None,
    }
}

fn to_hex<S: Serializer>(image: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{image:016x}"))
}

fn from_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    u64::from_str_radix(&text, 16).map_err(|_| serde::de::Error::custom("the image is no number of base 16"))
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MOST_SAID) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let winner = Winner { block: 128, grid: GridChoice::Waves(2) };
        [
            Record::Launch { subject: launch, winner, median_us: 3.5 },
            Record::Tuned { subject: tuned, configuration },
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
    fn what_is_no_line_of_ours_is_said_and_other_versions_are_told_apart() {
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
            assert!(said.contains(what) && said.chars().count() <= MOST_SAID + 1, "{line}: {said}");
        }
    }
}
