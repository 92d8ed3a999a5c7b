//! Snapshots in files: what is written reads back, those of others are read, hostile ones do no harm.

mod files;
mod forms;
