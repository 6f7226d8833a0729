//! Checks of the documentation: links, examples, generated references, and the
//! functions and messages that pages name. They need no storage account.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod architecture;
mod examples;
mod links;
mod markdown;
mod messages;
mod references;
mod safety;
mod source;
