//! Encoders with wrong files or texts. `tests/embeddings.py` compares the embeddings of a real model.

use std::fs;

use llm::encoder::Encoder;
use llm::error::{Error, Result};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::bad_input::Copy;
use crate::{folder, stream};

const CONFIG: &str = r#"{"model_type": "bert", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 0,
    "num_attention_heads": 2, "vocab_size": 5, "max_position_embeddings": 4, "layer_norm_eps": 1e-12}"#;

/// Makes a folder of an encoder without layers.
fn model(test: &str) -> Copy {
    let copy = Copy::new("qwen3", test);
    let numbers: Vec<u8> = (0..40).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let view = |shape: &[usize]| {
        let bytes = 4 * shape.iter().product::<usize>();
        TensorView::new(Dtype::F32, shape.to_vec(), &numbers[..bytes]).unwrap()
    };
    let tensors = [
        ("embeddings.word_embeddings.weight", view(&[5, 8])),
        ("embeddings.position_embeddings.weight", view(&[4, 8])),
        ("embeddings.token_type_embeddings.weight", view(&[2, 8])),
        ("embeddings.LayerNorm.weight", view(&[8])),
        ("embeddings.LayerNorm.bias", view(&[8])),
    ];
    safetensors::serialize_to_file(tensors, None, &copy.path("model.safetensors")).unwrap();
    fs::write(copy.path("config.json"), CONFIG).unwrap();
    copy
}

#[test]
fn wrong_texts_are_refused() -> Result<()> {
    let stream = stream()?;
    let encoder = Encoder::load(&stream, &model("texts").0)?;
    let length: f32 = encoder.embed(&[1, 4, 0, 2])?.iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-5, "{length}");
    assert!(matches!(encoder.embed(&[]), Err(Error::EmptyPrompt)));
    let unknown = encoder.embed(&[1, 5]);
    assert!(matches!(unknown, Err(Error::UnknownToken { token: 5, vocabulary: 5 })));
    let error = encoder.embed(&[1; 5]).unwrap_err().to_string();
    assert_eq!(error, "text: 5 tokens, but the model supports at most 4");
    Ok(())
}

#[test]
fn wrong_encoders_are_refused() -> Result<()> {
    let stream = stream()?;
    let fails = |copy: &Copy, expected: &str| {
        let error = Encoder::load(&stream, &copy.0).map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let error = Encoder::load(&stream, &folder("llama")).map(drop).unwrap_err().to_string();
    assert!(error.ends_with("config.json: `model_type` is `llama`, but must be `bert`"), "{error}");
    for (from, to, expected) in [
        ("\"bert\"", "\"gpt2\"", "`model_type` is `gpt2`, but must be `bert`"),
        ("\"num_attention_heads\": 2", "\"num_attention_heads\": 3", "3 heads cannot share 8 elements"),
        (
            "\"num_attention_heads\": 2",
            "\"num_attention_heads\": 0",
            "`num_attention_heads` is 0, but must be",
        ),
        ("\"hidden_size\": 8", "\"hidden_size\": 0", "`hidden_size` is 0, but must be"),
        ("{", "{\"hidden_act\": \"relu\",", "`hidden_act` is `relu`, but must be `gelu`"),
        (
            "{",
            "{\"position_embedding_type\": \"x\",",
            "`position_embedding_type` is `x`, but must be `absolute`",
        ),
        (
            "\"num_hidden_layers\": 0",
            "\"num_hidden_layers\": 1",
            "the tensor `encoder.layer.0.attention.self.query.",
        ),
        (
            "\"hidden_size\": 8",
            "\"hidden_size\": 16",
            "the tensor `embeddings.position_embeddings.weight`: the shape is",
        ),
    ] {
        let copy = model("encoders");
        copy.replace("config.json", from, to);
        fails(&copy, expected);
    }
    Ok(())
}
