//! Ctrl-C handling. The first Ctrl-C ends the run after the current configuration, and the second one ends the program
//! immediately.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use super::failure::Failure;

/// Returns a flag that is set by Ctrl-C.
///
/// # Errors
/// Returns [`Failure::Failed`] if the system does not accept a signal handler.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    // The order matters, because the handler of the second signal must find the flag that the first one has set.
    flag::register_conditional_shutdown(SIGINT, 130, flag.clone())
        .and_then(|_| flag::register(SIGINT, flag.clone()))
        .map_err(|error| Failure::Failed(format!("cannot handle Ctrl-C: {error}")))?;
    Ok(flag)
}
