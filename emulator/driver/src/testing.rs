//! [`Testing`]: state that exists only with the feature `testing`.

/// A member of the parts of the driver that only tests use. Without the feature `testing` there is no value of it, so the
/// compiler leaves those parts out of the program.
#[cfg(feature = "testing")]
pub(super) type Testing = ();
#[cfg(not(feature = "testing"))]
pub(super) type Testing = std::convert::Infallible;
