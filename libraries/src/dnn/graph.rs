//! [`Graph`]: a convolution in cuDNN's graph API and the engines that its heuristics suggest.

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t as Heuristics,
    cudnnBackendNumericalNote_t as Note, cudnnConvolutionMode_t, cudnnDataType_t, cudnnNanPropagation_t,
    cudnnPointwiseMode_t,
};

use super::descriptor::{Descriptor, RawHandle};
use super::geometry::{Epilogue, Geometry, Key, Operation};
use super::options::Options;
use super::tensor::Shape;
use warpsmith_runtime::error::{Error, Result};

/// Tensor identifiers of x, w, y and the bias, in the same order as [`Key::alignments`].
pub(super) const IDS: [i64; 4] = [1, 2, 3, 4];

/// A finalized graph and the descriptors that it refers to.
#[derive(Debug)]
pub(super) struct Graph {
    graph: Descriptor,
    _operations: Vec<Descriptor>,
    _parts: Vec<Descriptor>,
}

/// Engine configurations.
pub(super) struct Candidates {
    pub configs: Vec<Descriptor>,
    /// Errors of failed heuristics queries. If there are any, further engines may exist.
    pub failed: Vec<Error>,
}

/// The tensors of a graph that is being built.
struct Builder<'a> {
    data: cudnnDataType_t,
    compute: cudnnDataType_t,
    geometry: &'a Geometry,
    key: &'a Key,
}

impl Graph {
    pub fn new(handle: &RawHandle, data: cudnnDataType_t, geometry: &Geometry, key: &Key) -> Result<Self> {
        let compute = match data {
            cudnnDataType_t::CUDNN_DATA_DOUBLE => cudnnDataType_t::CUDNN_DATA_DOUBLE,
            _ => cudnnDataType_t::CUDNN_DATA_FLOAT,
        };
        let builder = Builder { data, compute, geometry, key };
        let x = builder.operand(0, &geometry.x)?;
        let w = builder.operand(1, &geometry.w)?;
        let y = builder.operand(2, &geometry.y)?;
        let mut operations = Vec::new();
        let mut parts = Vec::new();
        match key.epilogue {
            Epilogue::Nothing => operations.push(builder.convolution(&x, &w, &y, &mut parts)?),
            Epilogue::Bias | Epilogue::BiasRelu => {
                let bias = Shape { dims: [1, geometry.y.dims[1], 1, 1, 1], ..geometry.y };
                let bias = builder.operand(3, &bias)?;
                let sum = builder.intermediate(5)?;
                operations.push(builder.convolution(&x, &w, &sum, &mut parts)?);
                let add = cudnnPointwiseMode_t::CUDNN_POINTWISE_ADD;
                if key.epilogue == Epilogue::Bias {
                    operations.push(builder.pointwise(add, &sum, Some(&bias), &y, &mut parts)?);
                } else {
                    let biased = builder.intermediate(6)?;
                    operations.push(builder.pointwise(add, &sum, Some(&bias), &biased, &mut parts)?);
                    let relu = cudnnPointwiseMode_t::CUDNN_POINTWISE_RELU_FWD;
                    operations.push(builder.pointwise(relu, &biased, None, &y, &mut parts)?);
                    parts.push(biased);
                }
                parts.extend([bias, sum]);
            }
        }
        parts.extend([x, w, y]);
        let mut graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        graph.set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[handle.get()])?;
        let all: Vec<&Descriptor> = operations.iter().collect();
        graph.set_descriptors(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &all)?;
        Ok(Self { graph: graph.finalize()?, _operations: operations, _parts: parts })
    }

    /// Returns the engine configurations that satisfy the options, most promising first. The fallback engines, which
    /// are slow but support any geometry, come last.
    pub fn candidates(&self, data: cudnnDataType_t, options: &Options) -> Result<Candidates> {
        let mut found = Vec::new();
        let mut failed = Vec::new();
        for mode in [Heuristics::CUDNN_HEUR_MODE_A, Heuristics::CUDNN_HEUR_MODE_FALLBACK] {
            match self.suggested(mode) {
                Ok(suggested) => found.extend(suggested),
                Err(error) => failed.push(error),
            }
        }
        let mut configs = Vec::new();
        for config in found {
            if is_allowed(&notes(&config)?, data, options) {
                configs.push(config);
            }
        }
        Ok(Candidates { configs, failed })
    }

    fn suggested(&self, mode: Heuristics) -> Result<Vec<Descriptor>> {
        let mut heuristics = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
        heuristics.set_descriptors(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&self.graph])?;
        heuristics.set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?;
        let heuristics = heuristics.finalize()?;
        let results = Name::CUDNN_ATTR_ENGINEHEUR_RESULTS;
        let count = heuristics.count(results, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR)?;
        let room = (0..count).map(|_| Descriptor::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
        let mut configs: Vec<Descriptor> = room.collect::<Result<_>>()?;
        if !configs.is_empty() {
            let filled = heuristics.fill(results, &mut configs)?;
            configs.truncate(filled);
        }
        Ok(configs)
    }
}

/// Returns the numerical notes of a configuration's engine.
fn notes(config: &Descriptor) -> Result<Vec<u32>> {
    let mut engine = [Descriptor::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?];
    config.fill(Name::CUDNN_ATTR_ENGINECFG_ENGINE, &mut engine)?;
    engine[0].numerical_notes()
}

/// Returns true if the options allow an engine with these numerical notes. As in PyTorch, engines that round their
/// inputs to a smaller type are never used. Without TF32, `f32` engines that use tensor cores are also excluded.
fn is_allowed(notes: &[u32], data: cudnnDataType_t, options: &Options) -> bool {
    let has = |note: Note| notes.contains(&(note as u32));
    let is_single = data == cudnnDataType_t::CUDNN_DATA_FLOAT;
    !(has(Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
        || options.deterministic && has(Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
        || !options.allow_tf32 && is_single && has(Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE))
}

impl Builder<'_> {
    fn tensor(
        &self,
        shape: &Shape,
        id: i64,
        data: cudnnDataType_t,
        alignment: i64,
        is_virtual: bool,
    ) -> Result<Descriptor> {
        let mut tensor = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
        let rank = shape.rank();
        tensor.set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[data])?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &shape.of_library(shape.dims)[..rank])?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_STRIDES, &shape.of_library(shape.strides())[..rank])?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?;
        tensor.set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[alignment])?;
        if is_virtual {
            tensor.set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[true])?;
        }
        tensor.finalize()
    }

    /// Creates the descriptor of the tensor x, w, y or the bias.
    fn operand(&self, index: usize, shape: &Shape) -> Result<Descriptor> {
        let alignment = i64::from(self.key.alignments[index]);
        self.tensor(shape, IDS[index], self.data, alignment, false)
    }

    /// Creates a virtual tensor between two operations, with the shape of the output.
    fn intermediate(&self, id: i64) -> Result<Descriptor> {
        self.tensor(&self.geometry.y, id, self.compute, 16, true)
    }

    fn convolution(
        &self,
        x: &Descriptor,
        w: &Descriptor,
        y: &Descriptor,
        parts: &mut Vec<Descriptor>,
    ) -> Result<Descriptor> {
        let Geometry { padding, stride, dilation, alpha, beta, .. } = *self.geometry;
        let spatial = self.geometry.library_spatial();
        let mut window = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
        let mut set =
            |name, values: [usize; 3]| window.set(name, &self.geometry.of_library(values)[..spatial]);
        set(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding)?;
        set(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding)?;
        set(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride)?;
        set(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation)?;
        window.set(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[spatial as i64])?;
        window.set(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[self.compute])?;
        let mode = cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
        window.set(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, &[mode])?;
        let window = window.finalize()?;

        let (kind, [x_name, w_name, y_name, window_name, alpha_name, beta_name]) = names(self.key.operation);
        let mut operation = Descriptor::new(kind)?;
        operation.set_descriptors(x_name, &[x])?;
        operation.set_descriptors(w_name, &[w])?;
        operation.set_descriptors(y_name, &[y])?;
        operation.set_descriptors(window_name, &[&window])?;
        operation.set_factor(alpha_name, self.compute, alpha)?;
        operation.set_factor(beta_name, self.compute, beta)?;
        parts.push(window);
        operation.finalize()
    }

    /// Creates a pointwise operation on `x`, and on `b` if the operation is binary.
    fn pointwise(
        &self,
        mode: cudnnPointwiseMode_t,
        x: &Descriptor,
        b: Option<&Descriptor>,
        y: &Descriptor,
        parts: &mut Vec<Descriptor>,
    ) -> Result<Descriptor> {
        let mut kind = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
        kind.set(Name::CUDNN_ATTR_POINTWISE_MODE, &[mode])?;
        kind.set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[self.compute])?;
        if mode == cudnnPointwiseMode_t::CUDNN_POINTWISE_RELU_FWD {
            let nans = cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN;
            kind.set(Name::CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, &[nans])?;
        }
        let kind = kind.finalize()?;
        let mut operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
        operation.set_descriptors(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&kind])?;
        operation.set_descriptors(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[x])?;
        if let Some(b) = b {
            operation.set_descriptors(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[b])?;
        }
        operation.set_descriptors(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[y])?;
        parts.push(kind);
        operation.finalize()
    }
}

/// Returns the descriptor kind of an operation, and the names of its attributes for x, w, y, convolution, alpha and
/// beta.
fn names(operation: Operation) -> (Kind, [Name; 6]) {
    match operation {
        Operation::Forward => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
            ],
        ),
        Operation::BackwardData => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
            ],
        ),
        Operation::BackwardWeights => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
            ],
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_decide_by_the_notes_of_engines() {
        let note = |note: Note| note as u32;
        let (down, random, tensor) = (
            note(Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS),
            note(Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC),
            note(Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE),
        );
        let (single, half) = (cudnnDataType_t::CUDNN_DATA_FLOAT, cudnnDataType_t::CUDNN_DATA_HALF);
        let default = Options::default();
        let exact = Options { allow_tf32: false, ..default };
        let same = Options { deterministic: true, ..default };
        assert!(is_allowed(&[random, tensor], single, &default));
        assert!(!is_allowed(&[tensor], single, &exact) && is_allowed(&[tensor], half, &exact));
        assert!(!is_allowed(&[random], half, &same) && is_allowed(&[tensor, 77], half, &same));
        assert!(!is_allowed(&[down], half, &default));
    }
}
