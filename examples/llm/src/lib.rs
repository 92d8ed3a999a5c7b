//! Llama and Qwen3 language models: text generation, a server, and a benchmark.
//!
//! | module | contents |
//! | --- | --- |
//! | [`config`] | `config.json` |
//! | [`weights`], [`linear`] | weight files, formats of weights |
//! | [`model`] | the layers |
//! | [`engine`] | continuous batching |
//! | [`text`] | tokenizer |
//! | [`encoder`] | embeddings by BERT models |
//! | [`serve`] | OpenAI's completions interface |
//! | [`mod@bench`], [`check`] | measurements; a self-test |

pub mod bench;
pub mod check;
pub mod config;
pub mod encoder;
pub mod engine;
pub mod error;
pub mod files;
pub mod linear;
pub mod model;
pub mod serve;
pub mod text;
pub mod weights;

use warpsmith::GpuImage;

/// The GPU image that build.rs built from `kernels/`.
pub static KERNELS: GpuImage = warpsmith::include_image!("llm_kernels");
