//! Command line: `llm generate`, `llm serve`, `llm embed`, `llm bench`. `llm DEVICE` checks a small random model.

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use llm::bench;
use llm::config::Config;
use llm::encoder::Encoder;
use llm::engine::{Engine, Finish, Limits, Request};
use llm::error::{Error, Result};
use llm::linear::WeightFormat;
use llm::model::{Model, Source};
use llm::serve::{Options, serve};
use llm::text::{Decoding, Text};
use llm::weights::Folder;
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
    Generate(Generate),
    /// Serves OpenAI's completions interface.
    Serve(Serve),
    /// Prints the embeddings of texts by a BERT model, as JSON.
    Embed(Embed),
    /// Measures decoding with random weights, and prints the result as JSON.
    Bench(Bench),
}

/// Options that all commands share.
#[derive(Args)]
struct Place {
    /// Device: `cpu` (emulated), `cuda:0`, … [default: the best available device]
    #[arg(long)]
    device: Option<String>,
    /// Format of the weights on the device.
    #[arg(long, value_enum, default_value = "bf16")]
    weights: WeightFormat,
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
    place: Place,
}

#[derive(Args)]
struct Generate {
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
}

#[derive(Args)]
struct Serve {
    #[command(flatten)]
    files: Files,
    #[arg(long, default_value = "127.0.0.1:8000")]
    address: std::net::SocketAddr,
    /// Largest number of sequences that are decoded at once.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    sequences: u16,
}

#[derive(Args)]
struct Embed {
    /// Hugging Face folder with config.json, model.safetensors and tokenizer.json.
    model: PathBuf,
    /// Texts; the result contains one list of numbers for each.
    #[arg(required = true)]
    texts: Vec<String>,
    /// Device: `cpu` (emulated), `cuda:0`, … [default: the best available device]
    #[arg(long)]
    device: Option<String>,
}

#[derive(Args)]
struct Bench {
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
    place: Place,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Some(Command::Generate(generate)) => generate.run(),
        Some(Command::Serve(serve)) => serve.run(),
        Some(Command::Embed(embed)) => embed.run(),
        Some(Command::Bench(bench)) => bench.run(),
        None => open(arguments.device.as_deref()).and_then(|stream| llm::check::run(&stream)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Creates a stream on a device.
fn open(device: Option<&str>) -> Result<Stream> {
    let device = match device {
        Some(name) => Device::open(name)?,
        None => Device::best()?,
    };
    Ok(Stream::new(&device)?)
}

/// Loads the model of a folder.
fn load(Files { model, context, place }: &Files, sequences: usize) -> Result<(Engine, Text)> {
    let (config, text, folder) = (Config::read(model)?, Text::read(model)?, Folder::open(model)?);
    let stream = open(place.device.as_deref())?;
    let context = config.max_positions.min(*context);
    let model = Model::load(&stream, config, context, place.weights, Source::Folder(&folder))?;
    let limits = Limits { sequences, chunk: 2048.min(context), pages: None };
    Ok((Engine::new(&stream, model, limits)?, text))
}

impl Serve {
    fn run(&self) -> Result<()> {
        let address = self.address;
        let listener = TcpListener::bind(address).map_err(|error| Error::Listen { address, error })?;
        let sequences = usize::from(self.sequences);
        let (engine, text) = load(&self.files, sequences)?;
        let model = &self.files.model;
        let name = model.file_name().unwrap_or(model.as_os_str());
        let options = Options {
            name: name.to_string_lossy().into_owned(),
            connections: 4 * sequences,
            requests: 4 * sequences,
            body: 1 << 20,
            max_tokens: engine.model.context,
        };
        eprintln!("http://{address}/v1/completions");
        serve(engine, text, listener, options)
    }
}

impl Generate {
    fn run(&self) -> Result<()> {
        let (mut engine, text) = load(&self.files, 1)?;
        engine.seed(self.seed)?;
        let Self { temperature, top_k, top_p, max_tokens, .. } = *self;
        let prompt = text.encode(&self.prompt)?;
        let sampling = Sampling { temperature, top_k, top_p };
        engine.submit(Request { prompt, max_tokens, sampling, ignores_end: false })?;
        let mut decoding = Decoding::default();
        let mut out = std::io::stdout().lock();
        while !engine.is_empty() {
            for output in engine.step()? {
                if let Some(Finish::Failed(error)) = output.finish {
                    return Err(error);
                }
                let Some(token) = output.token else { continue };
                if let Some(part) = text.decode(&mut decoding, token)? {
                    let written = out.write_all(part.as_bytes()).and_then(|()| out.flush());
                    written.map_err(Error::file("standard output".as_ref()))?;
                }
            }
        }
        println!();
        Ok(())
    }
}

impl Embed {
    fn run(&self) -> Result<()> {
        let stream = open(self.device.as_deref())?;
        let (encoder, text) = (Encoder::load(&stream, &self.model)?, Text::read(&self.model)?);
        let embeddings = self.texts.iter().map(|part| encoder.embed(&stream, &text.encode(part)?));
        print_json(&embeddings.collect::<Result<Vec<_>>>()?)
    }
}

impl Bench {
    fn run(&self) -> Result<()> {
        let mut config = bench::config(&self.shape)?;
        config.layers = self.layers.unwrap_or(config.layers);
        let stream = open(self.place.device.as_deref())?;
        let sizes = (self.batch, self.context, self.steps);
        let report = bench::run(&stream, (&self.shape, config), self.place.weights, sizes)?;
        print_json(&report)
    }
}

fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string(value).map_err(|error| Error::Usage(error.to_string()))?;
    println!("{text}");
    Ok(())
}
