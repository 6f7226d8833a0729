//! Daemons, clients and a storage account in virtual time.
//!
//! What runs is the product itself: the client library, the session stream's
//! two ends, the core, the driver, the Azure store and the storage SDK. What is
//! made up: time (`clock.rs`, `world.rs`), the way between clients and daemons
//! (`link.rs`), the way to the storage (`wire.rs`) and the storage service
//! (`storage.rs`, `http.rs`). A seed stands for a plan (`plan.rs`) of faults
//! (`faults.rs`) that befall daemons (`daemon.rs`), clients (`client.rs`) and observers of
//! elections (`observer.rs`); what happens is recorded (`scene.rs`) and checked.

pub mod broken;
pub mod broken_transport;
pub mod client;
pub mod clock;
pub mod daemon;
pub mod dice;
pub mod embedded;
pub mod faults;
pub mod http;
pub mod link;
pub mod misleading;
pub mod observer;
pub mod plan;
pub mod run;
pub mod scarce;
pub mod scene;
pub mod sdk;
pub mod storage;
pub mod wire;
pub mod world;
