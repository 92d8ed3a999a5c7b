//! Findings of `warpsmith check` in kernels launched on the emulated device.
//!
//! A finding is an error of the launch in which it occurs, not a fault: the kernel runs to completion, and the device
//! stays usable. Findings are reported once, as [`Error::Findings`], to the thread that enqueued the launch. They are
//! returned by this thread's next call that waits for work or queries its completion: `synchronize` and `query` of
//! streams, events and the device, copies to the host, or a future. If the thread makes no such call, only the command
//! lists the findings.
//!
//! A test can collect the findings itself with [`Device::checked`].

use std::fmt;

use crate::device::Device;
use crate::driver::check::FindingScope;
pub use crate::driver::check::{Access, Finding, FindingKind, Findings, Frame};
use crate::error::{Error, Result};

impl Device {
    /// Collects the findings of launches that the calling thread enqueues on any emulated device, until the returned
    /// collector is dropped. Meanwhile, findings are not reported as errors, and findings that the test retrieves are
    /// not listed by the command.
    ///
    /// ```
    /// use warpsmith_runtime::check::FindingKind;
    /// use warpsmith_runtime::{Device, Error};
    ///
    /// fn kernel_has_no_race(device: &Device, launch: impl Fn(&Device) -> Result<(), Error>) -> Result<(), Error> {
    ///     let checked = device.checked()?;
    ///     launch(device)?;
    ///     let findings = checked.findings()?;
    ///     assert!(!findings.iter().any(|finding| finding.kind == FindingKind::Race), "{findings:?}");
    ///     Ok(())
    /// }
    ///
    /// // Returns `Error::NotChecked` without `warpsmith check`.
    /// let device = Device::emulated(0)?;
    /// let error = kernel_has_no_race(&device, |_| Ok(())).unwrap_err();
    /// assert!(error.to_string().contains("warpsmith check test"), "{error}");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::NotChecked`] unless the device is emulated and the program runs under `warpsmith check`.
    pub fn checked(&self) -> Result<Checked> {
        self.check()?;
        match self.raw().0.collect_findings() {
            Some(scope) => Ok(Checked { device: self.clone(), scope }),
            None => Err(Error::NotChecked { device: self.id() }),
        }
    }
}

/// Collector of findings, created by [`Device::checked`]. When the collector is dropped, findings that were not
/// retrieved are reported to the launching thread as errors and listed by the command.
///
/// See the example of [`Device::checked`].
#[must_use = "without it findings are errors of the calls that wait"]
pub struct Checked {
    device: Device,
    scope: Box<dyn FindingScope>,
}

impl Checked {
    /// Waits for all work enqueued on the device and returns the findings since the last call, in the order in which
    /// they occurred. Each pair of source locations yields at most one finding per launch.
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted.
    pub fn findings(&self) -> Result<Vec<Finding>> {
        self.device.wait()?;
        Ok(self.scope.take().findings)
    }
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checked({})", self.device.id())
    }
}
