//! [`functions`]: functions of a library, found by name when they are first called.
//!
//! The bindings have an enumeration for what functions return, of the codes of one version. Later versions add codes, and a
//! value that an enumeration does not have is undefined behaviour; so here they return numbers.

/// Declares functions of a loaded library, which `$library` returns. One that this version does not have returns `$missing`.
macro_rules! functions {
    ($library:path, $status:ty, $missing:expr; $($name:ident($($argument:ident: $type:ty),*);)*) => { $(
        /// The library's function of this name, under its conditions.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "as in the library")]
        pub(super) unsafe fn $name($($argument: $type),*) -> $status {
            type Function = unsafe extern "C" fn($($type),*) -> $status;
            static FUNCTION: std::sync::OnceLock<Option<Function>> = std::sync::OnceLock::new();
            let function = FUNCTION.get_or_init(|| {
                // SAFETY: the library is loaded, and this is the type of the function.
                unsafe { $library().get(concat!(stringify!($name), "\0").as_bytes()).ok().map(|found| *found) }
            });
            match function {
                // SAFETY: passed on from the caller.
                Some(function) => unsafe { function($($argument),*) },
                None => $missing,
            }
        }
    )* };
}
pub(crate) use functions;
