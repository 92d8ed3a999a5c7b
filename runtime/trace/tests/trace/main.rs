//! Files read back as they were written, hostile ones do no harm, Perfetto's engine finds no fault, tables add up.

mod engine;
mod files;
mod fixture;
mod tables;
