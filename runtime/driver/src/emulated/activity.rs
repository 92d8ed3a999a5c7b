//! What emulated devices did and when.

use super::EmulatedDriver;
use crate::activity::ActivityDriver;

impl ActivityDriver for EmulatedDriver {}
