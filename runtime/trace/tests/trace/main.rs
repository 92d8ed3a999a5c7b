//! Files read back as they were written, hostile ones do no harm, Perfetto's engine finds no fault.

mod engine;
mod files;
mod fixture;
