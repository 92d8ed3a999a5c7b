//! [`Folder`]: the weights of a Hugging Face folder, memory-mapped and copied to a device through page-locked memory.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;

use half::{bf16, f16};
use indicatif::{ProgressBar, ProgressStyle};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use warpsmith::prelude::*;
use warpsmith::{Pending, PinnedRange};

use crate::error::{Error, Result};

/// Elements per page-locked buffer.
const STAGING: usize = 8 << 20;
/// Number of page-locked buffers: one is filled while the others are copied.
const BUFFERS: usize = 3;

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
            let index: Index = serde_json::from_slice(&text)
                .map_err(|error| Error::Config { path, problem: error.to_string() })?;
            index.weight_map.into_values().collect()
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
        Ok(Tensors { all })
    }
}

/// All tensors of a folder by name.
pub struct Tensors<'a> {
    all: HashMap<String, (Dtype, Vec<usize>, &'a [u8])>,
}

impl<'a> Tensors<'a> {
    /// Returns true if a file contains the tensor.
    pub fn contains(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Returns a tensor after checking its shape and its element type.
    pub fn get(&self, name: &str, shape: &[usize]) -> Result<Tensor<'a>> {
        let Some((dtype, found, data)) = self.all.get(name) else {
            return Err(Error::MissingTensor { name: name.to_owned() });
        };
        if found != shape {
            let (found, expected) = (found.clone(), shape.to_vec());
            return Err(Error::Shape { name: name.to_owned(), found, expected });
        }
        match dtype {
            Dtype::BF16 | Dtype::F16 | Dtype::F32 => Ok(Tensor { dtype: *dtype, data }),
            found => Err(Error::Dtype { name: name.to_owned(), found: *found }),
        }
    }
}

/// The elements of a tensor in a mapped file.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    dtype: Dtype,
    data: &'a [u8],
}

impl Tensor<'_> {
    pub fn len(&self) -> usize {
        self.data.len() / self.width()
    }

    /// Bytes per element.
    fn width(&self) -> usize {
        if self.dtype == Dtype::F32 { 4 } else { 2 }
    }

    /// Converts elements from `start` on to bf16.
    pub fn read(&self, start: usize, out: &mut [bf16]) {
        let bytes = &self.data[start * self.width()..(start + out.len()) * self.width()];
        let halves = || bytes.as_chunks::<2>().0.iter();
        match self.dtype {
            Dtype::F32 => {
                let floats = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
                out.iter_mut().zip(floats).for_each(|(out, x)| *out = bf16::from_f32(x));
            }
            Dtype::F16 => out
                .iter_mut()
                .zip(halves())
                .for_each(|(out, bytes)| *out = bf16::from_f32(f16::from_le_bytes(*bytes).to_f32())),
            _ => out.iter_mut().zip(halves()).for_each(|(out, bytes)| *out = bf16::from_le_bytes(*bytes)),
        }
    }
}

/// Copies tensors to the device through page-locked memory and shows the progress.
pub struct Uploader {
    stream: Stream,
    free: Vec<PinnedBuffer<bf16>>,
    pending: std::collections::VecDeque<Pending<PinnedRange<bf16>>>,
    progress: ProgressBar,
}

impl Uploader {
    /// Creates an uploader for `bytes` bytes in total.
    pub fn new(stream: &Stream, bytes: u64) -> Result<Self> {
        let progress = ProgressBar::new(bytes);
        let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec}");
        progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let free = (0..BUFFERS).map(|_| PinnedBuffer::zeroed(stream.device(), STAGING));
        Ok(Self {
            stream: stream.clone(),
            free: free.collect::<std::result::Result<_, _>>()?,
            pending: Default::default(),
            progress,
        })
    }

    /// Enqueues the copy of a tensor to `target`, which must have the tensor's length.
    pub fn copy(&mut self, tensor: Tensor<'_>, mut target: DeviceSliceMut<'_, bf16>) -> Result<()> {
        let len = target.len();
        for start in (0..len).step_by(STAGING) {
            let end = len.min(start + STAGING);
            let mut buffer = match self.free.pop() {
                Some(buffer) => buffer,
                None => match self.pending.pop_front() {
                    Some(pending) => pending.wait().map_err(|failed| failed.error)?.into_buffer(),
                    None => PinnedBuffer::zeroed(self.stream.device(), STAGING)?,
                },
            };
            let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(8));
            let part = (end - start).div_ceil(threads);
            std::thread::scope(|scope| {
                for (i, out) in buffer[..end - start].chunks_mut(part).enumerate() {
                    scope.spawn(move || tensor.read(start + i * part, out));
                }
            });
            let range = buffer.into_range(..end - start);
            let copy = self.stream.copy_from_host_async(range, target.slice_mut(start..end));
            self.pending.push_back(copy.map_err(|failed| failed.error)?);
            self.progress.inc(2 * (end - start) as u64);
        }
        Ok(())
    }

    /// Waits for all copies.
    pub fn finish(mut self) -> Result<()> {
        for pending in self.pending.drain(..) {
            pending.wait().map_err(|failed| failed.error)?;
        }
        self.progress.finish_and_clear();
        Ok(())
    }
}
