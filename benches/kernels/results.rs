//! Measured results as a tab-separated file, with a line for the device, a line for the columns, and then one line per
//! case.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::cases::{Case, cases};
use crate::measure::Times;

type Failure = Box<dyn std::error::Error>;

const COLUMNS: &str = "operation\ttype\trows\tcolumns\tours_us\tcub_us\ttorch_us\tcub_fault";

/// Case with its times.
#[derive(Debug, Clone)]
pub struct Row {
    pub case: Case,
    pub times: Times,
    /// Time of PyTorch.
    pub torch: Option<f64>,
}

impl Row {
    pub fn new(case: Case, times: Times, torch: &BTreeMap<String, f64>) -> Self {
        let torch = torch.get(&case.to_string()).copied();
        Self { case, times, torch }
    }

    /// Returns the bandwidth in GB/s for a time.
    pub fn gigabytes(&self, us: f64) -> f64 {
        self.case.bytes() / us / 1e3
    }
}

/// All rows, with the device on which they were measured.
#[derive(Debug)]
pub struct Results {
    pub device: String,
    pub rows: Vec<Row>,
}

impl Results {
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let mut text = format!("{}\n{COLUMNS}\n", self.device);
        for Row { case, times, torch } in &self.rows {
            let us = |time: Option<f64>| time.map_or_else(String::new, |us| format!("{us:.3}"));
            let columns = [times.ours, times.cub, *torch].map(us).join("\t");
            let fault = times.cub_fault.as_deref().unwrap_or_default().replace(['\t', '\n'], " ");
            writeln!(text, "{case}\t{columns}\t{fault}")?;
        }
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    /// Reads a file that [`write`](Self::write) wrote.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut lines = text.lines();
        let device = lines.next().unwrap_or_default().to_owned();
        if lines.next() != Some(COLUMNS) {
            return Err(
                format!("{}: the second line does not name the columns of results", path.display()).into()
            );
        }
        let known: BTreeMap<String, Case> =
            [false, true].into_iter().flat_map(cases).map(|case| (case.to_string(), case)).collect();
        let row = |line: &str| -> Result<Row, Failure> {
            let columns: Vec<&str> = line.split('\t').collect();
            let [operation, dtype, rows, sides, ours, cub, torch, fault] = columns[..] else {
                return Err(format!("{}: {line:?} has {} columns", path.display(), columns.len()).into());
            };
            let case = [operation, dtype, rows, sides].join("\t");
            let case =
                known.get(&case).ok_or_else(|| format!("{}: there is no case {case:?}", path.display()))?;
            let us = |text: &str| if text.is_empty() { Ok(None) } else { text.parse().map(Some) };
            let cub_fault = (!fault.is_empty()).then(|| fault.to_owned());
            let times = Times { ours: us(ours)?, cub: us(cub)?, cub_fault };
            Ok(Row { case: case.clone(), times, torch: us(torch)? })
        };
        Ok(Self { device, rows: lines.map(row).collect::<Result<_, _>>()? })
    }
}
