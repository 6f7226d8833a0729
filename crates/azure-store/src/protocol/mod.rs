//! Protocol of blob leases: the sequences of storage calls by which a lock is
//! acquired, renewed, released, published, broken and collected.
//!
//! Each step is an `impl` of [`AzureStore`](crate::AzureStore) in a file with the
//! name of the step. All writes of a lock's record go through `amend.rs`.

mod acquire;
mod amend;
mod break_lease;
mod break_note;
mod frozen;
mod gc;
mod inspect;
pub(crate) mod path;
mod publish;
pub(crate) mod record;
mod release;
mod renew;
mod retry;
