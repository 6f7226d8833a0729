//! Protocol of blob leases: the sequences of storage calls by which a lock is
//! acquired, renewed, released, published and broken.

pub(crate) mod acquire;
mod amend;
mod break_note;
mod gc;
pub(crate) mod path;
mod publish;
pub(crate) mod record;
