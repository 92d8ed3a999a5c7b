//! [`Folder`]: the weights of a Hugging Face folder in memory-mapped files.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;

use half::{bf16, f16};
use indicatif::{ProgressBar, ProgressStyle};
use memmap2::Mmap;
use safetensors::tensor::TensorInfo;
use safetensors::{Dtype, SafeTensors};
use warpsmith::ops::{Int4Host, PackedWords};

use crate::config::Packing;
use crate::error::{Error, Result};
use crate::files::read_json;
use crate::linear::GROUP;

/// The tensors of a folder by name.
pub struct Folder {
    files: Vec<Mmap>,
    /// Number of the file, position of the file's data, and position of the tensor in the data.
    tensors: HashMap<String, (usize, usize, TensorInfo)>,
    progress: ProgressBar,
}

impl Folder {
    /// Maps the files that `model.safetensors.index.json` lists, or `model.safetensors`, and reads their headers.
    pub fn open(folder: &Path) -> Result<Self> {
        #[derive(serde::Deserialize)]
        struct Index {
            weight_map: HashMap<String, String>,
        }
        let index = folder.join("model.safetensors.index.json");
        let mut names = BTreeSet::from(["model.safetensors".to_owned()]);
        if index.exists() {
            names = read_json::<Index>(&index)?.weight_map.into_values().collect();
            if let Some(name) = names.iter().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
                let problem = format!("`{name}` is not the name of a file in this folder");
                return Err(Error::at(index.display())(problem));
            }
        }
        let (mut files, mut tensors, mut bytes) = (Vec::new(), HashMap::new(), 0);
        for name in names {
            let path = folder.join(name);
            let file = File::open(&path).map_err(Error::at(path.display()))?;
            // SAFETY: as for every memory-mapped file, no other process may shorten or change the file while it is
            // mapped. Weights are only read and copied, so a change alters numbers, not the program's control flow.
            let file = unsafe { Mmap::map(&file) }.map_err(Error::at(path.display()))?;
            let (header, metadata) = SafeTensors::read_metadata(&file).map_err(|error| {
                let problem = format!("not a valid safetensors file: {error}; download it again");
                Error::at(path.display())(problem)
            })?;
            bytes += metadata.data_len() as u64;
            let found = metadata.tensors().into_iter();
            tensors.extend(found.map(|(name, info)| (name, (files.len(), 8 + header, info.clone()))));
            files.push(file);
        }
        let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Ok(Self { files, tensors, progress: ProgressBar::new(bytes).with_style(style) })
    }

    /// Returns the type of a tensor, if a file contains it.
    pub fn dtype(&self, name: &str) -> Option<Dtype> {
        self.tensors.get(name).map(|(_, _, info)| info.dtype)
    }

    /// Returns the elements of a tensor of type BF16, F16 or F32, as `bf16`.
    pub fn bf16(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [bf16]>> {
        let (dtype, data) = self.find(name, shape)?;
        Ok(match (dtype, bytemuck::try_cast_slice(data)) {
            (Dtype::BF16, Ok(elements)) => Cow::Borrowed(elements),
            // The tensor is not aligned.
            (Dtype::BF16, _) => convert(data, bf16::from_le_bytes).into(),
            (Dtype::F16, _) => convert(data, |x| bf16::from_f32(f16::from_le_bytes(x).to_f32())).into(),
            (Dtype::F32, _) => convert(data, |x| bf16::from_f32(f32::from_le_bytes(x))).into(),
            (found, _) => return Err(wrong_type(name, found, "BF16, F16 or F32")),
        })
    }

    /// Returns the elements of a tensor of type F32.
    pub fn f32(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.elements(name, shape, Dtype::F32, f32::from_le_bytes)
    }

    /// Returns the E4M3 numbers of a matrix.
    pub fn fp8(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [u8]>> {
        let name = format!("{name}.weight");
        Ok(self.elements(&name, shape, Dtype::F8_E4M3, u8::from_le_bytes)?.into())
    }

    /// Returns a scale per output and group of 128 inputs. In the files, the matrix, each output, or each block of
    /// 128 x 128 weights has a scale.
    pub fn fp8_scales(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [bf16]>> {
        let (n, groups) = (shape[0], shape[1]);
        let [of_blocks, scales] = ["weight_scale_inv", "weight_scale"].map(|scale| format!("{name}.{scale}"));
        let name = if self.tensors.contains_key(&of_blocks) { of_blocks } else { scales };
        let (found, blocks) = (&self.info(&name)?.2.shape[..], [n.div_ceil(GROUP), groups]);
        // Outputs and groups that share a scale.
        let ([rows, columns], expected) = match *found {
            [] | [1] => ([n, groups], found),
            [rows, 1] if rows == n => ([1, groups], found),
            _ => ([GROUP, 1], &blocks[..]),
        };
        let scales = self.bf16(&name, expected)?;
        let place = |i| i / groups / rows * (groups / columns) + i % groups / columns;
        Ok((0..n * groups).map(|i| scales[place(i)]).collect())
    }

    /// Converts the 4-bit weights of a k x n matrix.
    pub fn int4(&self, name: &str, packing: Packing, [k, n]: [usize; 2]) -> Result<Int4Host<bf16>> {
        let of = |part| format!("{name}.{part}");
        let groups = self.info(&of("scales"))?.2.shape.first().copied().unwrap_or(0);
        let group = k.checked_div(groups).unwrap_or(0);
        if !k.is_multiple_of(128) || !n.is_multiple_of(8) || ![32, 64, 128, k].contains(&group) {
            return Err(Error::at(format!("the matrix `{name}`"))(format!(
                "{k} inputs, {n} outputs and groups of {group} weights, but the inputs must be a multiple of 128, the \
                 outputs a multiple of 8, and groups must have 32, 64, 128 or all weights of an output"
            )));
        }
        let words =
            |part, shape: [usize; 2]| self.elements(&of(part), &shape, Dtype::I32, u32::from_le_bytes);
        let is_awq = packing == Packing::Awq;
        let qweight = words("qweight", if is_awq { [k, n / 8] } else { [k / 8, n] })?;
        let qzeros = words("qzeros", [groups, n / 8])?;
        let scales = self.elements(&of("scales"), &[groups, n], Dtype::F16, f16::from_le_bytes)?;
        let words = PackedWords { qweight: &qweight, qzeros: &qzeros, scales: &scales };
        let convert = if is_awq { Int4Host::from_awq } else { Int4Host::from_gptq };
        Ok(convert([k, n], &words)?)
    }

    fn info(&self, name: &str) -> Result<&(usize, usize, TensorInfo)> {
        let problem = "no weight file contains it, but the model of config.json needs it; config.json and the weights \
                       must belong to the same model";
        self.tensors.get(name).ok_or_else(|| of_tensor(name, problem))
    }

    /// Returns the type and the bytes of a tensor after checking its shape.
    fn find(&self, name: &str, shape: &[usize]) -> Result<(Dtype, &[u8])> {
        let (file, data, info) = self.info(name)?;
        if info.shape != shape {
            return Err(of_tensor(
                name,
                format_args!(
                    "the shape is {:?}, but config.json requires {shape:?}; config.json and the weights must belong to \
                     the same model",
                    info.shape
                ),
            ));
        }
        let (start, end) = info.data_offsets;
        self.progress.inc((end - start) as u64);
        Ok((info.dtype, &self.files[*file][data + start..data + end]))
    }

    /// Returns the elements of a tensor after checking its shape and its type.
    fn elements<T, const N: usize>(
        &self,
        name: &str,
        shape: &[usize],
        dtype: Dtype,
        from_bytes: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>> {
        match self.find(name, shape)? {
            (found, data) if found == dtype => Ok(convert(data, from_bytes)),
            (found, _) => Err(wrong_type(name, found, dtype)),
        }
    }
}

fn of_tensor(name: &str, problem: impl std::fmt::Display) -> Error {
    Error::at(format_args!("the tensor `{name}`"))(problem)
}

fn wrong_type(name: &str, found: Dtype, expected: impl std::fmt::Display) -> Error {
    of_tensor(name, format_args!("the elements have type {found}, but must have {expected}"))
}

/// Converts elements of `N` bytes.
fn convert<T, const N: usize>(data: &[u8], from_bytes: impl Fn([u8; N]) -> T) -> Vec<T> {
    data.as_chunks().0.iter().map(|bytes| from_bytes(*bytes)).collect()
}
