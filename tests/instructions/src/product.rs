//! Imports of the product: the only place that names its modules.

pub(crate) use leasehold::{driver::Driver, rpc, telemetry::Telemetry};
pub(crate) use leasehold_client::Client;
pub(crate) use leasehold_core::{
    lock::{Handle, LockId, Settings as LockSettings},
    session::{
        Action, Event, Message, Open, Request, Sessions, Settings as SessionSettings, StreamId,
    },
};
pub(crate) use leasehold_store::{
    Acquire, AcquireParams, Acquired, Break, Breaker, Call, CallCount, Error, LeaseId, LeaseInfo,
    LeaseStore, Page, Publication, Publish, Release, Renew, StoreAnswer, StoreCall,
};
pub(crate) use leasehold_time::{Entropy, Moment};
pub(crate) use leasehold_types::{Holder, LockName, TokenRange};

/// Protocol types.
pub(crate) mod protocol {
    pub(crate) use leasehold_protocol::{
        server::session_service_server::{SessionService, SessionServiceServer},
        v1::{
            Acquire, AttachRequest, AttachResponse, Granted, KeepAlive, KeptAlive, LockRef, Open,
            Opened, Release, Released, attach_request::Message as ClientMessage,
            attach_response::Message as ServerMessage,
            session_service_client::SessionServiceClient,
        },
    };
}
