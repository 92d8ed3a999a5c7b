//! Code under test for a fuzzer of model folders. No input may cause a panic.

use std::fs;

use llm::config::{Config, DECODERS};
use llm::error::Result;
use llm::linear::WeightFormat;
use llm::model::Model;
use llm::weights::Folder;
use warpsmith::emulated::EmulatedDriver;
use warpsmith::prelude::*;

/// Separates the files: a byte that does not occur in JSON.
const SEPARATOR: u8 = 0xff;

/// Loads a folder that contains `config.json`, the index of the weight files (unless it is empty) and a weight file.
pub fn load_folder(bytes: &[u8]) {
    thread_local! {
        static STREAM: Stream = {
            let driver = EmulatedDriver::builder().memory(16 << 20).build();
            Stream::new(&Device::with_driver(driver, 0).expect("a device")).expect("a stream")
        };
    }
    let mut files = bytes.splitn(3, |byte| *byte == SEPARATOR);
    let folder = std::env::temp_dir().join(format!("llm-fuzzed-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for name in ["config.json", "model.safetensors.index.json", "model.safetensors"] {
        let path = folder.join(name);
        match files.next() {
            Some(contents) if !contents.is_empty() => fs::write(path, contents).unwrap(),
            _ => drop(fs::remove_file(path)),
        }
    }
    let load = |stream: &Stream| -> Result<Model> {
        let config = Config::read(&folder, &DECODERS)?;
        let context = config.max_positions.min(64);
        Model::load(stream, config, context, WeightFormat::Int8, Some(&Folder::open(&folder)?), None)
    };
    STREAM.with(|stream| {
        if let Err(error) = load(stream) {
            assert!(!error.to_string().is_empty());
        }
        stream.synchronize().unwrap();
    });
    fs::remove_dir_all(folder).unwrap();
}
