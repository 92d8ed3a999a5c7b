//! cuRAND's generators, with errors that say what failed.

use cudarc::curand::sys::{self, curandGenerator_t, curandRngType, curandStatus};

use crate::error::LibraryError;
use warpsmith_core::device::Device;
use warpsmith_core::driver::{DevicePtr, StreamHandle};
use warpsmith_core::error::Result;
use warpsmith_core::memory::DeviceCopy;
use warpsmith_core::seam::{drop_elsewhere, in_host_function};
use warpsmith_core::stream::Stream;

/// How pseudo-random numbers come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pseudo {
    /// Philox 4x32 with 10 rounds.
    Philox,
    /// XORWOW, cuRAND's own choice.
    Xorwow,
    /// MRG32k3a.
    Mrg32k3a,
}

/// How quasi-random numbers come about, with 32 or 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quasi {
    /// Sobol's sequence, for `f32`.
    Sobol32,
    /// The same, scrambled.
    ScrambledSobol32,
    /// Sobol's sequence, for `f64`.
    Sobol64,
    /// The same, scrambled.
    ScrambledSobol64,
}

/// A generator of cuRAND's. The device's context is current where its methods are called, but when it is dropped.
pub struct Raw {
    handle: curandGenerator_t,
    device: Device,
}

// SAFETY: a generator may be used by any thread, by one at a time.
unsafe impl Send for Raw {}
// SAFETY: a shared reference does nothing.
unsafe impl Sync for Raw {}

impl Raw {
    pub(super) fn pseudo(stream: &Stream, kind: Pseudo, seed: u64, offset: u64) -> Result<Self> {
        let kind = match kind {
            Pseudo::Philox => curandRngType::CURAND_RNG_PSEUDO_PHILOX4_32_10,
            Pseudo::Xorwow => curandRngType::CURAND_RNG_PSEUDO_XORWOW,
            Pseudo::Mrg32k3a => curandRngType::CURAND_RNG_PSEUDO_MRG32K3A,
        };
        Self::make(stream, kind, offset, |handle| {
            // SAFETY: the handle is a generator's.
            let status = unsafe { sys::curandSetPseudoRandomGeneratorSeed(handle, seed) };
            check("curandSetPseudoRandomGeneratorSeed", status, "")
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
            // SAFETY: the handle is a generator's.
            let status = unsafe { sys::curandSetQuasiRandomGeneratorDimensions(handle, dimensions) };
            check("curandSetQuasiRandomGeneratorDimensions", status, "")
        })
    }

    /// The first numbers are made on the stream.
    fn make(
        stream: &Stream,
        kind: curandRngType,
        offset: u64,
        set: impl FnOnce(curandGenerator_t) -> Result<()>,
    ) -> Result<Self> {
        let device = stream.device();
        device.with_context(|| {
            let mut handle = std::ptr::null_mut();
            // SAFETY: the library is loaded; the pointer is to a local variable.
            let status = unsafe { sys::curandCreateGenerator(&mut handle, kind) };
            check("curandCreateGenerator", status, "")?;
            let mut made = Self { handle, device: device.clone() };
            set(made.handle)?;
            // SAFETY: the handle is a generator's.
            let status = unsafe { sys::curandSetGeneratorOffset(made.handle, offset) };
            check("curandSetGeneratorOffset", status, "")?;
            made.set_stream(stream.handle())?;
            // SAFETY: as above.
            let status = unsafe { sys::curandGenerateSeeds(made.handle) };
            check("curandGenerateSeeds", status, "")?;
            Ok(made)
        })
    }

    pub(super) fn set_stream(&mut self, stream: StreamHandle) -> Result<()> {
        // SAFETY: both handles are alive.
        check("curandSetStream", unsafe { sys::curandSetStream(self.handle, stream.0 as *mut _) }, "")
    }

    /// Makes Poisson numbers.
    ///
    /// # Safety
    /// There are as many `u32` at the address, aligned to 16 bytes, and their use is ordered.
    pub(super) unsafe fn poisson(&mut self, at: DevicePtr, len: usize, mean: f64) -> Result<()> {
        // SAFETY: passed on from the caller.
        let status = unsafe { sys::curandGeneratePoisson(self.handle, at.0 as *mut u32, len, mean) };
        check("curandGeneratePoisson", status, WIDE)
    }
}

/// What may be the matter with a type.
const WIDE: &str = "generators of 64-bit numbers give `f64` only";

impl Drop for Raw {
    fn drop(&mut self) {
        if self.device.is_forked() {
            return;
        }
        if in_host_function() {
            let moved = Self { handle: self.handle, device: self.device.clone() };
            return drop_elsewhere(Box::new(moved));
        }
        if let Ok(_calls) = self.device.bind() {
            // SAFETY: the handle is this value's and goes away.
            unsafe { sys::curandDestroyGenerator(self.handle) };
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// `f32` or `f64`.
pub trait Float: DeviceCopy + sealed::Sealed {
    /// Makes uniform numbers.
    ///
    /// # Safety
    /// There are as many elements at the address, aligned to 16 bytes, and their use is ordered.
    #[doc(hidden)]
    unsafe fn uniform(raw: &mut Raw, at: DevicePtr, len: usize) -> Result<()>;
    /// Makes normal numbers.
    ///
    /// # Safety
    /// As [`Self::uniform`].
    #[doc(hidden)]
    unsafe fn normal(raw: &mut Raw, at: DevicePtr, len: usize, mean: f64, deviation: f64) -> Result<()>;
    /// Makes log-normal numbers.
    ///
    /// # Safety
    /// As [`Self::uniform`].
    #[doc(hidden)]
    unsafe fn log_normal(raw: &mut Raw, at: DevicePtr, len: usize, mean: f64, deviation: f64) -> Result<()>;
}

macro_rules! float {
    ($type:ty, $uniform:ident, $normal:ident, $log_normal:ident) => {
        impl sealed::Sealed for $type {}

        impl Float for $type {
            unsafe fn uniform(raw: &mut Raw, at: DevicePtr, len: usize) -> Result<()> {
                // SAFETY: passed on from the caller.
                let status = unsafe { sys::$uniform(raw.handle, at.0 as *mut $type, len) };
                check(stringify!($uniform), status, WIDE)
            }

            unsafe fn normal(
                raw: &mut Raw,
                at: DevicePtr,
                len: usize,
                mean: f64,
                deviation: f64,
            ) -> Result<()> {
                let (at, mean, deviation) = (at.0 as *mut $type, mean as $type, deviation as $type);
                // SAFETY: passed on from the caller.
                let status = unsafe { sys::$normal(raw.handle, at, len, mean, deviation) };
                check(stringify!($normal), status, WIDE)
            }

            unsafe fn log_normal(
                raw: &mut Raw,
                at: DevicePtr,
                len: usize,
                mean: f64,
                deviation: f64,
            ) -> Result<()> {
                let (at, mean, deviation) = (at.0 as *mut $type, mean as $type, deviation as $type);
                // SAFETY: passed on from the caller.
                let status = unsafe { sys::$log_normal(raw.handle, at, len, mean, deviation) };
                check(stringify!($log_normal), status, WIDE)
            }
        }
    };
}

float!(f32, curandGenerateUniform, curandGenerateNormal, curandGenerateLogNormal);
float!(f64, curandGenerateUniformDouble, curandGenerateNormalDouble, curandGenerateLogNormalDouble);

fn check(call: &'static str, status: curandStatus, note: &str) -> Result<()> {
    if status == curandStatus::CURAND_STATUS_SUCCESS {
        return Ok(());
    }
    let context =
        Some(note).filter(|note| !note.is_empty() && status == curandStatus::CURAND_STATUS_TYPE_ERROR);
    let (status, context) = (format!("{status:?}"), context.map(str::to_owned));
    Err(LibraryError::Call { library: "cuRAND", call, status, context }.into())
}
