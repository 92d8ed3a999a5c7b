//! [`functions`]: library functions, looked up by name on the first call.
//!
//! The bindings declare return codes as an enumeration of the codes of one version. Later versions add codes, and
//! reading an enumeration value that is not declared is undefined behavior. The functions of this module therefore
//! return plain integers.

/// Declares functions of the loaded library `$vendor`. Functions that the library's version lacks return `$missing`.
macro_rules! functions {
    ($vendor:expr, $status:ty, $missing:expr; $($name:ident($($argument:ident: $type:ty),*);)*) => { $(
        /// Calls the library function with this name. The caller must uphold that function's safety contract.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "as in the library")]
        pub(super) unsafe fn $name($($argument: $type),*) -> $status {
            type Function = unsafe extern "C" fn($($type),*) -> $status;
            static FUNCTION: std::sync::OnceLock<Option<Function>> = std::sync::OnceLock::new();
            let function = FUNCTION.get_or_init(|| {
                // SAFETY: the library is loaded, and the function has this type.
                unsafe { $vendor.symbol(stringify!($name)) }
            });
            match function {
                // SAFETY: guaranteed by the caller.
                Some(function) => unsafe { function($($argument),*) },
                None => $missing,
            }
        }
    )* };
}
pub(crate) use functions;
