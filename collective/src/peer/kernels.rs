//! [`Kernels`]: kernels of the backend, loaded on a device.

use gpu_spec::{Kernel, KernelSpec};
use half::{bf16, f16};
use warpsmith_collective_kernels::exchange::exchange;
use warpsmith_collective_kernels::low_latency::reduce_low_latency;
use warpsmith_collective_kernels::reduce::reduce;
use warpsmith_runtime::{Device, Function, GpuImage};

use crate::element::ElementType;

/// Kernels of the backend, compiled for the GPU.
static IMAGE: GpuImage = warpsmith_runtime::include_image!("warpsmith_collective_kernels");

/// Returns the instances of `push` and `reduce` for an element type and a number of ranks.
fn specs(element: ElementType, world: usize) -> Option<[&'static KernelSpec; 2]> {
    macro_rules! instance {
        ($type:ty) => {
            match world {
                ..=2 => [reduce_low_latency::<$type, 2>::spec(), reduce::<$type, 2>::spec()],
                3..=4 => [reduce_low_latency::<$type, 4>::spec(), reduce::<$type, 4>::spec()],
                _ => [reduce_low_latency::<$type, 8>::spec(), reduce::<$type, 8>::spec()],
            }
        };
    }
    Some(match element {
        ElementType::I8 => instance!(i8),
        ElementType::U8 => instance!(u8),
        ElementType::I32 => instance!(i32),
        ElementType::U32 => instance!(u32),
        ElementType::I64 => instance!(i64),
        ElementType::U64 => instance!(u64),
        ElementType::F16 => instance!(f16),
        ElementType::F32 => instance!(f32),
        ElementType::F64 => instance!(f64),
        ElementType::Bf16 => instance!(bf16),
        ElementType::F8E4M3 | ElementType::F8E5M2 => return None,
    })
}

/// Kernels of the backend. See the [module documentation](self).
#[derive(Debug)]
pub(super) struct Kernels {
    /// Instances of `push` and `reduce` for each element type.
    reductions: Vec<(ElementType, [Function; 2])>,
    /// Instances for arrays aligned to 4 bytes and for all other arrays.
    exchange: [Function; 2],
}

impl Kernels {
    /// # Errors
    /// Fails if the image contains no code for the device.
    pub fn load(device: &Device, world: usize) -> warpsmith_runtime::Result<Self> {
        let module = device.load(&IMAGE)?;
        let specs = ElementType::ALL.iter().filter_map(|of| Some((*of, specs(*of, world)?)));
        let load = |(element, [low_latency, reduce]): (_, [_; 2])| {
            Ok((element, [module.function(low_latency)?, module.function(reduce)?]))
        };
        let reductions = specs.map(load).collect::<warpsmith_runtime::Result<_>>()?;
        let exchange = [module.function(exchange::<u32>::spec())?, module.function(exchange::<u8>::spec())?];
        Ok(Self { reductions, exchange })
    }

    /// Returns the instances of `push` and `reduce` for elements of this type.
    pub fn reductions(&self, element: ElementType) -> Option<&[Function; 2]> {
        self.reductions.iter().find(|(of, _)| *of == element).map(|(_, functions)| functions)
    }

    /// Returns the instance of `exchange` for addresses that are multiples of `multiple`, and the size of its elements
    /// in bytes.
    pub fn exchange(&self, multiple: usize) -> (&Function, usize) {
        let [of_words, of_bytes] = &self.exchange;
        if multiple.is_multiple_of(4) { (of_words, 4) } else { (of_bytes, 1) }
    }
}
