//! cuRAND generators with descriptive errors.

use cudarc::curand::sys::{self, curandGenerator_t, curandRngType, curandStatus};

use crate::error::LibraryError;
use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::{DeviceCopy, DevicePtr, Result, Stream};

/// Pseudo-random number generators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pseudo {
    /// Philox 4x32 with 10 rounds.
    Philox,
    /// XORWOW, cuRAND's default.
    Xorwow,
    /// MRG32k3a.
    Mrg32k3a,
}

/// A quasi-random number generator with 32 or 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quasi {
    /// Sobol sequence, for `f32`.
    Sobol32,
    /// Scrambled Sobol sequence, for `f32`.
    ScrambledSobol32,
    /// Sobol sequence, for `f64`.
    Sobol64,
    /// Scrambled Sobol sequence, for `f64`.
    ScrambledSobol64,
}

/// A cuRAND generator. The device's context must be current when methods of this type are called.
pub struct Raw(curandGenerator_t);

// SAFETY: a generator may be used by any thread, but only by one at a time.
unsafe impl Send for Raw {}
// SAFETY: no method takes a shared reference.
unsafe impl Sync for Raw {}

impl Raw {
    pub(super) fn pseudo(stream: &Stream, kind: Pseudo, seed: u64, offset: u64) -> Result<Self> {
        let kind = match kind {
            Pseudo::Philox => curandRngType::CURAND_RNG_PSEUDO_PHILOX4_32_10,
            Pseudo::Xorwow => curandRngType::CURAND_RNG_PSEUDO_XORWOW,
            Pseudo::Mrg32k3a => curandRngType::CURAND_RNG_PSEUDO_MRG32K3A,
        };
        Self::make(stream, kind, offset, |handle| {
            // SAFETY: the handle belongs to a generator.
            let status = unsafe { sys::curandSetPseudoRandomGeneratorSeed(handle, seed) };
            check("curandSetPseudoRandomGeneratorSeed", status)
        })
    }

    pub(super) fn quasi(stream: &Stream, kind: Quasi, dimensions: u32, offset: u64) -> Result<Self> {
        let kind = match kind {
            Quasi::Sobol32 => curandRngType::CURAND_RNG_QUASI_SOBOL32,
            Quasi::ScrambledSobol32 => curandRngType::CURAND_RNG_QUASI_SCRAMBLED_SOBOL32,
            Quasi::Sobol64 => curandRngType::CURAND_RNG_QUASI_SOBOL64,
            Quasi::ScrambledSobol64 => curandRngType::CURAND_RNG_QUASI_SCRAMBLED_SOBOL64,
        };
        Self::make(stream, kind, offset, |handle| {
            // SAFETY: the handle belongs to a generator.
            let status = unsafe { sys::curandSetQuasiRandomGeneratorDimensions(handle, dimensions) };
            check("curandSetQuasiRandomGeneratorDimensions", status)
        })
    }

    /// Creates the generator and enqueues its initialization on the stream.
    fn make(
        stream: &Stream,
        kind: curandRngType,
        offset: u64,
        set: impl FnOnce(curandGenerator_t) -> Result<()>,
    ) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is loaded, and the pointer refers to a local variable.
        check("curandCreateGenerator", unsafe { sys::curandCreateGenerator(&mut handle, kind) })?;
        let mut made = Self(handle);
        set(handle)?;
        // SAFETY: the handle belongs to a generator.
        check("curandSetGeneratorOffset", unsafe { sys::curandSetGeneratorOffset(handle, offset) })?;
        made.set_stream(stream.handle())?;
        // SAFETY: as above.
        check("curandGenerateSeeds", unsafe { sys::curandGenerateSeeds(handle) })?;
        Ok(made)
    }

    pub(super) fn set_stream(&mut self, stream: StreamHandle) -> Result<()> {
        // SAFETY: both handles are alive.
        check("curandSetStream", unsafe { sys::curandSetStream(self.0, stream.0 as *mut _) })
    }

    /// Generates numbers that follow this distribution.
    ///
    /// # Safety
    /// The address must refer to `len` elements and be aligned to 16 bytes, and the use of the elements must be
    /// ordered.
    pub(super) unsafe fn generate<T: RandomType>(
        &mut self,
        distribution: Distribution,
        at: DevicePtr,
        len: usize,
    ) -> Result<()> {
        macro_rules! generate {
            ($function:ident, $type:ty, $($parameter:expr),*) => {{
                // SAFETY: guaranteed by the caller.
                let status = unsafe { sys::$function(self.0, at.0 as *mut $type, len, $($parameter as _),*) };
                check(stringify!($function), status)
            }};
        }
        match (distribution, T::IS_DOUBLE) {
            (Distribution::Uniform, false) => generate!(curandGenerateUniform, f32,),
            (Distribution::Uniform, true) => generate!(curandGenerateUniformDouble, f64,),
            (Distribution::Normal { mean, deviation }, false) => {
                generate!(curandGenerateNormal, f32, mean, deviation)
            }
            (Distribution::Normal { mean, deviation }, true) => {
                generate!(curandGenerateNormalDouble, f64, mean, deviation)
            }
            (Distribution::LogNormal { mean, deviation }, false) => {
                generate!(curandGenerateLogNormal, f32, mean, deviation)
            }
            (Distribution::LogNormal { mean, deviation }, true) => {
                generate!(curandGenerateLogNormalDouble, f64, mean, deviation)
            }
            (Distribution::Poisson { mean }, _) => generate!(curandGeneratePoisson, u32, mean),
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: this value owns the handle and is being dropped.
        unsafe { sys::curandDestroyGenerator(self.0) };
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Distribution {
    Uniform,
    Normal { mean: f64, deviation: f64 },
    LogNormal { mean: f64, deviation: f64 },
    Poisson { mean: f64 },
}

/// An output type: `u32` for Poisson numbers and a [`RandomFloat`] for all others.
pub trait RandomType: DeviceCopy {
    const IS_DOUBLE: bool = false;
}

impl RandomType for u32 {}
impl RandomType for f32 {}
impl RandomType for f64 {
    const IS_DOUBLE: bool = true;
}

/// A floating-point type that cuRAND can output: `f32` or `f64`. The trait is sealed.
pub trait RandomFloat: RandomType {}

impl RandomFloat for f32 {}
impl RandomFloat for f64 {}

fn check(call: &'static str, status: curandStatus) -> Result<()> {
    let context = match status {
        curandStatus::CURAND_STATUS_SUCCESS => return Ok(()),
        curandStatus::CURAND_STATUS_TYPE_ERROR => "generators of 64-bit numbers produce only `f64`",
        _ => "",
    };
    Err(LibraryError::of_call("cuRAND", call, status, context))
}
