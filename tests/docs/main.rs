//! Checks of the documentation: links, examples, Rust blocks, generated references, and the
//! functions and messages that pages name. They need no storage account.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod architecture;
mod examples;
mod links;
mod markdown;
mod messages;
mod observability;
mod references;
mod rust_blocks;
mod safety;
mod source;
