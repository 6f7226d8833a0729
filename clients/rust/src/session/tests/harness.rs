//! A session under test, and the daemon's messages for it.

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
    pb::attach_response::Message as Heard,
    pb::{self, attach_request::Message},
};
use leasehold_time::{ClockPair, Moment};

pub(super) const TTL: Duration = Duration::from_secs(9);

/// A session, a clock of its own, and what the session has done since it was
/// last looked at.
pub(super) struct Subject {
    pub(super) state: State,
    pub(super) now: Moment,
    /// By how much the wall clock has run ahead.
    leap: Duration,
}

impl Subject {
    pub(super) fn new(fenced: bool) -> Self {
        let profile = Profile { ttl: Some(TTL), holder: pb::Holder::default(), fenced };
        Self {
            state: State::new(Arc::new(profile)),
            now: Moment::from_boot(Duration::from_secs(1000)),
            leap: Duration::ZERO,
        }
    }

    /// With a stream on which everything may be sent.
    pub(super) fn attached() -> Self {
        let mut subject = Self::new(false);
        subject.open();
        assert_eq!(subject.actions(), []);
        subject
    }

    pub(super) fn open(&mut self) {
        let first = self.state.begin(self.clocks());
        assert!(matches!(first, Message::Open(_)), "{first:?}");
        self.hear(Heard::Opened(opened(false)));
    }

    /// On a new stream, up to the list of what still stands.
    pub(super) fn resume(&mut self) -> u64 {
        let Message::Resume(resume) = self.state.begin(self.clocks()) else {
            panic!("it did not resume")
        };
        assert_eq!(resume.resume_secret.as_ref(), [9; 16]);
        self.hear(Heard::Opened(opened(true)));
        resume.keep_alive_number
    }

    pub(super) fn later(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    /// The machine is frozen, and only the wall clock notices.
    pub(super) fn freeze(&mut self, seconds: u64) {
        self.leap += Duration::from_secs(seconds);
    }

    pub(super) fn clocks(&self) -> ClockPair {
        ClockPair::in_sync_at(self.now).with_wall_ahead(self.leap)
    }

    pub(super) fn ask(&mut self, name: &str, wait: Wait) -> Ticket {
        let limit = match wait {
            Wait::Not => Some(self.now + Duration::from_secs(5)),
            Wait::AtMost(wait) => Some(self.now + wait),
            Wait::Forever => None,
        };
        let lock = pb::LockRef { namespace: "default".into(), name: name.into() };
        self.state
            .acquire(PendingAcquire::new(lock, wait, AcquireOptions::default(), limit), self.now)
    }

    pub(super) fn hear(&mut self, heard: Heard) {
        self.state.on_message(heard, self.clocks());
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

    /// What was sent since the last look; nothing else may have been done.
    pub(super) fn sent(&mut self) -> Vec<Message> {
        let sent = |action| match action {
            Action::Send(message) => message,
            other => panic!("{other:?}"),
        };
        self.actions().into_iter().map(sent).collect()
    }

    /// The number of the one acquire that was sent.
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

    /// Asks for a lock and is granted it.
    pub(super) fn grant(&mut self, name: &str, handle: u8) -> GrantId {
        self.ask(name, Wait::Forever);
        let request = self.sent_acquire().request;
        self.hear(granted(request, handle, 0, 9000));
        self.granted()
    }

    pub(super) fn granted(&mut self) -> GrantId {
        match self.actions().pop() {
            Some(Action::Answer(_, Outcome::Granted { grant, .. })) => grant,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn deadline(&self, grant: GrantId) -> Moment {
        self.state.grant(grant).expect("it has users").deadline(&self.clocks())
    }

    pub(super) fn lost_by(&self, grant: GrantId) -> Option<Reason> {
        self.state.grant(grant).expect("it has users").loss().map(|loss| loss.reason)
    }
}

pub(super) fn opened(resumed: bool) -> pb::Opened {
    let ttl_ms = u32::try_from(TTL.as_millis()).expect("it is short");
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
) -> Heard {
    let handle = vec![handle; 16].into();
    Heard::Granted(pb::Granted { request, token: 1, handle, keep_alive_number, valid_for_ms })
}

pub(super) fn refused(request: u64, reason: pb::Reason) -> Heard {
    Heard::Refused(pb::Refused { request, reason: reason.into(), ..Default::default() })
}

pub(super) fn kept_alive(keep_alive_number: u64, valid_for_ms: u64) -> Heard {
    Heard::KeptAlive(pb::KeptAlive { keep_alive_number, valid_for_ms, limits: vec![] })
}

pub(super) fn queued(request: u64) -> Heard {
    Heard::Queued(pb::Queued { request, position: 1, ..Default::default() })
}

pub(super) fn restored() -> Heard {
    Heard::Restored(pb::Restored {})
}

pub(super) fn lost(handle: u8) -> Heard {
    let handle = vec![handle; 16].into();
    let reason = pb::Reason::Broken.into();
    Heard::Lost(pb::Lost { handle, reason, message: "by ops".into(), operator: None })
}
