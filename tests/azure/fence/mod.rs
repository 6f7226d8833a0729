//! Fences of blobs, tables and queues.

mod blob;
mod queue;
mod rows;
mod table;
mod transfer;
