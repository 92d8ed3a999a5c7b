//! Command line: `llm generate`, `llm serve`, `llm embed`, `llm bench`. `llm DEVICE` checks a small random model.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use llm::bench;
use llm::config::{Config, DECODERS};
use llm::encoder::Encoder;
use llm::engine::{Engine, Finish, Limits, Request};
use llm::error::{Error, Result};
use llm::linear::WeightFormat;
use llm::serve::{Options, serve};
use llm::text::{Decoding, Text};
use llm::weights::Folder;
use warpsmith::DeviceId;
use warpsmith::ops::Sampling;
use warpsmith::prelude::*;

/// Runs Llama and Qwen3 language models, and BERT models for embeddings.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Device on which a small random model is checked, if there is no command: `cpu`, `cuda:0`, …
    device: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Continues a text.
    Generate {
        #[command(flatten)]
        files: Files,
        #[arg(long)]
        prompt: String,
        /// Largest number of new tokens.
        #[arg(long, default_value_t = 256)]
        max_tokens: usize,
        /// 0 always takes the most probable token.
        #[arg(long, default_value_t = 0.0)]
        temperature: f32,
        /// Considers only the most probable tokens: at most this number.
        #[arg(long)]
        top_k: Option<u32>,
        /// Considers only the most probable tokens: until their probabilities add up to this number.
        #[arg(long)]
        top_p: Option<f64>,
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// Serves OpenAI's completions interface.
    Serve {
        #[command(flatten)]
        files: Files,
        #[arg(long, default_value = "127.0.0.1:8000")]
        address: SocketAddr,
        /// Largest number of sequences that are decoded at once.
        #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
        sequences: u16,
    },
    /// Prints the embeddings of texts by a BERT model, as JSON.
    Embed {
        /// Hugging Face folder with config.json, model.safetensors and tokenizer.json.
        model: PathBuf,
        /// Texts; the result contains one list of numbers for each.
        #[arg(required = true)]
        texts: Vec<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Measures decoding with random weights, and prints the result as JSON.
    Bench {
        /// `llama-3-8b`, `qwen3-0.6b`, `tiny`, or a folder with config.json.
        #[arg(long)]
        shape: String,
        /// Number of sequences.
        #[arg(long, default_value_t = 1)]
        batch: usize,
        /// Tokens per sequence before the first measured step.
        #[arg(long, default_value_t = 1024)]
        context: usize,
        /// Number of layers, if it differs from the shape's.
        #[arg(long)]
        layers: Option<usize>,
        /// Steps per measurement.
        #[arg(long, default_value_t = 20)]
        steps: usize,
        #[command(flatten)]
        storage: Storage,
    },
}

#[derive(Args)]
struct Place {
    /// Device: `cpu` (emulated), `cuda:0`, … [default: the best available device]
    #[arg(long)]
    device: Option<String>,
}

/// Storage of the weights.
#[derive(Args)]
struct Storage {
    /// Format of the weights on the device.
    #[arg(long, value_enum, default_value = "bf16")]
    weights: WeightFormat,
    /// Number of devices that divide the weights (tensor parallelism): the given one and those after it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    gpus: u32,
    #[command(flatten)]
    place: Place,
}

/// A model from files.
#[derive(Args)]
struct Files {
    /// Hugging Face folder with config.json, safetensors files and tokenizer.json.
    model: PathBuf,
    /// Largest number of tokens per sequence, including the prompt. The model can have a lower limit.
    #[arg(long, default_value_t = 8192)]
    context: usize,
    #[command(flatten)]
    storage: Storage,
}

impl Place {
    /// Creates a stream on the device, and on those after it.
    fn open(&self, devices: u32) -> Result<Vec<Stream>> {
        let first = self.device.as_deref().map_or_else(Device::best, Device::open)?;
        let device = |i| match first.id() {
            DeviceId::Cuda(ordinal) => Device::cuda(ordinal + i),
            DeviceId::Emulated(ordinal) => Device::emulated(ordinal + i),
        };
        (0..devices).map(|i| Ok(Stream::new(&device(i)?)?)).collect()
    }
}

impl Files {
    /// Loads the model.
    fn load(&self, sequences: usize) -> Result<(Engine, Text)> {
        let Self { model, context, storage } = self;
        let (config, text, folder) =
            (Config::read(model, &DECODERS)?, Text::read(model)?, Folder::open(model)?);
        let streams = storage.place.open(storage.gpus)?;
        let context = config.max_positions.min(*context);
        let limits = Limits { sequences, chunk: 2048.min(context), pages: None };
        let engine = Engine::load(&streams, &config, context, storage.weights, Some(&folder), limits)?;
        Ok((engine, text))
    }
}

fn main() -> ExitCode {
    let Arguments { command, device } = Arguments::parse();
    let result = match command {
        Some(command) => command.run(),
        None => Place { device }.open(1).and_then(|streams| llm::check::run(&streams[0])),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Command {
    fn run(self) -> Result<()> {
        match self {
            Self::Generate { files, prompt, max_tokens, temperature, top_k, top_p, seed } => {
                let (mut engine, text) = files.load(1)?;
                engine.seed(seed)?;
                let sampling = Sampling { temperature, top_k, top_p };
                let prompt = text.encode(&prompt)?;
                engine.submit(Request { prompt, max_tokens, sampling, ignores_end: false })?;
                write(&mut engine, &text)?;
            }
            Self::Serve { files, address, sequences } => {
                let problem = |error| {
                    Error::at(format!("cannot listen at {address}"))(format!(
                        "{error}; choose another address with --address"
                    ))
                };
                let listener = TcpListener::bind(address).map_err(problem)?;
                let (engine, text) = files.load(sequences.into())?;
                let name = files.model.file_name().unwrap_or(files.model.as_os_str());
                let most = 4 * usize::from(sequences);
                let options = Options {
                    name: name.to_string_lossy().into_owned(),
                    connections: most,
                    requests: most,
                    body: 1 << 20,
                    max_tokens: engine.model.context,
                };
                eprintln!("http://{address}/v1/completions");
                serve(engine, text, listener, options)?;
            }
            Self::Embed { model, texts, place } => {
                let (encoder, text) = (Encoder::load(&place.open(1)?[0], &model)?, Text::read(&model)?);
                let embeddings = texts.iter().map(|part| encoder.embed(&text.encode(part)?));
                println!("{}", serde_json::json!(embeddings.collect::<Result<Vec<_>>>()?));
            }
            Self::Bench { shape, batch, context, layers, steps, storage } => {
                let mut config = bench::config(&shape)?;
                config.layers = layers.unwrap_or(config.layers);
                let sizes = (batch, context, steps);
                let streams = storage.place.open(storage.gpus)?;
                println!("{}", bench::run(&streams, (&shape, config), storage.weights, sizes)?);
            }
        }
        Ok(())
    }
}

/// Writes the text of an engine's only sequence.
fn write(engine: &mut Engine, text: &Text) -> Result<()> {
    let (mut decoding, mut out) = (Decoding::default(), std::io::stdout().lock());
    while !engine.is_empty() {
        for output in engine.step()? {
            if let Some(Finish::Failed(error)) = output.finish {
                return Err(error);
            }
            let Some(token) = output.token else { continue };
            if let Some(part) = text.decode(&mut decoding, token)? {
                let written = out.write_all(part.as_bytes()).and_then(|()| out.flush());
                written.map_err(Error::at("standard output"))?;
            }
        }
    }
    println!();
    Ok(())
}
