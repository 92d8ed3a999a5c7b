//! [`Geometry`]: the checked parameters of a convolution that determine its plan. [`Key`]: the same parameters as plain
//! words.

use super::convolution::Convolution;
use super::options::Options;
use super::tensor::{Layout, Shape, output_extent};
use crate::element::DataType;
use crate::element::FloatType;
use crate::error::LibraryError;
use warpsmith_runtime::{DevicePtr, Result};

/// Selects which tensor of a convolution is computed from the other two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Forward,
    BackwardData,
    BackwardWeights,
}

/// Epilogue that runs in the same kernel as the forward convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Epilogue {
    Nothing,
    Bias,
    BiasRelu,
}

/// Checked shapes of a convolution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub x: Shape,
    pub w: Shape,
    pub y: Shape,
    pub padding: [usize; 3],
    pub stride: [usize; 3],
    pub dilation: [usize; 3],
    pub groups: usize,
    pub alpha: f64,
    pub beta: f64,
}

impl Geometry {
    /// Creates the geometry of a convolution from the shape of its input and computes the shape of its output.
    pub fn of_input(
        operation: &'static str,
        convolution: &Convolution,
        x: &Shape,
        w: &Shape,
    ) -> Result<Self> {
        let Convolution { padding, stride, dilation, groups, alpha, beta, .. } = *convolution;
        let fail = |text: String| Err(LibraryError::shape(operation, text));
        if x.layout != w.layout {
            return fail(format!(
                "the input is {:?} and the weights are {:?}; use the same layout for both",
                x.layout, w.layout
            ));
        }
        if x.spatial != w.spatial || x.spatial == 0 {
            return fail(format!(
                "input {:?} and weights {:?}: the shapes must be [batch, channels, spatial…] and [output channels, \
                 channels, spatial…], with 1 to 3 spatial dimensions",
                x.shown(),
                w.shown()
            ));
        }
        let spatial = x.spatial;
        let padding = padding.spread(operation, "padding", spatial, 0)?;
        let stride = stride.spread(operation, "stride", spatial, 1)?;
        let dilation = dilation.spread(operation, "dilation", spatial, 1)?;
        if groups == 0 || stride.contains(&0) || dilation.contains(&0) {
            return fail("groups, stride and dilation must be at least 1".to_owned());
        }
        if w.dims[1].checked_mul(groups) != Some(x.dims[1]) {
            return fail(format!(
                "the input has {} channels, but the weights have {} for each of {groups} groups",
                x.dims[1], w.dims[1]
            ));
        }
        if !w.dims[0].is_multiple_of(groups) {
            return fail(format!(
                "{} output channels cannot be divided evenly into {groups} groups",
                w.dims[0]
            ));
        }
        let mut dims = [x.dims[0], w.dims[0], 1, 1, 1];
        for axis in 0..3 {
            let (input, taps) = (x.dims[axis + 2], w.dims[axis + 2]);
            match output_extent(input, taps, padding[axis], stride[axis], dilation[axis]) {
                Some(extent) => dims[axis + 2] = extent,
                None => {
                    return fail(format!(
                        "a filter of {taps} elements with dilation {} does not fit into an extent of {input} with \
                         padding {} (input {:?}, weights {:?})",
                        dilation[axis],
                        padding[axis],
                        x.shown(),
                        w.shown()
                    ));
                }
            }
        }
        let y = Shape { dims, spatial, layout: x.layout };
        Ok(Self { x: *x, w: *w, y, padding, stride, dilation, groups, alpha, beta })
    }

    /// Creates the geometry from the shapes of all three tensors.
    pub fn new(
        operation: &'static str,
        convolution: &Convolution,
        x: &Shape,
        w: &Shape,
        y: &Shape,
    ) -> Result<Self> {
        let geometry = Self::of_input(operation, convolution, x, w)?;
        if geometry.y != *y {
            return Err(LibraryError::shape(
                operation,
                format!(
                    "input {:?} and weights {:?} give an output {:?} {:?}, not {:?} {:?}",
                    x.shown(),
                    w.shown(),
                    geometry.y.shown(),
                    geometry.y.layout,
                    y.shown(),
                    y.layout
                ),
            ));
        }
        Ok(geometry)
    }

    /// Returns the number of spatial dimensions to pass to the library.
    pub fn library_spatial(&self) -> usize {
        self.x.rank() - 2
    }

    /// Returns the values of the spatial dimensions in the library's format.
    pub fn of_library(&self, values: [usize; 3]) -> [i64; 3] {
        let [d, h, w] = values.map(|value| i64::try_from(value).unwrap_or(i64::MAX));
        if self.x.spatial == 3 { [d, h, w] } else { [h, w, 0] }
    }
}

/// Cache key of a plan, which consists of plain words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub operation: Operation,
    pub epilogue: Epilogue,
    pub data: DataType,
    pub is_nhwc: bool,
    pub options: Options,
    /// Alignments of the addresses of x, w, y and the bias. Each is the largest power of two, up to 16, that divides
    /// the address.
    pub alignments: [u8; 4],
    pub x: [i64; 5],
    pub w: [i64; 5],
    pub padding: [i64; 3],
    pub stride: [i64; 3],
    pub dilation: [i64; 3],
    pub rank: usize,
    /// Bit patterns of the factors.
    pub factors: [u64; 2],
}

impl Key {
    pub fn new<T: FloatType>(
        operation: Operation,
        epilogue: Epilogue,
        geometry: &Geometry,
        options: Options,
        addresses: &[DevicePtr],
    ) -> Self {
        Self {
            operation,
            epilogue,
            data: T::TYPE,
            is_nhwc: geometry.x.layout == Layout::Nhwc,
            options,
            alignments: std::array::from_fn(|at| addresses.get(at).map_or(16, |address| alignment(*address))),
            x: geometry.x.of_library(geometry.x.dims),
            w: geometry.w.of_library(geometry.w.dims),
            padding: geometry.of_library(geometry.padding),
            stride: geometry.of_library(geometry.stride),
            dilation: geometry.of_library(geometry.dilation),
            rank: geometry.x.rank(),
            factors: [geometry.alpha.to_bits(), geometry.beta.to_bits()],
        }
    }
}

fn alignment(address: DevicePtr) -> u8 {
    1 << address.0.trailing_zeros().min(4)
}
