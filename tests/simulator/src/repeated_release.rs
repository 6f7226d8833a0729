//! Mutant 12: a repeated release frees the lock's current holder, because the
//! daemon receives a release with the holder's handle on the holder's stream.

use std::collections::{HashMap, HashSet};

use leasehold_protocol::v1::{
    self as pb, attach_request::Message as Request, attach_response::Message as Response,
};
use prost::{Message as _, bytes::Bytes};

use crate::{
    link::Pipe,
    sim_state::{lock_number, sim},
};

/// Placeholder for the number of a forged release. Client requests are numbered
/// from 1.
const FORGED: u64 = 0;

/// Grants and releases, by the number of the daemon.
#[derive(Default)]
pub struct Releases {
    /// Locks, by client and number of the acquire.
    acquires: HashMap<(u32, u32, u64), u32>,
    /// Locks, by handle of the grant.
    handles: HashMap<(u32, Bytes), u32>,
    /// Released handles.
    released: HashSet<(u32, Bytes)>,
    /// Handle and stream of the last grant, by lock.
    holders: HashMap<(u32, u32), (Bytes, Pipe)>,
}

/// Daemon's end of a stream.
#[derive(Clone)]
pub struct Peer {
    client: u32,
    daemon: u32,
    up: Pipe,
    last_request: u64,
}

impl Peer {
    /// Creates the peer of a new stream; `up` carries the client's messages.
    #[must_use]
    pub const fn new(client: u32, daemon: u32, up: Pipe) -> Self {
        Self { client, daemon, up, last_request: 0 }
    }

    /// Records a message from the client. If it repeats a release, sends a
    /// release to the stream of the lock's holder.
    pub fn on_request(&mut self, message: &mut pb::AttachRequest) {
        match &mut message.message {
            Some(Request::Acquire(acquire)) => {
                self.last_request = acquire.request;
                let lock = acquire.lock.as_ref().and_then(|lock| lock_number(&lock.name));
                if let Some(lock) = lock {
                    let key = (self.daemon, self.client, acquire.request);
                    sim().releases.borrow_mut().acquires.insert(key, lock);
                }
            }
            Some(Request::Proclaim(proclaim)) => self.last_request = proclaim.request,
            Some(Request::Release(release)) if release.request == FORGED => {
                self.last_request += 1;
                release.request = self.last_request;
            }
            Some(Request::Release(release)) => {
                self.last_request = release.request;
                self.released(release.handle.clone());
            }
            _ => {}
        }
    }

    fn released(&self, handle: Bytes) {
        let holder = {
            let sim = sim();
            let mut releases = sim.releases.borrow_mut();
            if releases.released.insert((self.daemon, handle.clone())) {
                return;
            }
            let lock = releases.handles.get(&(self.daemon, handle.clone())).copied();
            lock.and_then(|lock| releases.holders.get(&(self.daemon, lock)).cloned())
        };
        if let Some((current, up)) = holder.filter(|(current, _)| *current != handle) {
            let release = pb::Release { request: FORGED, handle: current };
            let message = pb::AttachRequest { message: Some(Request::Release(release)) };
            up.push(Some(Ok(message.encode_to_vec())));
        }
    }

    /// Records a message to the client.
    pub fn on_response(&mut self, message: &pb::AttachResponse) {
        if let Some(Response::Granted(granted)) = &message.message {
            let sim = sim();
            let mut releases = sim.releases.borrow_mut();
            let key = (self.daemon, self.client, granted.request);
            if let Some(lock) = releases.acquires.get(&key).copied() {
                releases.handles.insert((self.daemon, granted.handle.clone()), lock);
                let holder = (granted.handle.clone(), self.up.clone());
                releases.holders.insert((self.daemon, lock), holder);
            }
        }
    }
}
