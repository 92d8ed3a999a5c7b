//! Weights that are quantized in the files: the logits are those of a model with the same weights in bf16.

use std::collections::BTreeMap;
use std::fs;

use half::{bf16, f16};
use llm::config::{Config, DECODERS};
use llm::engine::{Engine, Limits};
use llm::error::{Error, Result};
use llm::linear::WeightFormat;
use llm::weights::Folder;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use warpsmith::ops::F8E4M3;

use crate::bad_input::{Copy, fails};
use crate::models::logits_of;
use crate::parallel::streams;
use crate::{finish, greedy, load, stream};

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

/// Adds the tensors of a matrix of E4M3 numbers, with a scale per block, and of the same matrix in bf16.
fn add_fp8(name: &str, [k, n]: [usize; 2], scales: &Scales, [plain, fp8]: [&mut Tensors; 2]) {
    let mut random = fastrand::Rng::with_seed(name.len() as u64);
    let [height, width] = (scales.block)([n, k]);
    let shape = [n.div_ceil(height), k / width];
    let scale: Vec<f32> =
        (0..shape[0] * shape[1]).map(|_| random.f32().mul_add(4.0, 4.0).floor() / 512.0).collect();
    let number: Vec<f32> = (0..n * k).map(|_| random.i32(-8..9) as f32).collect();
    let scaled = |i: usize| scale[i / k / height * shape[1] + i % k / width] * number[i];
    let bytes = (0..n * k).flat_map(|i| bf16::from_f32(scaled(i)).to_le_bytes()).collect();
    plain.insert(format!("{name}.weight"), (Dtype::BF16, vec![n, k], bytes));
    let bytes = number.iter().map(|x| F8E4M3::from_f32(*x).to_bits()).collect();
    fp8.insert(format!("{name}.weight"), (Dtype::F8_E4M3, vec![n, k], bytes));
    let bytes = match scales.dtype {
        Dtype::F32 => scale.iter().flat_map(|x| x.to_le_bytes()).collect(),
        _ => scale.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
    };
    let shape = if scale.len() == 1 { vec![] } else { shape.to_vec() };
    fp8.insert(format!("{name}.{}", scales.name), (scales.dtype, shape, bytes));
}

/// Scales of fp8 weights in files.
struct Scales {
    method: &'static str,
    name: &'static str,
    dtype: Dtype,
    /// Returns the shape of the blocks of an n x k matrix.
    block: fn([usize; 2]) -> [usize; 2],
}

const SCALES: [Scales; 3] = [
    Scales {
        method: r#""quant_method": "fp8", "weight_block_size": [128, 128]"#,
        name: "weight_scale_inv",
        dtype: Dtype::BF16,
        block: |_| [128, 128],
    },
    Scales {
        method: r#""quant_method": "compressed-tensors", "format": "float-quantized""#,
        name: "weight_scale",
        dtype: Dtype::BF16,
        block: |[_, k]| [1, k],
    },
    Scales {
        method: r#""quant_method": "fp8""#,
        name: "weight_scale",
        dtype: Dtype::F32,
        block: |shape| shape,
    },
];

/// Makes a folder with bf16 weights, and one with the same weights in fp8.
fn fp8_models(test: &str, scales: &Scales) -> [Copy; 2] {
    let quantization = format!(r#", "quantization_config": {{{}}}"#, scales.method);
    make(test, [("bf16", String::new()), ("fp8", quantization)], |name, shape, tensors| {
        add_fp8(name, shape, scales, tensors);
    })
}

/// Makes a folder of the same model for each format.
pub fn models(test: &str) -> [Copy; 3] {
    let mut random = fastrand::Rng::with_seed(5);
    let quantization = |method: &str, rest: &str| {
        format!(
            r#", "quantization_config": {{"quant_method": "{method}", "bits": 4, "group_size": {GROUP}, {rest}}}"#
        )
    };
    let gptq = quantization("gptq", r#""desc_act": false, "sym": false"#);
    let awq = quantization("awq", r#""version": "GEMM", "zero_point": true"#);
    make(test, [("bf16", String::new()), ("gptq", gptq), ("awq", awq)], |name, shape, tensors| {
        add(name, shape, &mut random, tensors);
    })
}

/// Makes folders of a model: each has a name, a part of `config.json`, and the matrices that `add` adds.
fn make<const N: usize>(
    test: &str,
    formats: [(&str, String); N],
    mut add: impl FnMut(&str, [usize; 2], [&mut Tensors; N]),
) -> [Copy; N] {
    let mut random = fastrand::Rng::with_seed(7);
    let mut tensors = [(); N].map(|()| Tensors::new());
    for (name, shape) in [
        ("self_attn.q_proj", [HIDDEN, 256]),
        ("self_attn.k_proj", [HIDDEN, 128]),
        ("self_attn.v_proj", [HIDDEN, 128]),
        ("self_attn.o_proj", [256, HIDDEN]),
        ("mlp.gate_proj", [HIDDEN, 256]),
        ("mlp.up_proj", [HIDDEN, 256]),
        ("mlp.down_proj", [256, HIDDEN]),
    ] {
        add(&format!("model.layers.0.{name}"), shape, tensors.each_mut());
    }
    let norms = ["model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm", "model.norm"];
    let norms = norms.map(|name| (name, vec![HIDDEN]));
    for (name, shape) in
        [("model.embed_tokens", vec![289, HIDDEN]), ("lm_head", vec![289, HIDDEN])].into_iter().chain(norms)
    {
        let count = shape.iter().product::<usize>();
        let bytes: Vec<u8> =
            (0..count).flat_map(|_| bf16::from_f32(random.f32() - 0.25).to_le_bytes()).collect();
        for tensors in &mut tensors {
            tensors.insert(format!("{name}.weight"), (Dtype::BF16, shape.clone(), bytes.clone()));
        }
    }
    let mut formats = formats.into_iter().zip(tensors);
    [(); N].map(|()| {
        let ((format, quantization), tensors) = formats.next().unwrap();
        let copy = Copy::new("qwen3", &format!("{test}-{format}"));
        write(&copy, &tensors, &quantization);
        copy
    })
}

/// Compares the logits of a few tokens, whose products are skinny, and of more tokens.
#[track_caller]
fn logits_match(plain: &Copy, quantized: &Copy, scales: &str) -> Result<()> {
    for len in [PROMPT.len(), 20] {
        let tokens: Vec<u32> = PROMPT.into_iter().cycle().take(len).collect();
        let logits = |model: &Copy| {
            let stream = stream()?;
            let model = load(&stream, model.0.to_str().unwrap(), 128, WeightFormat::Bf16)?;
            Ok::<_, Error>(logits_of(&stream, model, &tokens)?.concat())
        };
        let (expected, found) = (logits(plain)?, logits(quantized)?);
        let largest = expected.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
        let is_close = |(a, b): (&f32, &f32)| (a - b).abs() <= 0.03 * largest;
        assert!(expected.iter().zip(&found).all(is_close), "{scales}, {len} tokens");
    }
    Ok(())
}

fn tokens_of_two_devices(model: &Copy) -> Result<Vec<u32>> {
    let (config, folder) = (Config::read(&model.0, &DECODERS)?, Folder::open(&model.0)?);
    let limits = Limits { sequences: 1, chunk: 16, pages: None };
    let mut engine = Engine::load(&streams(2)?, &config, 128, WeightFormat::Bf16, Some(&folder), limits)?;
    engine.submit(greedy(&PROMPT, 12))?;
    Ok(finish(&mut engine, 1)?.remove(0).0)
}

/// Two devices divide the groups of the weights, but not the vocabulary of 289 tokens.
#[test]
fn two_devices_give_the_tokens_of_quantized_files() -> Result<()> {
    let [plain, gptq, _] = models("devices");
    assert_eq!(tokens_of_two_devices(&gptq)?, tokens_of_two_devices(&plain)?);
    Ok(())
}

/// Matrices, outputs or blocks have a scale.
#[test]
fn fp8_files_give_the_logits_of_their_weights() -> Result<()> {
    for scales in &SCALES {
        let [plain, fp8] = fp8_models("fp8", scales);
        logits_match(&plain, &fp8, scales.method)?;
        assert_eq!(tokens_of_two_devices(&fp8)?, tokens_of_two_devices(&plain)?, "{}", scales.method);
    }
    Ok(())
}

#[test]
fn wrong_fp8_files_are_refused() {
    let [_, fp8] = fp8_models("wrong-fp8", &SCALES[0]);
    let (config, weights) = ("config.json", "model.safetensors");
    for (file, from, to, expected) in [
        (
            config,
            "\"fp8\"",
            "\"bnb\"",
            "config.json: `quant_method` is `bnb`, but must be `gptq` or `awq` or `fp8` or `compressed-tensors`",
        ),
        (
            config,
            "\"weight_block_size\": [128, 128]",
            "\"format\": \"pack-quantized\"",
            "config.json: `format` is `pack-quantized`, but must be `float-quantized`",
        ),
        (
            weights,
            "q_proj.weight_scale_inv",
            "q_proj.weight_scale_inw",
            "the tensor `model.layers.0.self_attn.q_proj.weight_scale`: no weight file contains it",
        ),
        (
            weights,
            "\"dtype\":\"F8_E4M3\"",
            "\"dtype\":\"F8_E5M2\"",
            "the tensor `model.layers.0.mlp.down_proj.weight`: the elements have type F8_E5M2, but must have",
        ),
    ] {
        fp8.replace(file, from, to);
        fails(&fp8, expected);
        fp8.replace(file, to, from);
    }
    fp8.replace(weights, "\"shape\":[2,1]", "\"shape\":[1,2]");
    fails(
        &fp8,
        "the tensor `model.layers.0.mlp.gate_proj.weight_scale_inv`: the shape is [1, 2], but config.json requires [2, 1]",
    );
}

#[test]
fn quantized_files_give_the_logits_of_their_weights() -> Result<()> {
    let [plain, gptq, awq] = models("logits");
    logits_match(&plain, &gptq, "gptq")?;
    logits_match(&plain, &awq, "awq")
}

#[test]
fn wrong_quantized_files_are_refused() {
    let [_, gptq, awq] = models("wrong");
    let cases = [
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
