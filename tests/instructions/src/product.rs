//! Everything that is measured or needed for it: the one place that names the
//! product's modules.

pub(crate) use leasehold::{
    clock::{Entropy, Moment},
    driver::Driver,
    holder::Holder,
    lease::{
        Acquire, Acquired, Break, Breaker, Call, CallCount, Claim, Error, LeaseId, LeaseInfo,
        LeaseStore, Page, Publication, Publish, Release, Renew, Tokens,
    },
    lock::{Answer, Handle, LockId, Settings as LockSettings},
    name::LockName,
    rpc,
    session::{
        Action, Event, Message, Open, Request, Sessions, Settings as SessionSettings, StoreCall,
        StreamId,
    },
};

/// The protocol.
pub(crate) mod protocol {
    pub(crate) use leasehold::rpc::pb::{
        Acquire, AttachRequest, AttachResponse, Granted, KeepAlive, KeptAlive, LockRef, Open,
        Opened, Release, Released,
        attach_request::Message as Ask,
        attach_response::Message as Tell,
        session_service_client::SessionServiceClient,
        session_service_server::{SessionService, SessionServiceServer},
    };
}

pub(crate) use leasehold_client::Client;
