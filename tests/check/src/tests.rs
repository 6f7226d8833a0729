//! For each kind: what must be found, and a near twin in which nothing is wrong.

mod anything;
mod election;
mod linearizable;
mod liveness;
mod malformed;
mod model;
mod nested;
mod queue;
mod refused;
mod resumed;
mod spoilt;
mod tale;
mod tokens;
mod told;
mod validity;
