//! Two and three daemons, as processes, on one storage: who gets which lock
//! when, while daemons are killed, stopped, cut off and told to end.
//!
//! All clients are on this machine, so that what each of them believed, and
//! when, can be compared.

mod contention;
mod crash;
mod history;
mod operator;
mod partition;
mod pause;
mod place;
mod process;
mod stop;
mod waiter;
