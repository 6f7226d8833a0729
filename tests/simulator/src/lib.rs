//! Daemons, clients and a storage account in virtual time.
//!
//! What runs is the product itself: the client library, the session stream's
//! two ends, the core, the driver, the Azure store and the storage SDK. What is
//! made up: time (`clock.rs`, `world.rs`), the way between clients and daemons
//! (`link.rs`), the way to the storage (`wire.rs`) and the storage service
//! (the crate `leasehold-simulated-storage`). A seed stands for a plan (`plan.rs`) of faults
//! (`faults.rs`) that befall daemons (`daemon.rs`), clients (`client.rs`) and observers of
//! elections (`observer.rs`); what happens is recorded (`sim_state.rs`) and checked.

pub mod broken;
pub mod broken_store;
pub mod broken_transport;
pub mod client;
pub mod clock;
pub mod daemon;
pub mod embedded;
pub mod faults;
pub mod link;
pub mod misleading;
pub mod observer;
pub mod plan;
pub mod repeated_release;
pub mod rng;
pub mod run;
pub mod scarce;
pub mod sdk;
pub mod sim_state;
pub mod wire;
pub mod world;
