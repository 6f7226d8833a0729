//! Whatever a storage account, or something in its place, answers, or does not
//! answer: every call ends by its own deadline, in time that is made up.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod guards;
mod script;
mod storage;
mod world;
