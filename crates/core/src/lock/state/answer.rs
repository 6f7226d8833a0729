//! What the store's answers mean for a lock (safety rule 7).

use super::{
    super::{Answer, Cx, Effect, Refusal, grant::Cause, queue::Queue, renew::Term},
    Lease, Lock, Obstacle, backoff, wait,
};
use leasehold_rules::valid_until;
use leasehold_store as lease;
use leasehold_store::LeaseId;

impl Lock {
    /// What the store answered.
    pub(in crate::lock) fn answered(&mut self, id: LeaseId, answer: Answer, cx: &mut Cx<'_>) {
        match (&mut self.lease, answer) {
            (Lease::Acquiring { id: asked, .. }, Answer::Acquire(answer)) if *asked == id => {
                self.acquired(id, answer, cx);
            }
            (_, Answer::Publish(answer)) => self.published(id, &answer, cx),
            (Lease::Held { id: held, asking, .. }, Answer::NextTokens(answer)) if *held == id => {
                *asking = false;
                self.got_tokens(id, answer, cx);
            }
            (Lease::Held { id: held, .. }, Answer::Renew(answer)) if *held == id => {
                self.renewed(answer, cx);
            }
            (
                Lease::Releasing { id: given_up, retry_at, failures, over_at, then },
                Answer::Release(answer),
            ) if *given_up == id => {
                if answer == Ok(lease::Release::Released) || cx.now >= *over_at {
                    self.lease = then.take().map_or(Lease::None, Lease::Waiting);
                } else {
                    *retry_at = Some(cx.now + backoff(*failures, cx));
                    *failures += 1;
                }
            }
            // An answer to a hold that is over. Its id was never used again,
            // so there is nothing left that it could speak of.
            _ => {}
        }
        self.advance(cx);
        self.settle(cx);
    }

    fn acquired(
        &mut self,
        id: LeaseId,
        answer: Result<lease::Acquire, lease::Error>,
        cx: &mut Cx<'_>,
    ) {
        let Lease::Acquiring { duration, ref before, shown, campaigns, leapt, .. } = self.lease
        else {
            return;
        };
        let polls = before.as_ref().map_or(0, |before| before.polls + 1);
        match answer {
            Ok(lease::Acquire::Acquired(lease::Acquired { tokens, deadline })) => {
                let term = deadline.map(|deadline| {
                    let deadline = valid_until(deadline, leapt);
                    Box::new(Term::new(deadline, duration, cx.now, cx.entropy))
                });
                self.lease = Lease::Held {
                    id,
                    tokens,
                    term,
                    asking: false,
                    linger_until: None,
                    shown: Some(shown),
                    publishing: campaigns.then(Box::default),
                };
            }
            Ok(lease::Acquire::Held { by }) => {
                self.lease = Lease::Waiting(wait(Obstacle::Elsewhere { by }, polls, cx));
            }
            Ok(lease::Acquire::Unknown { why }) => {
                let trouble = lease::Error::Unavailable { why, retry_after: None };
                let then = Some(wait(Obstacle::Trouble(trouble), polls, cx));
                self.give_up_lease_then(id, then, cx);
            }
            Err(error @ lease::Error::DataLoss { .. }) => {
                self.lease = Lease::None;
                let why = Refusal::Obstacle(Obstacle::Trouble(error));
                self.refuse_while(why, Queue::pop, cx);
            }
            Err(error) => {
                self.lease = Lease::Waiting(wait(Obstacle::Trouble(error), polls, cx));
            }
        }
    }

    fn got_tokens(
        &mut self,
        id: LeaseId,
        answer: Result<lease::Acquire, lease::Error>,
        cx: &mut Cx<'_>,
    ) {
        match (&mut self.lease, answer) {
            (
                Lease::Held { tokens, .. },
                Ok(lease::Acquire::Acquired(lease::Acquired { tokens: more, .. })),
            ) => *tokens = more,
            (_, Ok(lease::Acquire::Held { .. })) => self.lease = Lease::None,
            // Without tokens the hold is of no use: start anew.
            _ => self.give_up_lease(id, cx),
        }
    }

    fn renewed(&mut self, answer: Result<lease::Renew, lease::Error>, cx: &mut Cx<'_>) {
        let Lease::Held { term: Some(term), .. } = &mut self.lease else {
            return;
        };
        match answer {
            Ok(lease::Renew::Renewed { deadline }) => {
                let deadline = deadline.unwrap_or_else(|| term.deadline());
                if term.renewed(deadline, cx.now, cx.entropy)
                    && let Some(grant) = self.grant.as_ref().filter(|grant| grant.ends_at.is_none())
                {
                    cx.out.push(Effect::OutOfRisk { session: grant.session });
                }
            }
            Ok(lease::Renew::Unknown { .. }) | Err(_) => term.unclear(cx.now, cx.entropy),
            Ok(lease::Renew::Lost { why, broken }) => {
                // The holder may act until the deadline that it knows. Once it
                // has let go, the lease is released: it may have been broken, and
                // then others wait for the end of its term.
                term.spend();
                let at = term.deadline();
                let cause = match broken {
                    Some(lease::Breaker { by, reason }) => Cause::Broken { by, reason },
                    None => Cause::LeaseLost { why: why.into() },
                };
                self.end(at, cause, cx);
            }
        }
    }
}
