//! Environment variables, and errors for invalid values.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::error::{CollectiveError, Error, Result};

/// Names and prefixes of the variables read from the environment.
const NAMES: [&str; 13] = [
    "WARPSMITH_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_",
    "TORCHELASTIC_",
    "SLURM_",
    "OMPI_COMM_WORLD_",
    "PMI_",
    "MPI_LOCAL",
    "PMIX_NAMESPACE",
    "SLURMD_",
];

/// Environment variables of a process.
#[derive(Debug)]
pub(super) struct Variables {
    values: BTreeMap<String, String>,
    /// ID of the parent process.
    pub parent: Option<u32>,
}

/// Variable with its parsed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read<T> {
    pub name: &'static str,
    pub value: T,
}

impl Variables {
    pub fn new(values: &BTreeMap<String, String>, parent: Option<u32>) -> Self {
        Self { values: values.clone(), parent }
    }

    /// Reads the environment of this process.
    pub fn of_process() -> Result<Self> {
        let mut values = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            let Ok(name) = name.into_string() else { continue };
            if !NAMES.iter().any(|begin| name.starts_with(begin)) {
                continue;
            }
            match value.into_string() {
                Ok(value) => values.insert(name, value),
                Err(value) => {
                    let value = value.to_string_lossy().into_owned();
                    return Err(CollectiveError::Variable {
                        name,
                        value,
                        problem: "this is not UTF-8".to_owned(),
                    }
                    .into());
                }
            };
        }
        #[cfg(unix)]
        let parent = Some(std::os::unix::process::parent_id());
        #[cfg(not(unix))]
        let parent = None;
        Ok(Self { values, parent })
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Parses a variable as an integer.
    pub fn number<T: FromStr>(&self, name: &'static str) -> Result<Option<Read<T>>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.trim().parse() {
            Ok(value) => Ok(Some(Read { name, value })),
            Err(_) => {
                Err(self.wrong(name, "this must be a non-negative integer within the range of its type"))
            }
        }
    }

    /// Parses the first of several variables that is set, as an integer.
    pub fn first<T: FromStr>(&self, names: &[&'static str]) -> Result<Option<Read<T>>> {
        names.iter().find(|name| self.has(name)).map_or(Ok(None), |name| self.number(name))
    }

    /// Returns an error for a variable's value.
    pub fn wrong(&self, name: &str, problem: impl Into<String>) -> Error {
        let value = self.text(name).unwrap_or_default().to_owned();
        CollectiveError::Variable { name: name.to_owned(), value, problem: problem.into() }.into()
    }

    /// Formats a variable as `NAME=VALUE`.
    pub fn shown(&self, name: &str) -> String {
        format!("{name}={}", self.text(name).unwrap_or_default())
    }
}
