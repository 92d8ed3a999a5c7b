//! A line of the store's file: JSON of this version's form, or what is wrong with it.

use serde::{Deserialize, Serialize};

use super::super::heuristic::GridChoice;
use super::Winner;
use super::key::{Subject, TunedSubject};
use super::tuned::TunedConfiguration;

/// The version of a line's form. Lines of others are passed over.
const VERSION: u32 = 2;
/// The most characters that are said of a damaged line.
const MOST_SAID: usize = 160;

/// What a line says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Entry<'a> {
    /// The block and grid of open launches of an instance.
    Launch {
        #[serde(rename = "for")]
        subject: Subject<'a>,
        block: u32,
        /// `all`, `balanced`, `waves:N` or `blocks:N`.
        grid: String,
        /// The median of what was measured, in microseconds.
        median_us: f64,
    },
    /// The configuration of a kernel.
    Tuned {
        #[serde(rename = "for")]
        subject: TunedSubject<'a>,
        #[serde(flatten)]
        configuration: TunedConfiguration,
    },
}

/// Why a line is not used.
#[derive(Debug, PartialEq)]
pub(super) enum Unusable {
    OtherVersion,
    Damaged(String),
}

#[derive(Serialize)]
struct Line<'a> {
    version: u32,
    #[serde(flatten)]
    entry: &'a Entry<'a>,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl<'a> Entry<'a> {
    pub fn launch(subject: Subject<'a>, winner: Winner, median_us: f64) -> Self {
        let grid = match winner.grid {
            GridChoice::All => "all".to_owned(),
            GridChoice::Balanced => "balanced".to_owned(),
            GridChoice::Waves(waves) => format!("waves:{waves}"),
            GridChoice::Blocks(blocks) => format!("blocks:{blocks}"),
        };
        Entry::Launch { subject, block: winner.block, grid, median_us }
    }

    /// The line, with its end.
    pub fn to_line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(&Line { version: VERSION, entry: self })?;
        line.push(b'\n');
        Ok(line)
    }

    pub fn from_line(line: &[u8]) -> Result<Entry<'static>, Unusable> {
        let damaged = |error: serde_json::Error| Unusable::Damaged(shorten(&error.to_string()));
        let Version { version } = serde_json::from_slice(line).map_err(damaged)?;
        if version != VERSION {
            return Err(Unusable::OtherVersion);
        }
        let entry: Entry<'static> = serde_json::from_slice(line).map_err(damaged)?;
        match entry.mistake() {
            Some(what) => Err(Unusable::Damaged(shorten(&what))),
            None => Ok(entry),
        }
    }

    /// The block and grid of a line of that kind; `None` for what is none.
    pub fn winner(block: u32, grid: &str) -> Option<Winner> {
        let count = |digits: &str| digits.parse::<u32>().ok().filter(|count| *count > 0);
        let grid = match (grid, grid.split_once(':')) {
            ("all", _) => GridChoice::All,
            ("balanced", _) => GridChoice::Balanced,
            (_, Some(("waves", waves))) => GridChoice::Waves(count(waves)?),
            (_, Some(("blocks", blocks))) => GridChoice::Blocks(count(blocks)?),
            _ => return None,
        };
        (block > 0).then_some(Winner { block, grid })
    }

    fn mistake(&self) -> Option<String> {
        match self {
            Entry::Launch { subject, block, grid, median_us } => match () {
                () if !subject.is_possible() => Some("there is no such bucket".to_owned()),
                () if Self::winner(*block, grid).is_none() => {
                    Some(format!("block {block} and grid `{grid}` are no launch"))
                }
                () if !(median_us.is_finite() && *median_us >= 0.0) => Some("the time is none".to_owned()),
                () => None,
            },
            Entry::Tuned { subject, .. } if !subject.is_possible() => {
                Some("there is no such bucket or alignment".to_owned())
            }
            Entry::Tuned { configuration, .. } => {
                configuration.check().err().map(|problem| problem.to_string())
            }
        }
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MOST_SAID) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::occupancy::tests::gpu;
    use super::super::key::TunedFor;
    use super::super::tuned::tests::tuned;
    use super::*;

    fn entries(device: &crate::DeviceProperties) -> [Entry<'_>; 2] {
        let winner = Winner { block: 128, grid: GridChoice::Waves(2) };
        let subject = Subject::of(device, ("test", "axpy"), 7, false, 1000);
        let tuned_for = TunedFor {
            device,
            package: "test",
            kernel: "axpy",
            types: "f32",
            image: 0,
            n: 1000,
            alignment: 16,
        };
        [
            Entry::launch(subject, winner, 3.5),
            Entry::Tuned {
                subject: TunedSubject::of(&tuned_for).unwrap(),
                configuration: tuned(&[("block", "256"), ("grid", "waves:4"), ("a \"b\"\n", "µ")]),
            },
        ]
    }

    #[test]
    fn lines_round_trip_and_are_one_line() {
        let device = gpu((9, 0));
        for entry in entries(&device) {
            let line = entry.to_line().unwrap();
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(Entry::from_line(&line), Ok(entry), "{}", String::from_utf8_lossy(&line));
        }
    }

    #[test]
    fn what_is_no_line_of_ours_is_said_and_other_versions_are_told_apart() {
        let device = gpu((9, 0));
        let [launch, tuned] =
            entries(&device).map(|entry| String::from_utf8(entry.to_line().unwrap()).unwrap());
        let of = |line: &str| Entry::from_line(line.as_bytes()).unwrap_err();
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
