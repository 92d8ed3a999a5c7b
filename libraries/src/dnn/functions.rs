//! The cuDNN functions that this crate calls.

use std::ffi::{CStr, c_char, c_int, c_void};

use cudarc::cudnn::sys::{
    cudaStream_t, cudnnActivationDescriptor_t, cudnnActivationMode_t, cudnnBackendAttributeName_t,
    cudnnBackendAttributeType_t, cudnnBackendDescriptor_t, cudnnBackendDescriptorType_t,
    cudnnBatchNormMode_t, cudnnDataType_t, cudnnHandle_t, cudnnNanPropagation_t, cudnnPoolingDescriptor_t,
    cudnnPoolingMode_t, cudnnTensorDescriptor_t,
};

use crate::functions::functions;
use crate::vendor::Vendor;

/// Status that a cuDNN function returns. 0 is success.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Status(u32);

impl Status {
    pub const SUCCESS: Self = Self(0);
    /// `CUDNN_STATUS_NOT_SUPPORTED`, which is also reported for functions that the library lacks.
    const NOT_SUPPORTED: Self = Self(3000);
}

/// Formats the library's name for the status, or the status number.
impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SAFETY: the library is loaded because every caller holds a handle. For any number, the function returns a
        // static zero-terminated string.
        let name = unsafe {
            type Names = unsafe extern "C" fn(Status) -> *const c_char;
            let names = Vendor::Cudnn.symbol::<Names>("cudnnGetErrorString");
            names.map(|names| names(*self)).filter(|name| !name.is_null()).map(|name| CStr::from_ptr(name))
        };
        match name {
            Some(name) => f.write_str(&name.to_string_lossy()),
            None => write!(f, "status {}", self.0),
        }
    }
}

functions! {
    Vendor::Cudnn, Status, Status::NOT_SUPPORTED;
    cudnnActivationForward(handle: cudnnHandle_t, activation_desc: cudnnActivationDescriptor_t, alpha: *const c_void, x_desc: cudnnTensorDescriptor_t, x: *const c_void, beta: *const c_void, y_desc: cudnnTensorDescriptor_t, y: *mut c_void);
    cudnnAddTensor(handle: cudnnHandle_t, alpha: *const c_void, a_desc: cudnnTensorDescriptor_t, a: *const c_void, beta: *const c_void, c_desc: cudnnTensorDescriptor_t, c: *mut c_void);
    cudnnBackendCreateDescriptor(descriptor_type: cudnnBackendDescriptorType_t, descriptor: *mut cudnnBackendDescriptor_t);
    cudnnBackendDestroyDescriptor(descriptor: cudnnBackendDescriptor_t);
    cudnnBackendExecute(handle: cudnnHandle_t, execution_plan: cudnnBackendDescriptor_t, variant_pack: cudnnBackendDescriptor_t);
    cudnnBackendFinalize(descriptor: cudnnBackendDescriptor_t);
    cudnnBackendGetAttribute(descriptor: cudnnBackendDescriptor_t, attribute_name: cudnnBackendAttributeName_t, attribute_type: cudnnBackendAttributeType_t, requested_element_count: i64, element_count: *mut i64, array_of_elements: *mut c_void);
    cudnnBackendSetAttribute(descriptor: cudnnBackendDescriptor_t, attribute_name: cudnnBackendAttributeName_t, attribute_type: cudnnBackendAttributeType_t, element_count: i64, array_of_elements: *const c_void);
    cudnnBatchNormalizationBackward(handle: cudnnHandle_t, mode: cudnnBatchNormMode_t, alpha_data_diff: *const c_void, beta_data_diff: *const c_void, alpha_param_diff: *const c_void, beta_param_diff: *const c_void, x_desc: cudnnTensorDescriptor_t, x: *const c_void, dy_desc: cudnnTensorDescriptor_t, dy: *const c_void, dx_desc: cudnnTensorDescriptor_t, dx: *mut c_void, d_bn_scale_bias_desc: cudnnTensorDescriptor_t, bn_scale: *const c_void, d_bn_scale_result: *mut c_void, d_bn_bias_result: *mut c_void, epsilon: f64, saved_mean: *const c_void, saved_inv_variance: *const c_void);
    cudnnBatchNormalizationForwardInference(handle: cudnnHandle_t, mode: cudnnBatchNormMode_t, alpha: *const c_void, beta: *const c_void, x_desc: cudnnTensorDescriptor_t, x: *const c_void, y_desc: cudnnTensorDescriptor_t, y: *mut c_void, bn_scale_bias_mean_var_desc: cudnnTensorDescriptor_t, bn_scale: *const c_void, bn_bias: *const c_void, estimated_mean: *const c_void, estimated_variance: *const c_void, epsilon: f64);
    cudnnBatchNormalizationForwardTraining(handle: cudnnHandle_t, mode: cudnnBatchNormMode_t, alpha: *const c_void, beta: *const c_void, x_desc: cudnnTensorDescriptor_t, x: *const c_void, y_desc: cudnnTensorDescriptor_t, y: *mut c_void, bn_scale_bias_mean_var_desc: cudnnTensorDescriptor_t, bn_scale: *const c_void, bn_bias: *const c_void, exponential_average_factor: f64, result_running_mean: *mut c_void, result_running_variance: *mut c_void, epsilon: f64, result_save_mean: *mut c_void, result_save_inv_variance: *mut c_void);
    cudnnCreate(handle: *mut cudnnHandle_t);
    cudnnCreateActivationDescriptor(activation_desc: *mut cudnnActivationDescriptor_t);
    cudnnCreatePoolingDescriptor(pooling_desc: *mut cudnnPoolingDescriptor_t);
    cudnnCreateTensorDescriptor(tensor_desc: *mut cudnnTensorDescriptor_t);
    cudnnDeriveBNTensorDescriptor(derived_bn_desc: cudnnTensorDescriptor_t, x_desc: cudnnTensorDescriptor_t, mode: cudnnBatchNormMode_t);
    cudnnDestroy(handle: cudnnHandle_t);
    cudnnDestroyActivationDescriptor(activation_desc: cudnnActivationDescriptor_t);
    cudnnDestroyPoolingDescriptor(pooling_desc: cudnnPoolingDescriptor_t);
    cudnnDestroyTensorDescriptor(tensor_desc: cudnnTensorDescriptor_t);
    cudnnPoolingBackward(handle: cudnnHandle_t, pooling_desc: cudnnPoolingDescriptor_t, alpha: *const c_void, y_desc: cudnnTensorDescriptor_t, y: *const c_void, dy_desc: cudnnTensorDescriptor_t, dy: *const c_void, x_desc: cudnnTensorDescriptor_t, x: *const c_void, beta: *const c_void, dx_desc: cudnnTensorDescriptor_t, dx: *mut c_void);
    cudnnPoolingForward(handle: cudnnHandle_t, pooling_desc: cudnnPoolingDescriptor_t, alpha: *const c_void, x_desc: cudnnTensorDescriptor_t, x: *const c_void, beta: *const c_void, y_desc: cudnnTensorDescriptor_t, y: *mut c_void);
    cudnnScaleTensor(handle: cudnnHandle_t, y_desc: cudnnTensorDescriptor_t, y: *mut c_void, alpha: *const c_void);
    cudnnSetActivationDescriptor(activation_desc: cudnnActivationDescriptor_t, mode: cudnnActivationMode_t, relu_nan_opt: cudnnNanPropagation_t, coef: f64);
    cudnnSetPoolingNdDescriptor(pooling_desc: cudnnPoolingDescriptor_t, mode: cudnnPoolingMode_t, maxpooling_nan_opt: cudnnNanPropagation_t, nb_dims: c_int, window_dim: *const c_int, padding: *const c_int, stride: *const c_int);
    cudnnSetStream(handle: cudnnHandle_t, stream_id: cudaStream_t);
    cudnnSetTensorNdDescriptor(tensor_desc: cudnnTensorDescriptor_t, data_type: cudnnDataType_t, nb_dims: c_int, dim: *const c_int, stride: *const c_int);
}
