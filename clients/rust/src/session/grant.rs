//! A grant, as its session believes in it.

use std::fmt;

use super::keep_alives::Validity;
use crate::{Loss, Reason, Risk};
use leasehold_time::{ClockPair, Moment};

/// The daemon's name for a grant. Whoever has it can release the grant.
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

/// The client's own number for a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GrantId(pub(super) u64);

/// A grant and its guard, or the answer that becomes one.
#[derive(Debug)]
pub(crate) struct Grant {
    /// None once the session that it belonged to is gone: nothing is left to
    /// release.
    pub(crate) handle: Option<Handle>,
    validity: Validity,
    /// When it ended, if that was before its deadline.
    ended: Option<Moment>,
    /// Once set, never changed: a grant that was reported lost stays lost.
    loss: Option<Loss>,
    /// The latest warning, and how many there have been.
    pub(crate) risk: Option<(u64, Risk)>,
}

impl Grant {
    pub(crate) fn new(handle: Handle, validity: Validity) -> Self {
        Self { handle: Some(handle), validity, ended: None, loss: None, risk: None }
    }

    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    /// Until when the daemon keeps the lock from others, as far as is known and
    /// either clock shows.
    pub(crate) fn deadline(&self, now: &ClockPair) -> Moment {
        let promised = self.validity.ends_at(now);
        self.ended.map_or(promised, |ended| ended.min(promised))
    }

    /// Takes over a new promise of the daemon. One that comes after the
    /// deadline comes too late, and one for an older keep-alive is out of date.
    /// Says whether whoever waits for the loss has to look again: it is lost, or
    /// it may be sooner than was known. (The way of this keep-alive took longer than
    /// that of the last, and it is the lease that ends.)
    pub(crate) fn renew(&mut self, validity: Validity, now: &ClockPair) -> bool {
        let mut news = self.look_at_clocks(now);
        let is_newer = validity.keep_alive_number >= self.validity.keep_alive_number;
        if leasehold_rules::may_extend_grant(self.loss.is_some(), is_newer) {
            let (before, after) = (self.validity.ends_at(now), validity.ends_at(now));
            news |= leasehold_rules::must_wake_holder(before, after);
            // The grant is active until the new deadline.
            (self.validity, self.loss, self.ended) = (validity, None, None);
        }
        news
    }

    /// A grant whose validity is used up is lost, whatever is heard later.
    /// Says whether this is news.
    pub(crate) fn look_at_clocks(&mut self, now: &ClockPair) -> bool {
        self.validity.is_over(now) && self.end(self.run_out(), now.at())
    }

    /// Loses the grant, and says whether this is news. The daemon still keeps
    /// the lock from others until the deadline.
    pub(crate) fn lose(&mut self, loss: Loss) -> bool {
        let news = self.loss.is_none();
        self.loss.get_or_insert(loss);
        news
    }

    /// The same, but the lock may be somebody else's from now on.
    pub(crate) fn end(&mut self, loss: Loss, now: Moment) -> bool {
        self.ended.get_or_insert(now);
        self.lose(loss)
    }

    /// The loss that the holder's own clock tells. It is a little ahead of the
    /// daemon's: so if the daemon has said that the grant will end, this is it.
    fn run_out(&self) -> Loss {
        match &self.risk {
            Some((_, risk)) if risk.is_step_down_request() => Loss {
                reason: risk.reason,
                message: format!("{}, and the time for it is over", risk.message),
                operator: risk.operator.clone(),
            },
            _ => not_renewed(),
        }
    }

    /// A request to hand over stands, whatever else is at risk.
    pub(crate) fn warn(&mut self, risk: Risk) {
        let asked = self.risk.as_ref().is_some_and(|(_, risk)| risk.is_step_down_request());
        if asked && !risk.is_step_down_request() {
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
        ClockPair::then(Moment::from_boot(Duration::from_secs(1000)))
    }

    fn validity(keep_alive_number: u64, sent: ClockPair, seconds: u64) -> Validity {
        Validity { keep_alive_number, sent, length: Duration::from_secs(seconds) }
    }

    fn grant(validity: Validity) -> Grant {
        Grant::new(Handle([7; 16]), validity)
    }

    #[test]
    fn a_later_promise_replaces_an_earlier_one_also_if_it_is_shorter() {
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
    fn a_promise_after_the_deadline_is_too_late() {
        let sent = start();
        let mut grant = grant(validity(0, sent, 10));
        let late = ClockPair::then(sent.at() + Duration::from_secs(10));
        assert!(grant.renew(validity(1, sent, 20), &late));
        assert_eq!(grant.loss().map(|loss| loss.reason), Some(Reason::Expired));
        assert_eq!(grant.validity.keep_alive_number, 0);
    }

    #[test]
    fn the_first_loss_stays() {
        let sent = start();
        let mut grant = grant(validity(0, sent, 10));
        let broken = Loss::new(Reason::Broken, "by ops");
        assert!(grant.lose(broken.clone()));
        assert!(!grant.lose(not_renewed()));
        grant.renew(validity(1, sent, 60), &sent);
        assert_eq!(grant.loss(), Some(&broken));
        assert_eq!(grant.validity.keep_alive_number, 0, "its deadline is not moved any more");
    }

    #[test]
    fn a_grant_that_has_ended_has_no_deadline_ahead() {
        let sent = start();
        let broken = Loss::new(Reason::Broken, "by ops");
        let mut grant = grant(validity(0, sent, 10));
        grant.lose(broken.clone());
        assert_eq!(
            grant.deadline(&sent),
            sent.at() + Duration::from_secs(10),
            "the daemon keeps it"
        );
        let later = sent.at() + Duration::from_secs(3);
        assert!(!grant.end(not_renewed(), later));
        assert_eq!((grant.deadline(&sent), grant.loss()), (later, Some(&broken)));
        grant.end(not_renewed(), later + Duration::from_secs(1));
        assert_eq!(grant.deadline(&sent), later, "it is never moved ahead");
    }

    #[test]
    fn a_leap_that_uses_up_the_validity_ends_the_grant() {
        let sent = start();
        let mut grant = grant(validity(0, sent, 10));
        let later = ClockPair::then(sent.at() + Duration::from_secs(4));
        assert!(!grant.look_at_clocks(&later.leapt(Duration::from_secs(5))));
        let leapt = later.leapt(Duration::from_secs(5));
        assert_eq!(grant.deadline(&leapt), later.at() + Duration::from_secs(1));
        assert!(grant.renew(validity(1, later, 10), &later.leapt(Duration::from_secs(6))));
        assert_eq!(grant.loss(), Some(&not_renewed()));
        assert_eq!(grant.deadline(&later), later.at());
    }

    #[test]
    fn a_grant_that_was_to_end_has_ended_for_that_reason() {
        let sent = start();
        let over = ClockPair::then(sent.at() + Duration::from_secs(10));
        for (warned, lost) in [
            (Reason::StepDown, Reason::StepDown),
            (Reason::ShuttingDown, Reason::ShuttingDown),
            (Reason::StoreUnavailable, Reason::Expired),
        ] {
            let mut grant = grant(validity(0, sent, 10));
            let (message, ends_in) = ("why".to_owned(), Duration::from_secs(10));
            let operator = Some(Operator { by: "ops".into(), reason: "drill".into() });
            grant.warn(Risk { reason: warned, message, ends_in, operator: operator.clone() });
            assert!(grant.look_at_clocks(&over));
            assert_eq!(grant.loss().map(|loss| loss.reason), Some(lost));
            let expected = operator.filter(|_| lost == warned);
            assert_eq!(grant.loss().and_then(|loss| loss.operator.clone()), expected);
        }
    }

    #[test]
    fn a_handle_is_not_shown() {
        assert_eq!(format!("{:?}", Handle([7; 16])), "Handle(REDACTED)");
        assert_eq!(Handle::parse(&[7; 15]), None);
    }
}
