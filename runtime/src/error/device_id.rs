//! [`DeviceId`]: a device's kind and index, formatted as `cuda:0` or `cpu:1`.

use std::fmt;
use std::str::FromStr;

use super::{Error, Result};

/// ID of a device: its kind (CUDA or emulated) and its index.
///
/// ```
/// use warpsmith_runtime::DeviceId;
///
/// assert_eq!("cuda:1".parse::<DeviceId>().unwrap(), DeviceId::Cuda(1));
/// assert_eq!("cpu".parse::<DeviceId>().unwrap(), DeviceId::Emulated(0));
/// assert_eq!(DeviceId::Emulated(0).to_string(), "cpu:0");
/// assert!("gpu".parse::<DeviceId>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceId {
    /// `cuda:N`: a GPU accessed through the CUDA driver.
    Cuda(u32),
    /// `cpu:N`: an emulated GPU.
    Emulated(u32),
}

impl DeviceId {
    /// Returns the index among the devices of the same kind.
    pub fn ordinal(self) -> u32 {
        match self {
            DeviceId::Cuda(ordinal) | DeviceId::Emulated(ordinal) => ordinal,
        }
    }

    /// Returns true if the device is an emulated GPU.
    pub fn is_emulated(self) -> bool {
        matches!(self, DeviceId::Emulated(_))
    }

    pub(crate) fn with_ordinal(self, ordinal: u32) -> Self {
        match self {
            DeviceId::Cuda(_) => DeviceId::Cuda(ordinal),
            DeviceId::Emulated(_) => DeviceId::Emulated(ordinal),
        }
    }

    pub(crate) fn kind_name(self) -> &'static str {
        if self.is_emulated() { "emulated" } else { "CUDA" }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceId::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            DeviceId::Emulated(ordinal) => write!(f, "cpu:{ordinal}"),
        }
    }
}

impl FromStr for DeviceId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || Error::UnknownDevice(text.to_owned());
        let (kind, ordinal) = match text.split_once(':') {
            Some((kind, digits)) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                (kind, digits.parse().map_err(|_| unknown())?)
            }
            Some(_) => return Err(unknown()),
            None => (text, 0),
        };
        match kind {
            "cuda" => Ok(DeviceId::Cuda(ordinal)),
            "cpu" => Ok(DeviceId::Emulated(ordinal)),
            _ => Err(unknown()),
        }
    }
}
