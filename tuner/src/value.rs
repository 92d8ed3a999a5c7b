//! Values on axes, and configurations, which contain one value for each axis.
//!
//! A configuration can be parsed from its JSON form and from its text form. Two configurations are equal if and only if
//! they have the same values on the same axes.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use warpsmith_runtime::{Dim, Launch};

use crate::error::{Error, Result};
use crate::space::Grid;

/// Value on an axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number, for example of threads, items or bytes.
    Number(u64),
    /// Text, for example `waves:4`.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Text(text) => text.fmt(f),
        }
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Value::Number(number.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Number(number)
    }
}

/// # Panics
/// Panics if the number is negative.
impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Value::Number(number.try_into().expect("values are not negative"))
    }
}

/// Converts a string to a number if possible; otherwise keeps it as text.
impl From<&str> for Value {
    fn from(text: &str) -> Self {
        match text.parse() {
            Ok(number) => Value::Number(number),
            Err(_) => Value::Text(text.into()),
        }
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

/// A configuration: one value for each axis of a space, ordered by the names of the axes.
///
/// ```
/// use warpsmith_tuner::value::Configuration;
///
/// let configuration: Configuration = "block=256 grid=waves:4".parse()?;
/// assert_eq!(configuration.number("block")?, 256);
/// assert_eq!(configuration.to_string(), "block=256 grid=waves:4");
/// # Ok::<(), warpsmith_tuner::error::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Configuration(BTreeMap<String, Value>);

impl Configuration {
    /// Returns the value on an axis.
    pub fn get(&self, axis: &str) -> Option<&Value> {
        self.0.get(axis)
    }

    /// Returns the axes with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(axis, value)| (axis.as_str(), value))
    }

    /// Returns this configuration with a different value on an axis. If the axis is missing, it is added.
    #[must_use]
    pub fn with(mut self, axis: &str, value: impl Into<Value>) -> Self {
        self.0.insert(axis.to_owned(), value.into());
        self
    }

    /// Returns the number on an axis.
    ///
    /// # Errors
    /// Returns [`Error::Axis`] if the axis does not exist or its value is not a 32-bit number.
    pub fn number(&self, axis: &str) -> Result<u32> {
        let fail = |text: String, reason: &str| Error::Axis {
            axis: axis.to_owned(),
            text,
            reason: reason.to_owned(),
        };
        match self.get(axis) {
            Some(Value::Number(number)) => {
                u32::try_from(*number).map_err(|_| fail(number.to_string(), "it does not fit into 32 bits"))
            }
            Some(Value::Text(text)) => Err(fail(text.to_string(), "it is not a number")),
            None => Err(fail(String::new(), "the configuration has no such axis")),
        }
    }

    /// Returns the block shape on the axis `block`, such as `128`, `16x16` or `8x8x4`, or `None` if there is no such
    /// axis.
    ///
    /// # Errors
    /// Returns [`Error::Axis`] if the value is not a block shape.
    pub fn block(&self) -> Result<Option<[u32; 3]>> {
        let Some(value) = self.get("block") else { return Ok(None) };
        let text = value.to_string();
        match parse_block(&text) {
            Some(block) => Ok(Some(block)),
            None => Err(Error::Axis {
                axis: "block".to_owned(),
                text,
                reason: "use threads along x, y and z, for example 128, 16x16 or 8x8x4".to_owned(),
            }),
        }
    }

    /// Returns a launch configuration that covers an extent of one to three dimensions. The axes `block` (such as
    /// `16x16`), `shared` (in bytes) and `cluster` (blocks along x) are used if present.
    ///
    /// # Errors
    /// Returns [`Error::Axis`] if a value is invalid on its axis, or if there is an axis `grid`.
    pub fn cover(&self, extent: impl Into<Dim>) -> Result<Launch> {
        if let Some(grid) = self.get("grid") {
            return Err(Error::Axis {
                axis: "grid".to_owned(),
                text: grid.to_string(),
                reason: "the grid of an extent follows from the block; remove the axis".to_owned(),
            });
        }
        let launch = Launch::cover(extent);
        self.with_resources(match self.block()? {
            Some(block) => launch.block(block),
            None => launch,
        })
    }

    /// Returns a launch configuration for `n` threads or items. The axes `block`, `grid`, `shared` (in bytes) and
    /// `cluster` (in blocks) are used if present.
    ///
    /// # Errors
    /// Returns [`Error::Axis`] if a value is invalid on its axis.
    pub fn launch(&self, n: usize) -> Result<Launch> {
        let block = match self.block()? {
            None => None,
            Some([threads, 1, 1]) => Some(threads),
            Some(_) => {
                return Err(Error::Axis {
                    axis: "block".to_owned(),
                    text: self.get("block").map(Value::to_string).unwrap_or_default(),
                    reason: "a multidimensional block needs an extent: use `ArrayKernel::shape` or \
                             `Configuration::cover`"
                        .to_owned(),
                });
            }
        };
        let grid = self.get("grid").map(|value| value.to_string().parse::<Grid>()).transpose()?;
        let launch = match (block, grid.unwrap_or(Grid::Auto)) {
            (None, Grid::Auto) => Launch::auto(n),
            (None, Grid::Waves(waves)) => Launch::auto(n).waves(waves),
            (Some(block), Grid::Auto) => Launch::linear(n, block),
            (Some(block), Grid::Waves(waves)) => Launch::linear(n, block).waves(waves),
            (Some(block), Grid::Blocks(blocks)) => Launch::grid_block(blocks, block),
            (None, Grid::Blocks(blocks)) => {
                return Err(Error::Axis {
                    axis: "grid".to_owned(),
                    text: format!("blocks:{blocks}"),
                    reason: "it also needs a value for block".to_owned(),
                });
            }
        };
        self.with_resources(launch)
    }

    fn with_resources(&self, mut launch: Launch) -> Result<Launch> {
        if self.get("shared").is_some() {
            launch = launch.shared(self.number("shared")?);
        }
        if self.get("cluster").is_some() {
            launch = launch.cluster(self.number("cluster")?);
        }
        Ok(launch)
    }
}

/// Parses the numbers of threads along x, y and z, each at least 1, from a string such as `16x16`.
pub(crate) fn parse_block(text: &str) -> Option<[u32; 3]> {
    let mut block = [1; 3];
    for (index, side) in text.split('x').enumerate() {
        *block.get_mut(index)? = side.parse().ok().filter(|side| *side > 0)?;
    }
    Some(block)
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (axis, value)) in self.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{axis}={value}")?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Configuration {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut all = Self::default();
        for part in text.split([' ', ',']).filter(|part| !part.is_empty()) {
            let fail = |axis: &str, reason: &str| Error::Axis {
                axis: axis.to_owned(),
                text: part.to_owned(),
                reason: reason.to_owned(),
            };
            let pair = part.split_once('=').filter(|(axis, value)| !axis.is_empty() && !value.is_empty());
            let (axis, value) = pair.ok_or_else(|| {
                fail(
                    "configuration",
                    "write AXIS=VALUE pairs separated by commas, for example block=256,grid=waves:4",
                )
            })?;
            if all.0.insert(axis.to_owned(), value.into()).is_some() {
                return Err(fail(axis, "the axis occurs twice; give one value per axis"));
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_read_back_from_text_and_json() {
        for text in ["block=256 grid=waves:4 items=8 vector=16", "tile=8x8", ""] {
            let configuration: Configuration = text.parse().unwrap();
            assert_eq!(configuration.to_string(), text);
            let json = serde_json::to_string(&configuration).unwrap();
            assert_eq!(serde_json::from_str::<Configuration>(&json).unwrap(), configuration, "{json}");
        }
        let json = serde_json::to_string(&"grid=auto block=64".parse::<Configuration>().unwrap()).unwrap();
        assert_eq!(json, r#"{"block":64,"grid":"auto"}"#);
        for bad in ["block", "=4", "block=", "block=1 x"] {
            assert!(bad.parse::<Configuration>().unwrap_err().to_string().contains("AXIS=VALUE"), "{bad}");
        }
        for bad in ["block=64,block=128", "block=64 grid=auto block=64"] {
            let message = bad.parse::<Configuration>().unwrap_err().to_string();
            assert!(message.contains("block") && message.contains("twice"), "{message}");
        }
    }

    #[test]
    fn values_of_the_wrong_kind_name_their_axis() {
        let configuration: Configuration = "block=wide big=99999999999".parse().unwrap();
        for axis in ["block", "big", "missing"] {
            assert!(configuration.number(axis).unwrap_err().to_string().contains(axis));
        }
        assert!("grid=sometimes".parse::<Configuration>().unwrap().launch(5).is_err());
        assert!("grid=blocks:5".parse::<Configuration>().unwrap().launch(5).is_err());
    }

    #[test]
    fn launches_follow_the_axes() {
        let launch = |text: &str| text.parse::<Configuration>().unwrap().launch(1000).unwrap();
        assert_eq!(launch("items=4"), Launch::auto(1000));
        assert_eq!(launch("block=64"), Launch::linear(1000, 64));
        assert_eq!(launch("block=64 grid=waves:2 shared=512"), Launch::linear(1000, 64).waves(2).shared(512));
        assert_eq!(launch("block=64 grid=blocks:7"), Launch::grid_block(7, 64));
        let error = "block=16x16".parse::<Configuration>().unwrap().launch(1000).unwrap_err().to_string();
        assert!(error.contains("16x16") && error.contains("multidimensional"), "{error}");
    }

    #[test]
    fn blocks_of_several_dimensions_cover_an_extent() {
        let cover = |text: &str| text.parse::<Configuration>().unwrap().cover((640, 480));
        assert_eq!(cover("items=4").unwrap(), Launch::cover((640, 480)));
        assert_eq!(cover("block=16x8").unwrap(), Launch::cover((640, 480)).block((16, 8)));
        assert_eq!(cover("block=64 cluster=2").unwrap(), Launch::cover((640, 480)).block(64).cluster(2));
        for bad in ["block=16x", "block=0x8", "block=axb", "block=1x2x3x4", "block=16x8 grid=auto"] {
            assert!(matches!(cover(bad), Err(Error::Axis { .. })), "{bad}");
        }
    }
}
