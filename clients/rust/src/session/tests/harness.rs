//! Session under test, and messages of its daemon.

use std::{sync::Arc, time::Duration};

use crate::session::{
    AcquireOptions, Profile, Wait,
    attachment::{Disconnect, Next},
    grant::GrantId,
    pending_acquire::PendingAcquire,
    state::{Action, Outcome, State, Ticket},
};
use crate::{
    Reason,
    pb::attach_response::Message as Incoming,
    pb::{self, attach_request::Message},
};
use leasehold_time::{ClockPair, Moment};

pub(super) const TTL: Duration = Duration::from_secs(9);

/// Session with a simulated clock.
pub(super) struct Subject {
    pub(super) state: State,
    pub(super) now: Moment,
    /// Advance of the wall clock relative to the monotonic clock.
    wall_ahead: Duration,
}

impl Subject {
    pub(super) fn new(fenced: bool) -> Self {
        let profile = Profile { ttl: Some(TTL), holder: pb::Holder::default(), fenced };
        Self {
            state: State::new(Arc::new(profile)),
            now: Moment::from_boot(Duration::from_secs(1000)),
            wall_ahead: Duration::ZERO,
        }
    }

    /// Creates a session with an open stream.
    pub(super) fn attached() -> Self {
        let mut subject = Self::new(false);
        subject.open();
        assert_eq!(subject.actions(), []);
        subject
    }

    pub(super) fn open(&mut self) {
        let first = self.state.begin(self.clocks());
        assert!(matches!(first, Message::Open(_)), "{first:?}");
        self.receive(Incoming::Opened(opened(false)));
    }

    /// Resumes the session on a new stream. The daemon has not listed the grants yet.
    /// Returns the number of the keep-alive.
    pub(super) fn resume(&mut self) -> u64 {
        let Message::Resume(resume) = self.state.begin(self.clocks()) else {
            panic!("expected a resume")
        };
        assert_eq!(resume.resume_secret.as_ref(), [9; 16]);
        self.receive(Incoming::Opened(opened(true)));
        resume.keep_alive_number
    }

    pub(super) fn advance(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    /// Pauses the process; only the wall clock advances.
    pub(super) fn pause(&mut self, seconds: u64) {
        self.wall_ahead += Duration::from_secs(seconds);
    }

    pub(super) fn clocks(&self) -> ClockPair {
        ClockPair::in_sync_at(self.now).with_wall_ahead(self.wall_ahead)
    }

    pub(super) fn acquire(&mut self, name: &str, wait: Wait) -> Ticket {
        let limit = match wait {
            Wait::Not => Some(self.now + Duration::from_secs(5)),
            Wait::AtMost(wait) => Some(self.now + wait),
            Wait::Forever => None,
        };
        let lock = pb::LockRef { namespace: "default".into(), name: name.into() };
        self.state
            .acquire(PendingAcquire::new(lock, wait, AcquireOptions::default(), limit), self.now)
    }

    pub(super) fn receive(&mut self, message: Incoming) {
        self.state.on_message(message, self.clocks());
    }

    pub(super) fn detach(&mut self) -> Next {
        self.detach_by(Disconnect::ConnectionFailed("cut".into()))
    }

    pub(super) fn detach_by(&mut self, disconnect: Disconnect) -> Next {
        self.state.detach(disconnect, self.clocks())
    }

    pub(super) fn send_keep_alive(&mut self) {
        self.state.send_keep_alive(self.clocks());
    }

    pub(super) fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.state.next_action()).collect()
    }

    /// Returns the messages since the last call. Panics on any other action.
    pub(super) fn sent(&mut self) -> Vec<Message> {
        let sent = |action| match action {
            Action::Send(message) => message,
            other => panic!("{other:?}"),
        };
        self.actions().into_iter().map(sent).collect()
    }

    /// Returns the last acquire that was sent.
    pub(super) fn sent_acquire(&mut self) -> pb::Acquire {
        match self.sent().pop() {
            Some(Message::Acquire(acquire)) => acquire,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn sent_release(&mut self) -> pb::Release {
        match self.sent().pop() {
            Some(Message::Release(release)) => release,
            other => panic!("{other:?}"),
        }
    }

    /// Acquires a lock, which the daemon grants.
    pub(super) fn grant(&mut self, name: &str, handle: u8) -> GrantId {
        self.acquire(name, Wait::Forever);
        let request = self.sent_acquire().request;
        self.receive(granted(request, handle, 0, 9000));
        self.granted()
    }

    pub(super) fn granted(&mut self) -> GrantId {
        match self.actions().pop() {
            Some(Action::Answer(_, Outcome::Granted { grant, .. })) => grant,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn deadline(&self, grant: GrantId) -> Moment {
        self.state.grant(grant).expect("the grant has users").deadline(&self.clocks())
    }

    pub(super) fn lost_by(&self, grant: GrantId) -> Option<Reason> {
        self.state.grant(grant).expect("the grant has users").loss().map(|loss| loss.reason)
    }
}

pub(super) fn opened(resumed: bool) -> pb::Opened {
    let ttl_ms = u32::try_from(TTL.as_millis()).expect("a short duration");
    let resume_secret = if resumed { vec![] } else { vec![9; 16] }.into();
    pb::Opened {
        protocol_version: 1,
        session_id: "s".into(),
        resume_secret,
        ttl_ms,
        keep_alive_interval_ms: ttl_ms / 3,
        valid_for_ms: ttl_ms.into(),
        resumed,
        ..Default::default()
    }
}

pub(super) fn granted(
    request: u64,
    handle: u8,
    keep_alive_number: u64,
    valid_for_ms: u64,
) -> Incoming {
    let handle = vec![handle; 16].into();
    Incoming::Granted(pb::Granted { request, token: 1, handle, keep_alive_number, valid_for_ms })
}

pub(super) fn refused(request: u64, reason: pb::Reason) -> Incoming {
    Incoming::Refused(pb::Refused { request, reason: reason.into(), ..Default::default() })
}

pub(super) fn kept_alive(keep_alive_number: u64, valid_for_ms: u64) -> Incoming {
    Incoming::KeptAlive(pb::KeptAlive { keep_alive_number, valid_for_ms, limits: vec![] })
}

pub(super) fn queued(request: u64) -> Incoming {
    Incoming::Queued(pb::Queued { request, position: 1, ..Default::default() })
}

pub(super) fn restored() -> Incoming {
    Incoming::Restored(pb::Restored {})
}

pub(super) fn lost(handle: u8) -> Incoming {
    let handle = vec![handle; 16].into();
    let reason = pb::Reason::Broken.into();
    Incoming::Lost(pb::Lost { handle, reason, message: "by ops".into(), operator: None })
}
