//! Arbitrary answers, or none, from a storage account or an intermediary: every
//! call ends by its own deadline, in virtual time.
mod guards;
mod script;
mod storage;
mod world;
