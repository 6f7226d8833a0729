//! What is done to which calls.

use std::time::Duration;

use http_body_util::Full;
use hyper::{Response, body::Bytes};

use super::call::{Kind, Seen};

/// Which calls. Without more they are all meant.
#[derive(Clone, Debug, Default)]
pub struct Match {
    kind: Option<Kind>,
    container: String,
    blob: String,
}

impl Match {
    /// All calls.
    pub fn any() -> Self {
        Self::default()
    }

    /// Of this kind only.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Only about blobs whose path contains this.
    pub fn blob(mut self, part: &str) -> Self {
        part.clone_into(&mut self.blob);
        self
    }

    /// Only about containers whose name contains this. Of tables, this is the
    /// first part of the path: an entity's address, or `$batch`.
    pub fn container(mut self, part: &str) -> Self {
        part.clone_into(&mut self.container);
        self
    }

    pub fn fits(&self, seen: &Seen) -> bool {
        self.kind.is_none_or(|kind| kind == seen.kind)
            && seen.container.contains(&self.container)
            && seen.blob.contains(&self.blob)
    }
}

impl From<Kind> for Match {
    fn from(kind: Kind) -> Self {
        Self::any().kind(kind)
    }
}

/// What can happen to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is forwarded late, even if the client has given up by then.
    Delay(Duration),
    /// It is applied at once and answered late.
    DelayAnswer(Duration),
    /// It is forwarded when the proxy lets it go ([`super::Proxy::let_go`]),
    /// even if the client has given up by then.
    Hold,
    /// It is applied at once and answered when the proxy lets it go.
    HoldAnswer,
    /// It is applied; then the connection is closed without an answer.
    DropAnswer,
    /// It is not forwarded; the connection is reset.
    Reset,
    /// It is neither forwarded nor answered; the connection stays open until
    /// the client gives up.
    Swallow,
    /// It is not forwarded but refused.
    Answer(Refusal),
    /// It is applied, but the client is told that it was refused.
    ApplyThenAnswer(Refusal),
    /// It is applied and answered, and applied once more that long after the
    /// first answer.
    Duplicate { after: Duration },
    /// It is applied and answered, and applied once more when the proxy lets it
    /// go.
    HoldDuplicate,
    /// It is applied at once, and once more when the proxy lets it go: that
    /// second answer is returned, as by whoever repeats what seems lost.
    HoldReplay,
    /// It is applied and answered with this header in place of the upstream's.
    Header { name: &'static str, value: &'static str },
}

/// An error as the storage answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub code: &'static str,
    /// In whole seconds.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    pub const INTERNAL_ERROR: Self = Self::new(500, "InternalError");
    pub const FORBIDDEN: Self = Self::new(403, "AuthorizationFailure");

    pub const fn new(status: u16, code: &'static str) -> Self {
        Self { status, code, retry_after: None }
    }

    /// The account is throttled.
    pub const fn busy(retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(503, "ServerBusy") }
    }

    pub(super) fn response(self) -> Response<Full<Bytes>> {
        let Self { status, code, retry_after } = self;
        let body = format!(
            "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code>\
             <Message>The proxy was told to answer this.</Message></Error>"
        );
        let mut response = Response::builder()
            .status(status)
            .header("content-type", "application/xml")
            .header("x-ms-error-code", code);
        if let Some(after) = retry_after {
            response = response.header("retry-after", after.as_secs());
        }
        response.body(Full::new(body.into())).unwrap()
    }
}

/// Names a rule, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(usize);

/// The rules in force, in the order in which they were made.
#[derive(Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// By the number of the rule: how many calls it was applied to.
    used: Vec<usize>,
}

struct Rule {
    id: RuleId,
    what: Match,
    /// How many more that fit it lets pass.
    skip: usize,
    /// How many more it is applied to.
    left: usize,
    fault: Fault,
}

impl Rules {
    pub(super) fn add(&mut self, what: Match, nth: usize, times: usize, fault: Fault) -> RuleId {
        let id = RuleId(self.used.len());
        self.used.push(0);
        self.rules.push(Rule { id, what, skip: nth.saturating_sub(1), left: times, fault });
        id
    }

    pub(super) fn remove(&mut self, id: RuleId) {
        self.rules.retain(|rule| rule.id != id);
    }

    pub(super) fn used(&self, id: RuleId) -> usize {
        self.used[id.0]
    }

    pub(super) fn remove_all(&mut self) {
        self.rules.clear();
    }

    /// What is to be done to a call that has just come.
    pub(super) fn apply(&mut self, seen: &Seen) -> Option<Fault> {
        let rule = self.rules.iter_mut().find(|rule| rule.left > 0 && rule.what.fits(seen))?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        rule.left -= 1;
        self.used[rule.id.0] += 1;
        Some(rule.fault)
    }
}
