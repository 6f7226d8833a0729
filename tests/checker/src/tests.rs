//! Tests of each check: a history with a violation, and a similar one without.

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
