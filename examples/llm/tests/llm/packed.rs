//! Weights that GPTQ or AWQ quantized: the logits are those of a model with the same weights in bf16.

use std::collections::BTreeMap;
use std::fs;

use half::{bf16, f16};
use llm::config::{Config, DECODERS};
use llm::engine::{Engine, Limits};
use llm::error::Result;
use llm::linear::WeightFormat;
use llm::weights::Folder;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::bad_input::{Copy, fails};
use crate::parallel::streams;
use crate::{engine, finish, greedy, stream};

const HIDDEN: usize = 128;
const GROUP: usize = 32;
const PROMPT: [u32; 5] = [1, 20, 12, 40, 5];
const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 289, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128 QUANTIZATION}"#;
/// Order in which AWQ stores eight columns.
const OF_AWQ: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// Adds the tensors of a matrix in three formats.
fn add(name: &str, [k, n]: [usize; 2], random: &mut fastrand::Rng, [plain, gptq, awq]: [&mut Tensors; 3]) {
    let groups = k / GROUP;
    let code: Vec<u32> = (0..k * n).map(|_| random.u32(..16)).collect();
    let zero: Vec<u32> = (0..groups * n).map(|_| random.u32(6..11)).collect();
    let scale: Vec<f32> = (0..groups * n).map(|_| 2f32.powi(random.i32(-7..-5))).collect();
    let number = |i: usize| {
        let (row, column) = (i % k, i / k);
        let group = row / GROUP * n + column;
        bf16::from_f32(scale[group] * (code[row * n + column] as f32 - zero[group] as f32))
    };
    let bytes = (0..k * n).flat_map(|i| number(i).to_le_bytes()).collect();
    plain.insert(format!("{name}.weight"), (Dtype::BF16, vec![n, k], bytes));

    let word = |nibble: &dyn Fn(usize) -> u32| (0..8).fold(0, |word, i| word | nibble(i) << (4 * i));
    let words =
        |count: usize, word: &dyn Fn(usize) -> u32| (0..count).flat_map(|i| word(i).to_le_bytes()).collect();
    let wide = n / 8;
    let by_rows = words(k / 8 * n, &|i| word(&|j| code[(i / n * 8 + j) * n + i % n]));
    let by_columns = |of: &[u32], rows: usize, order: [usize; 8], offset: u32| {
        words(rows * wide, &|i| word(&|j| (of[i / wide * n + i % wide * 8 + order[j]] - offset) & 15))
    };
    let natural = [0, 1, 2, 3, 4, 5, 6, 7];
    let scales: Vec<u8> = scale.iter().flat_map(|scale| f16::from_f32(*scale).to_le_bytes()).collect();
    for (tensors, qweight, qzeros, shape) in [
        (gptq, by_rows, by_columns(&zero, groups, natural, 1), vec![k / 8, n]),
        (awq, by_columns(&code, k, OF_AWQ, 0), by_columns(&zero, groups, OF_AWQ, 0), vec![k, wide]),
    ] {
        tensors.insert(format!("{name}.qweight"), (Dtype::I32, shape, qweight));
        tensors.insert(format!("{name}.qzeros"), (Dtype::I32, vec![groups, wide], qzeros));
        tensors.insert(format!("{name}.scales"), (Dtype::F16, vec![groups, n], scales.clone()));
    }
}

fn write(copy: &Copy, tensors: &Tensors, quantization: &str) {
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, &copy.path("model.safetensors")).unwrap();
    fs::write(copy.path("config.json"), CONFIG.replace("QUANTIZATION", quantization)).unwrap();
}

/// Makes a folder of the same model for each format.
pub fn models(test: &str) -> [Copy; 3] {
    let mut random = fastrand::Rng::with_seed(5);
    let [mut plain, mut gptq, mut awq] = [(); 3].map(|()| Tensors::new());
    for (name, shape) in [
        ("self_attn.q_proj", [HIDDEN, 256]),
        ("self_attn.k_proj", [HIDDEN, 128]),
        ("self_attn.v_proj", [HIDDEN, 128]),
        ("self_attn.o_proj", [256, HIDDEN]),
        ("mlp.gate_proj", [HIDDEN, 256]),
        ("mlp.up_proj", [HIDDEN, 256]),
        ("mlp.down_proj", [256, HIDDEN]),
    ] {
        add(&format!("model.layers.0.{name}"), shape, &mut random, [&mut plain, &mut gptq, &mut awq]);
    }
    let norms = ["model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm", "model.norm"];
    let norms = norms.map(|name| (name, vec![HIDDEN]));
    for (name, shape) in
        [("model.embed_tokens", vec![289, HIDDEN]), ("lm_head", vec![289, HIDDEN])].into_iter().chain(norms)
    {
        let count = shape.iter().product::<usize>();
        let bytes: Vec<u8> =
            (0..count).flat_map(|_| bf16::from_f32(random.f32() - 0.25).to_le_bytes()).collect();
        for tensors in [&mut plain, &mut gptq, &mut awq] {
            tensors.insert(format!("{name}.weight"), (Dtype::BF16, shape.clone(), bytes.clone()));
        }
    }
    let quantization = |method: &str, rest: &str| {
        format!(
            r#", "quantization_config": {{"quant_method": "{method}", "bits": 4, "group_size": {GROUP}, {rest}}}"#
        )
    };
    let folders = ["bf16", "gptq", "awq"].map(|format| Copy::new("qwen3", &format!("{test}-{format}")));
    write(&folders[0], &plain, "");
    write(&folders[1], &gptq, &quantization("gptq", r#""desc_act": false, "sym": false"#));
    write(&folders[2], &awq, &quantization("awq", r#""version": "GEMM", "zero_point": true"#));
    folders
}

fn tokens(model: &Copy) -> Result<Vec<u32>> {
    let limits = Limits { sequences: 1, chunk: 16, pages: None };
    let mut engine = engine(&stream()?, model.0.to_str().unwrap(), 128, limits)?;
    engine.submit(greedy(&PROMPT, 12))?;
    Ok(finish(&mut engine, 1)?.remove(0).0)
}

/// Two devices divide the groups of the weights, but not the vocabulary of 289 tokens.
#[test]
fn two_devices_give_the_tokens_of_quantized_files() -> Result<()> {
    let [plain, gptq, _] = models("devices");
    let config = Config::read(&gptq.0, &DECODERS)?;
    let limits = Limits { sequences: 1, chunk: 16, pages: None };
    let folder = Folder::open(&gptq.0)?;
    let mut engine = Engine::load(&streams(2)?, &config, 128, WeightFormat::Bf16, Some(&folder), limits)?;
    engine.submit(greedy(&PROMPT, 12))?;
    assert_eq!(finish(&mut engine, 1)?.remove(0).0, tokens(&plain)?);
    Ok(())
}

#[test]
fn quantized_files_give_the_tokens_of_their_weights() -> Result<()> {
    let folders = models("tokens");
    let [plain, gptq, awq] = folders.each_ref().map(tokens);
    let plain = plain?;
    assert_eq!(plain.len(), 12);
    assert_eq!((&gptq?, &awq?), (&plain, &plain));
    Ok(())
}

#[test]
fn wrong_quantized_files_are_refused() {
    let [_, gptq, awq] = models("wrong");
    let cases = [
        (&gptq, "\"gptq\"", "\"fp8\"", "config.json: `quant_method` is `fp8`, but must be `gptq` or `awq`"),
        (&gptq, "\"bits\": 4", "\"bits\": 8", "config.json: gptq weights must have 4 bits, and"),
        (
            &gptq,
            "\"desc_act\": false",
            "\"desc_act\": true",
            "config.json: gptq weights must have 4 bits, and",
        ),
        (&awq, "\"GEMM\"", "\"gemv\"", "config.json: `version` is `gemv`, but must be `gemm`"),
    ];
    for (copy, from, to, expected) in cases {
        copy.replace("config.json", from, to);
        fails(copy, expected);
        copy.replace("config.json", to, from);
    }
    gptq.replace("config.json", "\"intermediate_size\": 256", "\"intermediate_size\": 384");
    fails(
        &gptq,
        "the tensor `model.layers.0.mlp.gate_proj.qweight`: the shape is [16, 256], but config.json requires [16, 384]",
    );
    gptq.replace("config.json", "\"intermediate_size\": 384", "\"intermediate_size\": 256");
    gptq.replace("model.safetensors", "\"shape\":[8,128]", "\"shape\":[16,64]");
    fails(
        &gptq,
        "the matrix `model.layers.0.mlp.down_proj`: 256 inputs, 128 outputs and groups of 16 weights, but",
    );
    awq.replace("config.json", "\"awq\"", "\"gptq\"");
    awq.replace("config.json", "\"GEMM\"", "\"gptq\"");
    fails(
        &awq,
        "the tensor `model.layers.0.self_attn.q_proj.qweight`: the shape is [128, 32], but config.json requires",
    );
    awq.replace("config.json", "\"version\": \"gptq\"", "\"version\": \"GEMM\"");
    awq.replace("config.json", "\"gptq\"", "\"awq\"");
    awq.replace("model.safetensors", "\"dtype\":\"F16\"", "\"dtype\":\"I16\"");
    let error = awq.load().unwrap_err().to_string();
    assert!(error.ends_with(".scales`: the elements have type I16, but must have F16"), "{error}");
}
