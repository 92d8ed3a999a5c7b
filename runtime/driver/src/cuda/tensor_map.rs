//! Tensor maps: descriptors of tensors in device memory, for TMA copies.

use cudarc::driver::sys;
use gpu_spec::{Swizzle, TensorMapData, TensorMapSpec};

use super::call::{Feature, check, invalid};
use crate::error::Result;

const CALL: &str = "cuTensorMapEncodeTiled";

/// Encodes a tensor map for the current context's device. Elements outside the tensor are read as zero.
pub(super) fn encode(spec: &TensorMapSpec) -> Result<TensorMapData> {
    use sys::CUtensorMapDataType_enum as Type;
    Feature::TensorMaps.need(CALL)?;
    spec.check().map_err(|error| invalid(CALL, error.to_string()))?;
    let element = match spec.element_bytes {
        1 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        2 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        4 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        _ => Type::CU_TENSOR_MAP_DATA_TYPE_UINT64,
    };
    let swizzle = match spec.swizzle {
        Swizzle::None => sys::CUtensorMapSwizzle_enum::CU_TENSOR_MAP_SWIZZLE_NONE,
        Swizzle::Bytes32 => sys::CUtensorMapSwizzle_enum::CU_TENSOR_MAP_SWIZZLE_32B,
        Swizzle::Bytes64 => sys::CUtensorMapSwizzle_enum::CU_TENSOR_MAP_SWIZZLE_64B,
        Swizzle::Bytes128 => sys::CUtensorMapSwizzle_enum::CU_TENSOR_MAP_SWIZZLE_128B,
    };
    // An unaligned row touches one more cache line than it fills, and L2 promotion would read this line entirely. It
    // made a GEMM whose k is not a multiple of 64 one eighth slower.
    let is_aligned =
        spec.strides.iter().zip(&spec.dims[1..spec.rank]).all(|(stride, &dim)| dim == 1 || stride % 256 == 0);
    let promotion = if is_aligned {
        sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_256B
    } else {
        sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_NONE
    };
    let steps = [1u32; gpu_spec::tensor_map::MAX_RANK];
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    // SAFETY: the arrays contain at least one number per dimension, and the map is a local variable. The tensor's
    // address is not dereferenced.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            element,
            spec.rank as u32,
            spec.address as *mut std::ffi::c_void,
            spec.dims.as_ptr(),
            spec.strides.as_ptr(),
            spec.tile.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            promotion,
            sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    check(CALL, result)?;
    Ok(TensorMapData(map.opaque))
}
