//! For each kind: what must be found, and a near twin in which nothing is wrong.

mod anything;
mod corrupted;
mod election;
mod history_builder;
mod linearizable;
mod liveness;
mod malformed;
mod model;
mod nested;
mod queue;
mod refused;
mod reporting;
mod resumed;
mod tokens;
mod validity;
