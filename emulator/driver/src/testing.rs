//! [`Testing`]: state that exists only with the feature `testing`.

/// Marker type for driver parts that only tests use. Without the feature `testing`, the type has no values, so the
/// compiler removes these parts from the program.
#[cfg(feature = "testing")]
pub(super) type Testing = ();
#[cfg(not(feature = "testing"))]
pub(super) type Testing = std::convert::Infallible;
