//! Daemons, clients and a storage account in virtual time.
//!
//! The code under test is the product: the client library, both ends of the
//! session stream, the core, the driver, the Azure store and the storage SDK.
//! Simulated are time (`clock.rs`, `world.rs`), the link between clients and
//! daemons (`link.rs`), the link to the storage (`wire.rs`) and the storage
//! service (crate `leasehold-simulated-storage`). A seed determines a plan
//! (`plan.rs`) of faults (`faults.rs`) for daemons (`daemon.rs`), clients
//! (`client.rs`) and observers of elections (`observer.rs`). The events are
//! recorded (`sim_state`) and checked.

pub mod broken;
pub mod broken_store;
pub mod broken_transport;
pub mod client;
pub mod clock;
pub mod daemon;
pub mod embedded;
pub mod faults;
pub mod limited_tokens;
pub mod link;
pub mod observer;
pub mod observer_mutants;
pub mod plan;
pub mod repeated_release;
pub mod rng;
pub mod run;
pub mod sdk;
pub mod sim_state;
pub mod wire;
pub mod world;
