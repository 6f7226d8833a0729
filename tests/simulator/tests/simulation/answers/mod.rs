//! Whatever a storage account, or something in its place, answers, or does not
//! answer: every call ends by its own deadline, in time that is made up.
mod guards;
mod script;
mod storage;
mod world;
