//! What `warpsmith check` finds in the kernels that a program launches on the emulated device.
//!
//! A finding is an error of its launch, and no fault: the kernel runs to its end, and the device goes on. It is reported to the
//! thread that has enqueued the launch, by its next call that waits or sees that work is done: `synchronize` and `query`
//! of streams, events and the device, copies to the host, futures. That call fails with
//! [`Error::Findings`], once; what it waited for has run all the same. A finding of which the thread never asks is listed by
//! the command alone.
//!
//! A test says by [`Device::checked`] that it wants the findings itself.

use std::fmt;

use crate::device::Device;
use crate::driver::check::FindingScope;
pub use crate::driver::check::{Access, Finding, FindingKind, Findings, Frame};
use crate::error::{Error, Result};

impl Device {
    /// Collects what is found in the launches that the calling thread enqueues from here on, on any emulated device, until
    /// the result is dropped: they are no errors meanwhile, and the command does not list what the test has taken.
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
    /// // Without `warpsmith check` it says so.
    /// let device = Device::emulated(0)?;
    /// let error = kernel_has_no_race(&device, |_| Ok(())).unwrap_err();
    /// assert!(error.to_string().contains("warpsmith check test"), "{error}");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotChecked`] unless the device is an emulated one and the program was started by `warpsmith check`.
    pub fn checked(&self) -> Result<Checked> {
        self.check()?;
        match self.raw().0.collect_findings() {
            Some(scope) => Ok(Checked { device: self.clone(), scope }),
            None => Err(Error::NotChecked { device: self.id() }),
        }
    }
}

/// Collects findings: see [`Device::checked`]. Findings that it still has when it is dropped are errors of their thread, and
/// listed, as without it.
#[must_use = "without it findings are errors of the calls that wait"]
pub struct Checked {
    device: Device,
    scope: Box<dyn FindingScope>,
}

impl Checked {
    /// Waits for everything enqueued on the device, and takes what was found since the last call: each finding once for a
    /// pair of places in a launch, in the order in which they happened.
    ///
    /// # Errors
    /// A fault of a kernel that was running.
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
