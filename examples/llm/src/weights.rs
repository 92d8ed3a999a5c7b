//! [`Folder`]: the weights of a Hugging Face folder, memory-mapped and copied to a device.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;

use half::{bf16, f16};
use indicatif::{ProgressBar, ProgressStyle};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use warpsmith::ops::{Int4Host, PackedWords};
use warpsmith::prelude::*;

use crate::config::Packing;
use crate::error::{Error, Result};

/// The memory-mapped weight files of a folder.
pub struct Folder {
    shards: Vec<(std::path::PathBuf, Mmap)>,
}

impl Folder {
    /// Maps the files that `model.safetensors.index.json` lists, or `model.safetensors`.
    pub fn open(folder: &Path) -> Result<Self> {
        #[derive(serde::Deserialize)]
        struct Index {
            weight_map: HashMap<String, String>,
        }
        let path = folder.join("model.safetensors.index.json");
        let names = if path.exists() {
            let text = std::fs::read(&path).map_err(Error::file(&path))?;
            let wrong = |problem| Error::Config { path: path.clone(), problem };
            let index: Index = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
            let names: BTreeSet<_> = index.weight_map.into_values().collect();
            if let Some(name) = names.iter().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
                return Err(wrong(format!("`{name}` is not the name of a file in this folder")));
            }
            names
        } else {
            BTreeSet::from(["model.safetensors".to_owned()])
        };
        let shards = names.into_iter().map(|name| {
            let path = folder.join(name);
            let file = File::open(&path).map_err(Error::file(&path))?;
            // SAFETY: as for every memory-mapped file, no other process may shorten or change the file while it is
            // mapped. Weights are only read and copied, so a change alters numbers, not the program's control flow.
            let map = unsafe { Mmap::map(&file) }.map_err(Error::file(&path))?;
            Ok((path, map))
        });
        Ok(Self { shards: shards.collect::<Result<_>>()? })
    }

    /// Reads the headers of all files.
    pub fn tensors(&self) -> Result<Tensors<'_>> {
        let mut all = HashMap::new();
        for (path, map) in &self.shards {
            let shard =
                SafeTensors::deserialize(map).map_err(|error| Error::Shard { path: path.clone(), error })?;
            for (name, tensor) in shard.tensors() {
                all.insert(name, (tensor.dtype(), tensor.shape().to_vec(), tensor.data()));
            }
        }
        let bytes = all.values().map(|(_, _, data): &(_, _, &[u8])| data.len() as u64).sum();
        let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Ok(Tensors { all, progress: ProgressBar::new(bytes).with_style(style) })
    }
}

/// All tensors of a folder by name.
pub struct Tensors<'a> {
    all: HashMap<String, (Dtype, Vec<usize>, &'a [u8])>,
    progress: ProgressBar,
}

impl Tensors<'_> {
    /// Returns true if a file contains the tensor.
    pub fn contains(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Copies a tensor to `target` after checking its shape and its element type.
    pub fn copy(&self, name: &str, shape: &[usize], target: &mut DeviceSliceMut<'_, bf16>) -> Result<()> {
        let (dtype, data) = self.of_shape(name, shape)?;
        // The runtime copies slices through page-locked memory, at the bandwidth of the bus.
        match (dtype, bytemuck::try_cast_slice::<u8, bf16>(data)) {
            (Dtype::BF16, Ok(elements)) => target.copy_from_host(elements)?,
            // The tensor is not aligned.
            (Dtype::BF16, _) => target.copy_from_host(&converted(data, bf16::from_le_bytes))?,
            (Dtype::F16, _) => {
                let convert = |bytes| bf16::from_f32(f16::from_le_bytes(bytes).to_f32());
                target.copy_from_host(&converted(data, convert))?;
            }
            (Dtype::F32, _) => {
                let convert = |bytes| bf16::from_f32(f32::from_le_bytes(bytes));
                target.copy_from_host(&converted(data, convert))?;
            }
            (&found, _) => {
                return Err(Error::Dtype { name: name.to_owned(), found, expected: "BF16, F16 or F32" });
            }
        }
        self.progress.inc(data.len() as u64);
        Ok(())
    }

    /// Converts the 4-bit weights of a k x n matrix.
    pub fn int4(&self, name: &str, packing: Packing, shape: [usize; 2]) -> Result<Int4Host<bf16>> {
        let [k, n] = shape;
        let scales = self.elements(&format!("{name}.scales"), (Dtype::F16, "F16"), f16::from_le_bytes)?;
        let group = k * n / scales.len().max(1);
        if !k.is_multiple_of(128) || !n.is_multiple_of(8) || ![32, 64, 128, k].contains(&group) {
            return Err(Error::PackedSizes { name: name.to_owned(), k, n, group });
        }
        let words = |part, shape: [usize; 2]| {
            let name = format!("{name}.{part}");
            self.of_shape(&name, &shape)?;
            self.elements(&name, (Dtype::I32, "I32"), u32::from_le_bytes)
        };
        let qweight = match packing {
            Packing::Gptq => words("qweight", [k / 8, n])?,
            Packing::Awq => words("qweight", [k, n / 8])?,
        };
        let qzeros = words("qzeros", [scales.len() / n, n / 8])?;
        let words = PackedWords { qweight: &qweight, qzeros: &qzeros, scales: &scales };
        let host = match packing {
            Packing::Gptq => Int4Host::from_gptq(shape, &words),
            Packing::Awq => Int4Host::from_awq(shape, &words),
        };
        host.map_err(|error| Error::Packed { name: name.to_owned(), error: error.into() })
    }

    /// Returns the elements of a tensor of type F32.
    pub fn f32(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.of_shape(name, shape)?;
        self.elements(name, (Dtype::F32, "F32"), f32::from_le_bytes)
    }

    /// Returns the type and the bytes of a tensor after checking its shape.
    fn of_shape(&self, name: &str, shape: &[usize]) -> Result<(&Dtype, &[u8])> {
        let (dtype, found, data) = self.find(name)?;
        if found == shape {
            return Ok((dtype, data));
        }
        let (found, expected) = (found.clone(), shape.to_vec());
        Err(Error::Shape { name: name.to_owned(), found, expected })
    }

    fn find(&self, name: &str) -> Result<&(Dtype, Vec<usize>, &[u8])> {
        self.all.get(name).ok_or_else(|| Error::MissingTensor { name: name.to_owned() })
    }

    /// Returns the elements of a tensor after checking their type.
    fn elements<T, const N: usize>(
        &self,
        name: &str,
        (dtype, expected): (Dtype, &'static str),
        convert: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>> {
        let (found, _, data) = self.find(name)?;
        if *found != dtype {
            return Err(Error::Dtype { name: name.to_owned(), found: *found, expected });
        }
        self.progress.inc(data.len() as u64);
        Ok(converted(data, convert))
    }
}

/// Converts elements of `N` bytes.
fn converted<T, const N: usize>(data: &[u8], convert: impl Fn([u8; N]) -> T) -> Vec<T> {
    data.as_chunks().0.iter().map(|bytes| convert(*bytes)).collect()
}
