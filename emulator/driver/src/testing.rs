//! [`Testing`]: state that exists only with the feature `testing`.

/// Member of driver parts that only tests use. Without the feature `testing`, the type has no value, so the compiler
/// removes those parts from the program.
#[cfg(feature = "testing")]
pub(super) type Testing = ();
#[cfg(not(feature = "testing"))]
pub(super) type Testing = std::convert::Infallible;
