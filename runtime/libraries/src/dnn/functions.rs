//! The functions of cuDNN that are used, with what they return as a number.
//!
//! The bindings have an enumeration for it, of the codes of one version. Versions of cuDNN 9 add codes, and a value that an
//! enumeration does not have is undefined behaviour; so the functions are found here by name.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::cudnn::sys::{
    self, cudaStream_t, cudnnActivationDescriptor_t, cudnnActivationMode_t, cudnnBackendAttributeName_t,
    cudnnBackendAttributeType_t, cudnnBackendDescriptor_t, cudnnBackendDescriptorType_t,
    cudnnBatchNormMode_t, cudnnDataType_t, cudnnHandle_t, cudnnNanPropagation_t, cudnnPoolingDescriptor_t,
    cudnnPoolingMode_t, cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t, cudnnTensorDescriptor_t,
};

/// What a function returns. 0 is success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Status(u32);

impl Status {
    pub const SUCCESS: Self = Self(0);
    /// `CUDNN_STATUS_NOT_SUPPORTED`: what a function that the library does not have is said to return.
    const NOT_SUPPORTED: Self = Self(3000);

    /// The library's name of it, or its number.
    pub fn name(self) -> String {
        type Names = unsafe extern "C" fn(Status) -> *const c_char;
        static NAMES: OnceLock<Option<Names>> = OnceLock::new();
        let name = NAMES.get_or_init(|| find(b"cudnnGetErrorString\0")).map(|names| {
            // SAFETY: for any number it gives a text that stays.
            unsafe { names(self) }
        });
        match name {
            // SAFETY: the text ends with a zero.
            Some(name) if !name.is_null() => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
            _ => format!("status {}", self.0),
        }
    }
}

/// A function of the library, which is loaded: all that calls functions starts from a handle of it.
fn find<F: Copy>(name: &'static [u8]) -> Option<F> {
    // SAFETY: the library is loaded, and callers name the function's type.
    unsafe { sys::culib().get(name).ok().map(|function| *function) }
}

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => { $(
        /// The library's function of this name, under its conditions.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "as in the library")]
        pub(super) unsafe fn $name($($argument: $type),*) -> Status {
            static FUNCTION: OnceLock<Option<unsafe extern "C" fn($($type),*) -> Status>> = OnceLock::new();
            match FUNCTION.get_or_init(|| find(concat!(stringify!($name), "\0").as_bytes())) {
                // SAFETY: passed on from the caller.
                Some(function) => unsafe { function($($argument),*) },
                None => Status::NOT_SUPPORTED,
            }
        }
    )* };
}

functions! {
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
    cudnnSoftmaxBackward(handle: cudnnHandle_t, algo: cudnnSoftmaxAlgorithm_t, mode: cudnnSoftmaxMode_t, alpha: *const c_void, y_desc: cudnnTensorDescriptor_t, y: *const c_void, dy_desc: cudnnTensorDescriptor_t, dy: *const c_void, beta: *const c_void, dx_desc: cudnnTensorDescriptor_t, dx: *mut c_void);
    cudnnSoftmaxForward(handle: cudnnHandle_t, algo: cudnnSoftmaxAlgorithm_t, mode: cudnnSoftmaxMode_t, alpha: *const c_void, x_desc: cudnnTensorDescriptor_t, x: *const c_void, beta: *const c_void, y_desc: cudnnTensorDescriptor_t, y: *mut c_void);
}
