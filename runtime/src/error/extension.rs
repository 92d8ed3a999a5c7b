//! [`ExtensionError`]: an error from a crate built on this one, wrapped in [`Error`].

use std::fmt;
use std::sync::Arc;

use super::Error;

/// An error from a crate built on this one. `Display` prints the wrapped error.
///
/// A crate with its own error type should implement `From<ItsError> for Error` with [`Error::extension`];
/// [`Error::downcast_ref`] returns the wrapped error.
///
/// See the example of [`Error::extension`].
#[derive(Clone)]
pub struct ExtensionError(Arc<dyn std::error::Error + Send + Sync>);

impl Error {
    /// Wraps an error from a crate built on this one.
    ///
    /// ```
    /// use warpsmith_runtime::Error;
    ///
    /// #[derive(Debug, PartialEq)]
    /// struct Busy;
    ///
    /// impl std::fmt::Display for Busy {
    ///     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    ///         f.write_str("busy; try again")
    ///     }
    /// }
    ///
    /// impl std::error::Error for Busy {}
    ///
    /// let error = Error::extension(Busy);
    /// assert_eq!(error.to_string(), "busy; try again");
    /// assert_eq!(error.downcast_ref::<Busy>(), Some(&Busy));
    /// ```
    #[cold]
    pub fn extension(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Extension(ExtensionError(Arc::new(error)))
    }

    /// Returns the error of type `E` that was passed to [`Self::extension`]; `None` for any other error.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Extension(ExtensionError(error)) => error.downcast_ref(),
            _ => None,
        }
    }
}

impl fmt::Debug for ExtensionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for ExtensionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for ExtensionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
