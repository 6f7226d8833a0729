//! Fences that need no storage account: the layer for HTTP and gRPC, and SQL databases.

mod http;
mod sql;
