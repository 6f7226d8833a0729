//! Elections: a lock whose holder shows a value.

mod info;
mod leadership;
mod observe;
mod progress;
mod run;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

pub use info::{ElectionState, Leader, SteppedDown};
pub use leadership::Leadership;
pub use observe::Observer;

use crate::{
    Client, Error, Progress,
    connection::Connection,
    name, pb,
    request::OnProgress,
    session::{Terms, Wait},
    status,
    value::Value,
};

const SHORTEST_NOTICE: Duration = Duration::from_secs(1);
const LONGEST_NOTICE: Duration = Duration::from_secs(3600);

type OnTrouble = Box<dyn FnMut(&Error) + Send>;
/// Behind a mutex, so that elections can be shared between threads.
type Shared<T> = Option<Arc<Mutex<T>>>;

/// An election: to campaign in it, or to look who leads. Made by
/// [`Client::election`].
///
/// It is the lock of the same name: who leads, holds the lock, and shows a
/// value to all who look. Candidates wait for it in turn. Who only looks does
/// not compete.
///
/// As with locks, **every campaign competes on its own**: of two tasks that
/// campaign through clones of one client, one leads and the other waits.
#[must_use = "nothing is asked for before `campaign`, `run_as_leader` or `leader`"]
pub struct Election {
    client: Client,
    name: String,
    value: Vec<u8>,
    wait: Wait,
    lease_duration: Option<Duration>,
    on_progress: Shared<OnProgress>,
    on_trouble: Shared<OnTrouble>,
}

impl Election {
    pub(crate) fn new(client: Client, name: String) -> Self {
        Self {
            client,
            name,
            value: Vec::new(),
            wait: Wait::Forever,
            lease_duration: None,
            on_progress: None,
            on_trouble: None,
        }
    }

    /// What [`run_as_leader`](Self::run_as_leader) shows while it leads, such
    /// as the address where this worker is reached: at most 4,096 bytes.
    /// Nothing if it is not set.
    pub fn value(mut self, value: impl Into<Vec<u8>>) -> Self {
        self.value = value.into();
        self
    }

    /// Campaigns for at most this long.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = if limit.is_zero() { Wait::Not } else { Wait::AtMost(limit) };
        self
    }

    /// Does not wait: is refused if somebody else leads.
    pub fn no_wait(mut self) -> Self {
        self.wait = Wait::Not;
        self
    }

    /// Campaigns for as long as it takes, also while the daemon can't be
    /// reached. This is the default.
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// How long the storage lease lasts without a renewal, if it must be
    /// acquired for this campaign: 15 to 60 whole seconds. A shorter one lets
    /// another daemon's candidate lead earlier after a crash of the daemon, a
    /// longer one outlasts longer outages of the storage. Without it, as the
    /// daemon is configured.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.lease_duration = Some(duration);
        self
    }

    /// Is called while a campaign waits, whenever something has changed.
    pub fn on_progress(mut self, tell: impl FnMut(Progress) + Send + 'static) -> Self {
        self.on_progress = Some(Arc::new(Mutex::new(Box::new(tell))));
        self
    }

    /// Is told of what [`run_as_leader`](Self::run_as_leader) goes on after:
    /// [`Error::Lost`] and [`Error::Unavailable`]. For logs.
    pub fn on_trouble(mut self, tell: impl FnMut(&Error) + Send + 'static) -> Self {
        self.on_trouble = Some(Arc::new(Mutex::new(Box::new(tell))));
        self
    }

    /// Waits to lead, and then shows `value` (at most 4,096 bytes; may be
    /// empty) until it [proclaims](Leadership::proclaim) another. Dropping the
    /// future takes the campaign back.
    ///
    /// # Errors
    /// [`Error::NotGranted`] if somebody else leads, [`Error::Unavailable`] if
    /// the daemon can't be reached or can't serve this, [`Error::Invalid`] if
    /// the request can't be served by any daemon (a value that is too large is
    /// not even sent), [`Error::NeedsOperator`] and [`Error::Incompatible`] as
    /// they say.
    pub async fn campaign(self, value: impl Into<Vec<u8>>) -> Result<Leadership, Error> {
        self.stand(Value::new(value)?).await
    }

    async fn stand(&self, value: Value) -> Result<Leadership, Error> {
        let terms =
            Terms { longest_hold: None, lease_duration: self.lease_duration, value: Some(value) };
        let (session, election) = (self.client.any_session(), self.lock_ref()?);
        let on_progress = self.on_progress.clone().map(|tell| -> OnProgress {
            Box::new(move |progress| tell.lock().unwrap_or_else(PoisonError::into_inner)(progress))
        });
        let guard = session.acquire(election, self.wait, terms, on_progress).await?;
        Ok(Leadership::new(guard))
    }

    /// Who leads now. An election that nobody has ever campaigned in is shown
    /// without a leader.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that can't be one, [`Error::Unavailable`]
    /// if the daemon does not answer or can't look into its storage.
    pub async fn leader(&self) -> Result<ElectionState, Error> {
        let election = Some(self.lock_ref()?);
        let request = self.client.timed(pb::LeaderRequest { election });
        let response = self.client.connection().elections().leader(request).await;
        Ok(response.map_err(|s| status::error(&s))?.into_inner().state.unwrap_or_default().into())
    }

    /// Who leads now, and then every change, "nobody" included.
    pub fn observe(&self) -> Observer {
        Observer::new(self.client.connection(), self.lock_ref())
    }

    /// Asks the leader to finish and resign. It is [told](Leadership::at_risk)
    /// at once, and loses the leadership after `within` (1 s to 1 h; 30 s if it
    /// is `None`) if it has not resigned by then. `reason` is shown to the
    /// leader; `by`, who asks, is written to the daemon's log.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name, reason or time that can't be one,
    /// [`Error::Unavailable`] if the daemon does not answer.
    pub async fn step_down(
        &self,
        reason: &str,
        by: &str,
        within: Option<Duration>,
    ) -> Result<SteppedDown, Error> {
        let request = pb::StepDownRequest {
            election: Some(self.lock_ref()?),
            reason: reason.to_owned(),
            by: by.to_owned(),
            within_ms: within.map(notice).transpose()?.unwrap_or_default(),
        };
        let first = self.send_step_down(self.client.connection(), request.clone()).await?;
        let leader = first.state.leader.as_ref().filter(|_| !first.asked);
        match self.client.peer(leader.and_then(|leader| leader.peer.as_ref())).await {
            // If the peer does not answer, or the leader has changed meanwhile, the
            // first answer says what to do.
            Some(peer) => match self.send_step_down(&peer, request).await {
                Ok(second) if second.asked => Ok(second),
                _ => Ok(first),
            },
            None => Ok(first),
        }
    }

    async fn send_step_down(
        &self,
        connection: &Connection,
        request: pb::StepDownRequest,
    ) -> Result<SteppedDown, Error> {
        let response = connection.elections().step_down(self.client.timed(request)).await;
        Ok(response.map_err(|s| status::error(&s))?.into_inner().into())
    }

    fn lock_ref(&self) -> Result<pb::LockRef, Error> {
        name::lock_ref(self.client.namespace(), &self.name)
    }
}

fn notice(within: Duration) -> Result<u32, Error> {
    let allowed = SHORTEST_NOTICE..=LONGEST_NOTICE;
    u32::try_from(within.as_millis()).ok().filter(|_| allowed.contains(&within)).ok_or_else(|| {
        Error::invalid(
            "within",
            format!(
                "a leader is given {SHORTEST_NOTICE:?} to {LONGEST_NOTICE:?} to hand over, \
                 not {within:?}"
            ),
        )
    })
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("namespace", &self.client.namespace())
            .field("name", &self.name)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_given_a_second_to_an_hour() {
        for (within, expected) in [(1000, Some(1000)), (3_600_000, Some(3_600_000))] {
            assert_eq!(notice(Duration::from_millis(within)).ok(), expected);
        }
        for within in [Duration::ZERO, Duration::from_millis(999), Duration::MAX] {
            let Err(Error::Invalid { field, .. }) = notice(within) else {
                panic!("{within:?} was accepted")
            };
            assert_eq!(field, "within");
        }
    }
}
