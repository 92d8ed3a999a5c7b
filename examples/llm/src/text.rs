//! [`Text`]: conversion between text and tokens.

use std::path::Path;

use tokenizers::Tokenizer;

use crate::error::{Error, Result};
use crate::files::read;

/// Tokenizer of a model.
pub struct Text {
    tokenizer: Tokenizer,
}

/// Part of a text whose tokens arrive one by one.
#[derive(Default)]
pub struct Decoding {
    tokens: Vec<u32>,
    prefix: String,
    prefix_end: usize,
}

impl Text {
    /// Reads `tokenizer.json` of a Hugging Face folder.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("tokenizer.json");
        let mut tokenizer = Tokenizer::from_bytes(read(&path)?).map_err(Error::at(path.display()))?;
        // Without a mask, the models would attend to padding. Texts that are too long are an error, and are not cut.
        tokenizer.with_padding(None).with_truncation(None).map_err(Error::at(path.display()))?;
        Ok(Self { tokenizer })
    }

    /// Returns the tokens of a text, including the special tokens that the tokenizer adds.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.tokenizer.encode_fast(text, true).map_err(Error::at("prompt"))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Adds a token and returns the text that it completes.
    pub fn decode(&self, decoding: &mut Decoding, token: u32) -> Result<Option<String>> {
        let Decoding { tokens, prefix, prefix_end } = decoding;
        let added = vec![token];
        tokenizers::tokenizer::step_decode_stream(&self.tokenizer, added, true, tokens, prefix, prefix_end)
            .map_err(Error::at("new tokens"))
    }
}
