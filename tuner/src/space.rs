//! Configuration space of a kernel: axes, and restrictions on the combinations of their values.
//!
//! [`Space::configurations`] is the product of the axes without the configurations that a restriction excludes. It
//! contains no duplicates; its order follows the order of the axes, with the last axis varying fastest. A value that is
//! invalid on its axis is an error and is never silently ignored; an empty space is an error, too.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gpu_spec::KernelSpec;

use crate::error::{Error, Result};
use crate::value::{Configuration, Value, parse_block};

/// Maximum number of value combinations before restrictions are applied.
const MAX_CONFIGURATIONS: usize = 1_000_000;

/// Rule that determines the number of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grid {
    /// The number of blocks that the launch chooses by default.
    Auto,
    /// This many waves: a multiple of the number of blocks that can be resident on the device concurrently.
    Waves(u32),
    /// Exactly this number of blocks.
    Blocks(u32),
}

impl FromStr for Grid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let count = |digits: &str| digits.parse::<u32>().ok().filter(|&n| n > 0);
        let rule = match text.trim().split_once(':') {
            None if text.trim() == "auto" => Some(Grid::Auto),
            Some(("waves", n)) => count(n).map(Grid::Waves),
            Some(("blocks", n)) => count(n).map(Grid::Blocks),
            _ => None,
        };
        rule.ok_or_else(|| Error::Axis {
            axis: "grid".to_owned(),
            text: text.to_owned(),
            reason: "use auto, waves:N or blocks:N with N of at least 1, for example waves:4".to_owned(),
        })
    }
}

/// Kind of values on an axis, which determines the values that users can specify in addition to the declared ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisKind {
    /// Values that are compiled in or otherwise fixed; only the declared ones are valid.
    Fixed,
    /// Threads per block, such as `128`, `16x16` or `8x8x4`. The product may be any multiple of 32, up to the device's
    /// limit.
    Block,
    /// Number of blocks; see [`Grid`].
    Grid,
    /// Dynamic shared memory per block in bytes, which may be any number.
    Shared,
    /// Blocks per cluster, from 1 to 16.
    Cluster,
}

/// An axis: its name, and the values to be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// Name of the axis in `--axis NAME=…` and in results.
    pub name: Arc<str>,
    /// Kind of the values.
    pub kind: AxisKind,
    /// Values to try, in order. The search tries the neighbors of a value in this list.
    pub values: Vec<Value>,
}

type Rule = Arc<dyn Fn(&Configuration) -> bool + Send + Sync>;

/// Configuration space: axes and restrictions.
///
/// ```
/// use warpsmith_tuner::space::Space;
///
/// let space = Space::new()
///     .axis("block", [64, 128, 256])
///     .axis("grid", ["auto", "waves:4"])
///     .axis("tile", [1, 2, 4])
///     .restrict("tiles of a block fit shared memory", |c| {
///         c.number("block").is_ok_and(|block| c.number("tile").is_ok_and(|tile| block * tile <= 512))
///     });
/// assert_eq!(space.configurations("mine")?.len(), 2 * 8);
/// # Ok::<(), warpsmith_tuner::error::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Space {
    axes: Vec<Axis>,
    restrictions: Vec<(Arc<str>, Rule)>,
    /// Maximum number of threads per block on the device; 0 if unknown.
    max_block: u32,
}

impl Space {
    /// Creates a space without axes, which contains a single configuration without values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an axis. [`AxisKind`] defines the meaning of the axes `block`, `grid`, `shared` and `cluster`. Any other
    /// axis accepts only its declared values.
    #[must_use]
    pub fn axis(mut self, name: &str, values: impl IntoIterator<Item = impl Into<Value>>) -> Self {
        let kind = match name {
            "block" => AxisKind::Block,
            "grid" => AxisKind::Grid,
            "shared" => AxisKind::Shared,
            "cluster" => AxisKind::Cluster,
            _ => AxisKind::Fixed,
        };
        let values = values.into_iter().map(Into::into).collect();
        self.axes.retain(|axis| &*axis.name != name);
        self.axes.push(Axis { name: name.into(), kind, values });
        self
    }

    /// Adds an axis for each constant parameter of a kernel. The axis name is in lower case (`ITEMS` becomes `items`).
    /// The axes are restricted to the combinations that were compiled, and block sizes are restricted to the launch
    /// bounds of the instances.
    #[must_use]
    pub fn instances(mut self, instances: &[&'static KernelSpec]) -> Self {
        let Some(first) = instances.first() else { return self };
        let names: Vec<&str> = first.consts.iter().map(|argument| argument.parameter).collect();
        for name in &names {
            let values: BTreeSet<i64> =
                instances.iter().filter_map(|spec| spec.const_argument(name)).collect();
            self = self.axis(&name.to_lowercase(), values.into_iter().filter_map(|v| u64::try_from(v).ok()));
        }
        let known = instances.to_vec();
        self.restrict("what was compiled, in blocks within its launch bounds", move |configuration| {
            instance(&known, configuration).is_some_and(|spec| {
                let Ok(Some(block)) = configuration.block() else { return true };
                spec.block.is_none_or(|required| required == block)
                    && spec.launch_bounds.is_none_or(|bounds| threads(block) <= bounds.max_threads.into())
            })
        })
    }

    /// Excludes the configurations for which `rule` returns false. If no configuration remains, the error contains
    /// `name`.
    #[must_use]
    pub fn restrict(
        mut self,
        name: &str,
        rule: impl Fn(&Configuration) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.restrictions.push((name.into(), Arc::new(rule)));
        self
    }

    /// Sets the device's maximum number of threads per block, which limits the values on the axis `block`.
    #[must_use]
    pub fn max_block(mut self, threads: u32) -> Self {
        self.max_block = threads;
        self
    }

    /// Returns the axes of the space.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Replaces the values of an axis. Duplicate values count once.
    ///
    /// # Errors
    /// Returns [`Error::Axis`] for an unknown axis, for an empty list, and for a value that is invalid on the axis.
    pub fn set(&mut self, kernel: &str, name: &str, values: &[Value]) -> Result<()> {
        let fail =
            |text: &str, reason: String| Error::Axis { axis: name.to_owned(), text: text.to_owned(), reason };
        let names: Vec<String> = self.axes.iter().map(|axis| axis.name.to_string()).collect();
        let max_block = self.max_block;
        let Some(axis) = self.axes.iter_mut().find(|axis| &*axis.name == name) else {
            return Err(fail("", format!("{kernel} has no such axis; it has {}", names.join(", "))));
        };
        if values.is_empty() {
            return Err(fail("", "give at least one value".to_owned()));
        }
        for value in values {
            check(axis, value, max_block)
                .map_err(|reason| fail(&value.to_string(), format!("{kernel}: {reason}")))?;
        }
        let mut seen = HashSet::new();
        axis.values = values.iter().filter(|value| seen.insert((*value).clone())).cloned().collect();
        Ok(())
    }

    /// Returns the name of the first restriction that excludes a configuration, if any.
    pub fn refused_by(&self, configuration: &Configuration) -> Option<&str> {
        self.restrictions.iter().find(|(_, rule)| !rule(configuration)).map(|(name, _)| &**name)
    }

    /// Returns every configuration.
    ///
    /// # Errors
    /// Returns [`Error::EmptySpace`], which contains the number of configurations before restrictions, and the
    /// restrictions that exclude them. Returns [`Error::Axis`] if there are more than a million combinations.
    pub fn configurations(&self, kernel: &str) -> Result<Vec<Configuration>> {
        let lengths = self.axes.iter().map(|axis| axis.values.len());
        let product = lengths.fold(1usize, usize::saturating_mul);
        if product > MAX_CONFIGURATIONS {
            let axes: Vec<&str> = self.axes.iter().map(|axis| &*axis.name).collect();
            return Err(Error::Axis {
                axis: axes.join(", "),
                text: format!("{product} configurations"),
                reason: format!(
                    "{kernel} can have at most {MAX_CONFIGURATIONS} configurations before restrictions; give fewer \
                     values, for example with larger steps of a range"
                ),
            });
        }
        let mut all = vec![Configuration::default()];
        for axis in &self.axes {
            let longer = |configuration: Configuration| {
                axis.values.iter().map(move |value| configuration.clone().with(&axis.name, value.clone()))
            };
            all = all.into_iter().flat_map(longer).collect();
        }
        let before = all.len();
        let mut refused: Vec<(&str, usize)> = Vec::new();
        all.retain(|configuration| match self.refused_by(configuration) {
            None => true,
            Some(name) => {
                match refused.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, count)) => *count += 1,
                    None => refused.push((name, 1)),
                }
                false
            }
        });
        if all.is_empty() {
            let refused = refused.iter().map(|(name, count)| format!("{count} by \"{name}\"")).collect();
            return Err(Error::EmptySpace { kernel: kernel.to_owned(), before, refused });
        }
        let mut seen = HashSet::new();
        all.retain(|configuration| seen.insert(configuration.clone()));
        Ok(all)
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let restrictions: Vec<&str> = self.restrictions.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("Space").field("axes", &self.axes).field("restrictions", &restrictions).finish()
    }
}

/// Returns the instance whose constants equal the values of the configuration on the axes with the same names.
pub fn instance(
    instances: &[&'static KernelSpec],
    configuration: &Configuration,
) -> Option<&'static KernelSpec> {
    let fits = |spec: &&&'static KernelSpec| {
        spec.consts.iter().all(|argument| {
            let value = configuration.get(&argument.parameter.to_lowercase());
            matches!(value, Some(Value::Number(n)) if i64::try_from(*n) == Ok(argument.value))
        })
    };
    instances.iter().find(fits).copied()
}

fn threads(block: [u32; 3]) -> u64 {
    block.iter().map(|side| u64::from(*side)).fold(1, u64::saturating_mul)
}

/// Checks whether a value is valid on an axis. If it is not, returns the reason as the error.
fn check(axis: &Axis, value: &Value, max_block: u32) -> std::result::Result<(), String> {
    match (axis.kind, value) {
        (AxisKind::Fixed, value) if axis.values.contains(value) => Ok(()),
        (AxisKind::Fixed, _) => {
            let list: Vec<String> = axis.values.iter().map(Value::to_string).collect();
            Err(format!("it can be {}", list.join(", ")))
        }
        (AxisKind::Grid, value) => match value.to_string().parse::<Grid>() {
            Ok(_) => Ok(()),
            Err(Error::Axis { reason, .. }) => Err(reason),
            Err(error) => Err(error.to_string()),
        },
        (AxisKind::Block, value) => {
            let limit = if max_block == 0 { 1024 } else { max_block };
            match parse_block(&value.to_string()).map(threads) {
                Some(n) if n.is_multiple_of(32) && n <= u64::from(limit) => Ok(()),
                None if matches!(value, Value::Text(_)) => {
                    Err("it is neither a number nor a block such as 16x16; separate values with commas, for example \
                         128,256 or 16x16,32x8"
                        .to_owned())
                }
                _ => Err(format!("use a multiple of 32 up to {limit}, the device's maximum")),
            }
        }
        (AxisKind::Shared, Value::Number(n)) if u32::try_from(*n).is_ok() => Ok(()),
        (AxisKind::Cluster, Value::Number(1..=16)) => Ok(()),
        (AxisKind::Cluster, _) => Err("use 1 to 16 blocks".to_owned()),
        (AxisKind::Shared, _) => {
            Err("it is not a whole number; separate values with commas, for example 128,256".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Space {
        Space::new()
            .axis("block", [128, 256, 512])
            .axis("grid", ["auto", "waves:1"])
            .axis("items", [1, 2, 4])
            .max_block(1024)
    }

    fn values(texts: &[&str]) -> Vec<Value> {
        texts.iter().map(|text| Value::from(*text)).collect()
    }

    #[test]
    fn the_space_is_the_product_without_refusals() {
        assert_eq!(space().configurations("copy").unwrap().len(), 18);
        let some =
            space().restrict("small", |c| c.number("block").unwrap() * c.number("items").unwrap() <= 512);
        let found = some.configurations("copy").unwrap();
        assert_eq!(found.len(), 2 * (3 + 2 + 1));
        assert_eq!(found[0].to_string(), "block=128 grid=auto items=1");
        assert_eq!(Space::new().configurations("copy").unwrap().len(), 1, "no axes: one configuration");
    }

    #[test]
    fn an_empty_space_says_what_refuses_how_many() {
        let none = space()
            .restrict("small blocks", |c| c.number("block").unwrap() < 200)
            .restrict("large items", |c| c.number("items").unwrap() > 4);
        let message = none.configurations("copy").unwrap_err().to_string();
        for words in ["copy", "18", "12 by \"small blocks\"", "6 by \"large items\""] {
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn values_are_replaced_and_count_once() {
        let mut space = space();
        space.set("copy", "block", &values(&["64", "64"])).unwrap();
        space.set("copy", "grid", &values(&["blocks:7"])).unwrap();
        space.set("copy", "items", &values(&["4"])).unwrap();
        let found = space.configurations("copy").unwrap();
        assert_eq!(
            found.iter().map(Configuration::to_string).collect::<Vec<_>>(),
            ["block=64 grid=blocks:7 items=4"]
        );
    }

    #[test]
    fn impossible_values_are_refused_with_possible_ones() {
        for (axis, value, words) in [
            ("block", "0", "multiple of 32 up to 1024"),
            ("block", "33", "multiple of 32"),
            ("block", "2048", "1024"),
            ("block", "wide", "neither a number nor a block"),
            ("block", "16x", "16x16"),
            ("block", "5x5", "multiple of 32"),
            ("block", "64x32", "1024"),
            ("grid", "waves:0", "waves:N"),
            ("items", "3", "1, 2, 4"),
            ("vector", "4", "it has block, grid, items"),
        ] {
            let message = space().set("copy", axis, &values(&[value])).unwrap_err().to_string();
            assert!(
                message.contains(words) && message.contains(axis) && message.contains("copy"),
                "{message}"
            );
        }
        assert!(space().set("copy", "block", &[]).is_err());
        space().set("copy", "block", &values(&["16x16", "8x8x4", "32x8"])).unwrap();
    }

    #[test]
    fn too_large_spaces_are_refused_early() {
        let many = || (0u32..2000).map(|value| value + 1);
        let space = Space::new().axis("a", many()).axis("b", many()).axis("c", many());
        let message = space.configurations("copy").unwrap_err().to_string();
        assert!(message.contains("8000000000") && message.contains("1000000"), "{message}");
    }
}
