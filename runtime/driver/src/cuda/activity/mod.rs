//! What CUDA devices did and when.

use super::CudaDriver;
use crate::activity::ActivityDriver;

impl ActivityDriver for CudaDriver {}
