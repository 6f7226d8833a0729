//! Client side of a grant.

use std::fmt;

use super::keep_alives::Validity;
use crate::{Loss, Reason, Risk};
use leasehold_time::{ClockPair, Moment};

/// Identifier of a grant at the daemon. It authorizes the release of the grant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Handle([u8; 16]);

impl Handle {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(crate) fn encoded(self) -> prost::bytes::Bytes {
        prost::bytes::Bytes::copy_from_slice(&self.0)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(REDACTED)")
    }
}

/// Number of a grant within the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GrantId(pub(super) u64);

/// Grant with a guard, or with a reply from which the guard is created.
#[derive(Debug)]
pub(crate) struct Grant {
    /// `None` once there is nothing to release: the release was sent, or the
    /// session has ended.
    pub(crate) handle: Option<Handle>,
    validity: Validity,
    /// Time of its end, if before the end of its validity.
    ended: Option<Moment>,
    /// Loss. Never changes once set, because a lost grant stays lost.
    loss: Option<Loss>,
    /// Number of warnings, and the latest one.
    pub(crate) risk: Option<(u64, Risk)>,
}

impl Grant {
    pub(crate) fn new(handle: Handle, validity: Validity) -> Self {
        Self { handle: Some(handle), validity, ended: None, loss: None, risk: None }
    }

    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    /// Returns the instant until which the daemon grants the lock to no other
    /// acquire, by the clock that has advanced more.
    pub(crate) fn deadline(&self, now: &ClockPair) -> Moment {
        let valid_until = self.validity.ends_at(now);
        self.ended.map_or(valid_until, |ended| ended.min(valid_until))
    }

    /// Applies a new validity, unless the deadline has passed or the validity
    /// belongs to an older keep-alive.
    ///
    /// Returns whether the guard must be notified: the grant is lost, or its
    /// deadline is earlier than before. (The latter occurs if the lease limits the
    /// validity, and this keep-alive was in flight for longer than the previous
    /// one.)
    pub(crate) fn renew(&mut self, validity: Validity, now: &ClockPair) -> bool {
        let mut changed = self.check_expiry(now);
        let is_newer = validity.keep_alive_number >= self.validity.keep_alive_number;
        if leasehold_rules::may_extend_grant(self.loss.is_some(), is_newer) {
            let (before, after) = (self.validity.ends_at(now), validity.ends_at(now));
            changed |= leasehold_rules::must_wake_holder(before, after);
            // The grant is active until its new deadline.
            (self.validity, self.loss, self.ended) = (validity, None, None);
        }
        changed
    }

    /// Ends the grant if its validity has ended. Returns whether the loss is new.
    pub(crate) fn check_expiry(&mut self, now: &ClockPair) -> bool {
        self.validity.is_over(now) && self.end(self.expiry_loss(), now.at())
    }

    /// Marks the grant as lost, and returns whether the loss is new. The daemon
    /// grants the lock to no other acquire before the deadline.
    pub(crate) fn lose(&mut self, loss: Loss) -> bool {
        let is_new = self.loss.is_none();
        self.loss.get_or_insert(loss);
        is_new
    }

    /// Like [`lose`](Self::lose), with an immediate deadline: another acquire may
    /// hold the lock from now on.
    pub(crate) fn end(&mut self, loss: Loss, now: Moment) -> bool {
        self.ended.get_or_insert(now);
        self.lose(loss)
    }

    /// Returns the loss of a grant at its deadline. The client's deadline is
    /// slightly earlier than the daemon's. If the daemon has announced the end of
    /// the grant, the announcement is therefore the reason.
    fn expiry_loss(&self) -> Loss {
        match &self.risk {
            Some((_, risk)) if risk.is_step_down_request() => Loss {
                reason: risk.reason,
                message: format!("{}; its time limit has elapsed", risk.message),
                operator: risk.operator.clone(),
            },
            _ => not_renewed(),
        }
    }

    /// Records a warning. Only another announcement of a planned end replaces such
    /// an announcement.
    pub(crate) fn warn(&mut self, risk: Risk) {
        let must_end = self.risk.as_ref().is_some_and(|(_, risk)| risk.is_step_down_request());
        if must_end && !risk.is_step_down_request() {
            return;
        }
        let number = self.risk.as_ref().map_or(0, |(number, _)| *number) + 1;
        self.risk = Some((number, risk));
    }
}

fn not_renewed() -> Loss {
    Loss::new(Reason::Expired, "the grant's deadline passed without a keep-alive response")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Operator;

    fn start() -> ClockPair {
        ClockPair::in_sync_at(Moment::from_boot(Duration::from_secs(1000)))
    }

    fn validity(keep_alive_number: u64, sent: ClockPair, seconds: u64) -> Validity {
        Validity { keep_alive_number, sent, length: Duration::from_secs(seconds) }
    }

    fn grant(validity: Validity) -> Grant {
        Grant::new(Handle([7; 16]), validity)
    }

    #[test]
    fn later_validity_replaces_earlier_even_if_shorter() {
        let sent = start();
        let mut grant = grant(validity(3, sent, 10));
        grant.renew(validity(4, sent, 12), &sent);
        assert_eq!(grant.deadline(&sent), sent.at() + Duration::from_secs(12));
        grant.renew(validity(5, sent, 2), &sent);
        assert_eq!(grant.deadline(&sent), sent.at() + Duration::from_secs(2));
        for (older, seconds) in [(4, 1), (4, 60), (0, 60)] {
            grant.renew(validity(older, sent, seconds), &sent);
            assert_eq!(grant.deadline(&sent), sent.at() + Duration::from_secs(2));
        }
    }

    #[test]
    fn validity_after_deadline_is_ignored() {
        let sent = start();
        let mut grant = grant(validity(0, sent, 10));
        let late = ClockPair::in_sync_at(sent.at() + Duration::from_secs(10));
        assert!(grant.renew(validity(1, sent, 20), &late));
        assert_eq!(grant.loss().map(|loss| loss.reason), Some(Reason::Expired));
        assert_eq!(grant.validity.keep_alive_number, 0);
    }

    #[test]
    fn first_loss_is_kept() {
        let sent = start();
        let mut grant = grant(validity(0, sent, 10));
        let broken = Loss::new(Reason::Broken, "by ops");
        assert!(grant.lose(broken.clone()));
        assert!(!grant.lose(not_renewed()));
        grant.renew(validity(1, sent, 60), &sent);
        assert_eq!(grant.loss(), Some(&broken));
        assert_eq!(
            grant.validity.keep_alive_number, 0,
            "the deadline of a lost grant is not extended"
        );
    }

    #[test]
    fn ended_grant_has_past_deadline() {
        let sent = start();
        let broken = Loss::new(Reason::Broken, "by ops");
        let mut grant = grant(validity(0, sent, 10));
        grant.lose(broken.clone());
        assert_eq!(
            grant.deadline(&sent),
            sent.at() + Duration::from_secs(10),
            "the daemon holds the lock until then"
        );
        let later = sent.at() + Duration::from_secs(3);
        assert!(!grant.end(not_renewed(), later));
        assert_eq!((grant.deadline(&sent), grant.loss()), (later, Some(&broken)));
        grant.end(not_renewed(), later + Duration::from_secs(1));
        assert_eq!(grant.deadline(&sent), later, "the end is never postponed");
    }

    #[test]
    fn clock_jump_past_validity_ends_grant() {
        let sent = start();
        let mut grant = grant(validity(0, sent, 10));
        let later = ClockPair::in_sync_at(sent.at() + Duration::from_secs(4));
        assert!(!grant.check_expiry(&later.with_wall_ahead(Duration::from_secs(5))));
        let jumped = later.with_wall_ahead(Duration::from_secs(5));
        assert_eq!(grant.deadline(&jumped), later.at() + Duration::from_secs(1));
        assert!(
            grant.renew(validity(1, later, 10), &later.with_wall_ahead(Duration::from_secs(6)))
        );
        assert_eq!(grant.loss(), Some(&not_renewed()));
        assert_eq!(grant.deadline(&later), later.at());
    }

    #[test]
    fn expired_grant_reports_announced_reason() {
        let sent = start();
        let over = ClockPair::in_sync_at(sent.at() + Duration::from_secs(10));
        for (warned, lost) in [
            (Reason::StepDown, Reason::StepDown),
            (Reason::ShuttingDown, Reason::ShuttingDown),
            (Reason::StoreUnavailable, Reason::Expired),
        ] {
            let mut grant = grant(validity(0, sent, 10));
            let (message, ends_in) = ("cause".to_owned(), Duration::from_secs(10));
            let operator = Some(Operator { by: "ops".into(), reason: "drill".into() });
            grant.warn(Risk { reason: warned, message, ends_in, operator: operator.clone() });
            assert!(grant.check_expiry(&over));
            assert_eq!(grant.loss().map(|loss| loss.reason), Some(lost));
            let expected = operator.filter(|_| lost == warned);
            assert_eq!(grant.loss().and_then(|loss| loss.operator.clone()), expected);
        }
    }

    #[test]
    fn handle_is_redacted_in_debug_output() {
        assert_eq!(format!("{:?}", Handle([7; 16])), "Handle(REDACTED)");
        assert_eq!(Handle::parse(&[7; 15]), None);
    }
}
