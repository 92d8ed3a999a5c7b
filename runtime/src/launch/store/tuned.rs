//! [`TunedConfiguration`]: what a tuner found to be the fastest, and what of it open launches can use.

use crate::launch::policy::{GridChoice, Winner};
use serde::{Deserialize, Serialize};

use super::problem::StoreProblem;

/// The most values, and the most bytes of a text: so a line is never more than a few thousand bytes.
const MOST_VALUES: usize = 32;
const MOST_TEXT: usize = 256;

/// The fastest configuration of a kernel for something: a value for each axis, and the instance that it names.
///
/// `block` and `grid` mean the same for every kernel: threads of a block, and `auto` (one thread for each
/// element), `waves:N` (at most `N` times the blocks that fit on the device at once) or `blocks:N`. Without a `grid` it
/// is `auto`. The other axes are the kernel's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TunedConfiguration {
    /// The axes with their values, such as `("block", "256")` and `("items", "8")`. No axis comes twice.
    pub values: Vec<(String, String)>,
    /// The symbol of the instance, where one was launched.
    pub symbol: Option<String>,
    /// The median time in microseconds, above 0.
    pub median_us: f64,
    /// The toolchain of the code, for display: see [`Module::toolchain`](warpsmith_runtime::Module::toolchain).
    pub toolchain: String,
}

impl TunedConfiguration {
    /// The value of an axis.
    ///
    /// ```
    /// use warpsmith_runtime::store::TunedConfiguration;
    ///
    /// let values = vec![("block".to_owned(), "256".to_owned())];
    /// let toolchain = "rustc 1.96.0".to_owned();
    /// let tuned = TunedConfiguration { values, symbol: None, median_us: 3.5, toolchain };
    /// assert_eq!((tuned.value("block"), tuned.value("grid")), (Some("256"), None));
    /// ```
    pub fn value(&self, axis: &str) -> Option<&str> {
        self.values.iter().find(|(name, _)| name == axis).map(|(_, value)| value.as_str())
    }

    /// Says what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), StoreProblem> {
        let wrong = |what: String| Err(StoreProblem::Configuration { what });
        let Self { values, symbol, median_us, toolchain } = self;
        if !(median_us.is_finite() && *median_us > 0.0) {
            return wrong(format!("the median is {median_us} µs; a time is above 0 and finite"));
        }
        if values.len() > MOST_VALUES {
            return wrong(format!("it has {} axes, the most is {MOST_VALUES}", values.len()));
        }
        let texts = values.iter().flat_map(|(name, value)| [name, value]).chain([toolchain]);
        if let Some(long) = texts.map(String::len).find(|len| *len > MOST_TEXT) {
            return wrong(format!("a text has {long} bytes, the most is {MOST_TEXT}"));
        }
        // Symbols may be long: they are made by the compiler.
        if let Some(long) = symbol.as_ref().map(String::len).filter(|len| *len > 4 * MOST_TEXT) {
            return wrong(format!("the symbol has {long} bytes, the most is {}", 4 * MOST_TEXT));
        }
        for (number, (name, _)) in values.iter().enumerate() {
            if values[..number].iter().any(|(earlier, _)| earlier == name) {
                return wrong(format!("axis `{name}` has two values"));
            }
        }
        Ok(())
    }

    /// The block and grid for open launches of the instance, if they alone make it. Without a grid it is `auto`.
    pub(crate) fn winner(&self) -> Option<Winner> {
        let is_other = |axis| self.value(axis).is_some_and(|value| !matches!(value, "0" | "1"));
        if self.symbol.is_none() || is_other("shared") || is_other("cluster") {
            return None;
        }
        let count = |digits: &str| digits.parse::<u32>().ok().filter(|count| *count > 0);
        let grid = self.value("grid").unwrap_or("auto");
        let grid = match (grid, grid.split_once(':')) {
            ("auto", _) => GridChoice::All,
            (_, Some(("waves", waves))) => GridChoice::Waves(count(waves)?),
            (_, Some(("blocks", blocks))) => GridChoice::Blocks(count(blocks)?),
            _ => return None,
        };
        Some(Winner { block: count(self.value("block")?)?, grid })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn tuned(values: &[(&str, &str)]) -> TunedConfiguration {
        TunedConfiguration {
            values: values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            symbol: Some("axpy__f32_8_16".to_owned()),
            median_us: 3.5,
            toolchain: "rustc 1.96.0".to_owned(),
        }
    }

    #[test]
    fn block_and_grid_alone_make_a_winner() {
        let of = |block, grid| tuned(&[("items", "8"), ("block", block), ("grid", grid)]).winner();
        let winner = |block, grid| Some(Winner { block, grid });
        assert_eq!(of("256", "auto"), winner(256, GridChoice::All));
        assert_eq!(of("96", "waves:4"), winner(96, GridChoice::Waves(4)));
        assert_eq!(of("96", "blocks:12"), winner(96, GridChoice::Blocks(12)));
        for (block, grid) in [("0", "auto"), ("x", "auto"), ("96", "waves:0"), ("96", "all"), ("96", "")] {
            assert_eq!(of(block, grid), None, "{block} {grid}");
        }
        assert_eq!(tuned(&[("block", "96")]).winner(), winner(96, GridChoice::All), "auto by default");
        assert_eq!(tuned(&[("grid", "auto")]).winner(), None);
        let with = |axis| tuned(&[("block", "64"), ("grid", "auto"), axis]).winner();
        assert_eq!(with(("shared", "0")), winner(64, GridChoice::All));
        assert_eq!((with(("shared", "1024")), with(("cluster", "2"))), (None, None));
        assert_eq!(TunedConfiguration { symbol: None, ..tuned(&[("block", "64")]) }.winner(), None);
    }

    #[test]
    fn what_is_wrong_with_a_configuration_is_said() {
        assert_eq!(tuned(&[("block", "256")]).check(), Ok(()));
        let text = |configuration: TunedConfiguration| configuration.check().unwrap_err().to_string();
        for median_us in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let text = text(TunedConfiguration { median_us, ..tuned(&[]) });
            assert!(text.contains("above 0"), "{text}");
        }
        let found = text(tuned(&[("block", "1"), ("block", "2")]));
        assert!(found.contains("`block` has two values"), "{found}");
        assert!(text(tuned(&[("block", &"1".repeat(300))])).contains("300 bytes"));
        assert!(text(tuned(&[("a", "b"); 40])).contains("40 axes"));
        let symbol = Some("k".repeat(2000));
        assert!(text(TunedConfiguration { symbol, ..tuned(&[]) }).contains("2000 bytes"));
    }
}
