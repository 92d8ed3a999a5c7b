//! The space of configurations that a run measures.
//!
//! Guarantees: [`Space::configurations`] is the cross product of the axes, limited to instances that exist and
//! to blocks the kernel and the device accept, without repeats, in a fixed order; an axis value that no
//! instance has is an error, never silently nothing.

use warpsmith::ops::{Config, GridRule, Variant};

use crate::error::{Error, Result};

/// The values to try on each axis. `None` for items and vectors means every value that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// Threads of a block.
    pub blocks: Vec<u32>,
    /// Grid rules.
    pub grids: Vec<GridRule>,
    /// Vectors in flight a thread.
    pub items: Option<Vec<u32>>,
    /// Bytes of a vector.
    pub vectors: Option<Vec<u32>>,
}

impl Space {
    /// The full default space, for a GPU.
    pub fn gpu() -> Self {
        Self {
            blocks: vec![128, 256, 512],
            grids: vec![GridRule::Auto, GridRule::Waves(1), GridRule::Waves(4)],
            items: None,
            vectors: None,
        }
    }

    /// A small space, where a launch takes milliseconds.
    pub fn emulated() -> Self {
        Self { blocks: vec![64, 256], grids: vec![GridRule::Auto], items: None, vectors: Some(vec![16]) }
    }

    /// Every configuration of `kernel` for `dtype` in this space. `max_block` is the device's limit.
    ///
    /// # Errors
    /// [`Error::Axis`] when a block is not a multiple of 32 from 32 to `max_block`, or when a value of items or
    /// vectors belongs to no instance; [`Error::EmptySpace`] when nothing is left.
    pub fn configurations(
        &self,
        kernel: &str,
        dtype: &str,
        variants: &[Variant],
        max_block: u32,
    ) -> Result<Vec<Config>> {
        for &block in &self.blocks {
            if block == 0 || block % 32 != 0 || block > max_block {
                return Err(Error::Axis {
                    axis: "block",
                    text: block.to_string(),
                    reason: format!("use a multiple of 32 from 32 to {max_block}, this device's limit"),
                });
            }
        }
        let items = chosen("items", &self.items, kernel, dtype, variants.iter().map(|i| i.items))?;
        let vectors = chosen("vectors", &self.vectors, kernel, dtype, variants.iter().map(|i| i.vector))?;
        let mut configs = Vec::new();
        for &items in &items {
            for &vector in &vectors {
                let found = variants.iter().find(|i| i.items == items && i.vector == vector);
                let Some(variant) = found else { continue };
                for &block in self.blocks.iter().filter(|&&b| b <= variant.max_block) {
                    for &grid in &self.grids {
                        let config = Config { block, grid, items, vector };
                        if !configs.contains(&config) {
                            configs.push(config);
                        }
                    }
                }
            }
        }
        if configs.is_empty() {
            let limit = variants.iter().map(|i| i.max_block).max().unwrap_or(0);
            return Err(Error::EmptySpace { kernel: kernel.to_string(), dtype: dtype.to_string(), limit });
        }
        Ok(configs)
    }
}

/// The requested values of an axis, each of which must exist, or all that exist.
fn chosen(
    axis: &'static str,
    requested: &Option<Vec<u32>>,
    kernel: &str,
    dtype: &str,
    existing: impl Iterator<Item = u32>,
) -> Result<Vec<u32>> {
    let mut existing: Vec<u32> = existing.collect();
    existing.sort_unstable();
    existing.dedup();
    let Some(requested) = requested else { return Ok(existing) };
    for value in requested {
        if !existing.contains(value) {
            let list: Vec<String> = existing.iter().map(u32::to_string).collect();
            return Err(Error::Axis {
                axis,
                text: value.to_string(),
                reason: format!("{kernel} for {dtype} is compiled for {}", list.join(", ")),
            });
        }
    }
    Ok(requested.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variants() -> Vec<Variant> {
        let mut all = Vec::new();
        for items in [1, 2, 4] {
            for vector in [4, 16] {
                all.push(Variant { items, vector, max_block: 512 });
            }
        }
        all
    }

    #[test]
    fn the_space_is_the_cross_product() {
        let configs = Space::gpu().configurations("copy", "f32", &variants(), 1024).unwrap();
        assert_eq!(configs.len(), 3 * 3 * 3 * 2);
        let mut unique = configs.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), configs.len());
    }

    #[test]
    fn repeated_values_are_measured_once() {
        let space = Space {
            blocks: vec![256, 256],
            grids: vec![GridRule::Auto],
            items: Some(vec![2, 2]),
            vectors: Some(vec![16]),
        };
        let configs = space.configurations("copy", "f32", &variants(), 1024).unwrap();
        assert_eq!(configs, [Config { block: 256, grid: GridRule::Auto, items: 2, vector: 16 }]);
    }

    #[test]
    fn a_missing_combination_is_left_out_but_a_missing_value_is_an_error() {
        let mut some = variants();
        some.retain(|i| !(i.items == 4 && i.vector == 16));
        let mut space = Space { blocks: vec![256], grids: vec![GridRule::Auto], ..Space::gpu() };
        assert_eq!(space.configurations("copy", "f32", &some, 1024).unwrap().len(), 5);
        space.items = Some(vec![3]);
        let message = space.configurations("copy", "f32", &some, 1024).unwrap_err().to_string();
        assert!(message.contains("3") && message.contains("1, 2, 4"), "{message}");
    }

    #[test]
    fn blocks_beyond_a_limit_are_refused_or_left_out() {
        for bad in [0, 33, 2048] {
            let space = Space { blocks: vec![bad], ..Space::gpu() };
            let message = space.configurations("copy", "f32", &variants(), 1024).unwrap_err().to_string();
            assert!(message.contains(&bad.to_string()) && message.contains("1024"), "{message}");
        }
        let space = Space { blocks: vec![256, 1024], ..Space::gpu() };
        let configs = space.configurations("copy", "f32", &variants(), 1024).unwrap();
        assert!(configs.iter().all(|c| c.block == 256));
        let space = Space { blocks: vec![1024], ..Space::gpu() };
        let message = space.configurations("copy", "f32", &variants(), 1024).unwrap_err().to_string();
        assert!(message.contains("512"), "{message}");
    }
}
