//! Rules: faults and the calls that they apply to.

use std::time::Duration;

use http_body_util::Full;
use hyper::{Response, body::Bytes};

use super::call::{Kind, RecordedCall};

/// Filter for calls. The default matches all calls.
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

    /// Matches calls of this kind only.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Matches calls on blobs whose path contains this text.
    pub fn blob(mut self, part: &str) -> Self {
        part.clone_into(&mut self.blob);
        self
    }

    /// Matches calls on containers whose name contains this text. For tables
    /// this is the first part of the path: an entity's address, or `$batch`.
    pub fn container(mut self, part: &str) -> Self {
        part.clone_into(&mut self.container);
        self
    }

    pub fn matches(&self, call: &RecordedCall) -> bool {
        self.kind.is_none_or(|kind| kind == call.kind)
            && call.container.contains(&self.container)
            && call.blob.contains(&self.blob)
    }
}

impl From<Kind> for Match {
    fn from(kind: Kind) -> Self {
        Self::any().kind(kind)
    }
}

/// Fault injected into a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Forwards the request late, even if the client has canceled by then.
    Delay(Duration),
    /// Forwards the request immediately and returns the response late.
    DelayResponse(Duration),
    /// Forwards the request on [`super::Proxy::release_held`], even if the
    /// client has canceled by then.
    Hold,
    /// Forwards the request immediately and returns the response on release.
    HoldResponse,
    /// Forwards the request, then closes the connection without a response.
    DropResponse,
    /// Resets the connection without forwarding the request.
    Reset,
    /// Discards the request and keeps the connection open until the client
    /// cancels.
    Swallow,
    /// Returns an error without forwarding the request.
    Refuse(Refusal),
    /// Forwards the request, but returns an error.
    ApplyThenRefuse(Refusal),
    /// Forwards the request and returns the response, then forwards the request
    /// again after a delay.
    Duplicate { after: Duration },
    /// Forwards the request and returns the response, then forwards the request
    /// again on release.
    HoldDuplicate,
    /// Forwards the request immediately and again on release, and returns only
    /// the second response, as a retry of a lost call would.
    HoldReplay,
    /// Forwards the request and replaces a header of the response.
    Header { name: &'static str, value: &'static str },
}

/// An error response in the format of the storage service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub code: &'static str,
    /// Sent in whole seconds.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    pub const INTERNAL_ERROR: Self = Self::new(500, "InternalError");
    pub const FORBIDDEN: Self = Self::new(403, "AuthorizationFailure");

    pub const fn new(status: u16, code: &'static str) -> Self {
        Self { status, code, retry_after: None }
    }

    /// Response of a throttled account.
    pub const fn busy(retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(503, "ServerBusy") }
    }

    pub(super) fn response(self) -> Response<Full<Bytes>> {
        let Self { status, code, retry_after } = self;
        let body = format!(
            "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code>\
             <Message>Injected by the proxy.</Message></Error>"
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

/// Identifies a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(usize);

/// Active rules in the order of their creation.
#[derive(Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Number of calls to which each rule was applied, by rule ID.
    used: Vec<usize>,
}

struct Rule {
    id: RuleId,
    matching: Match,
    /// Number of matching calls still to skip.
    skip: usize,
    /// Remaining number of calls to which the rule applies.
    left: usize,
    fault: Fault,
}

impl Rules {
    pub(super) fn add(
        &mut self,
        matching: Match,
        nth: usize,
        times: usize,
        fault: Fault,
    ) -> RuleId {
        let id = RuleId(self.used.len());
        self.used.push(0);
        self.rules.push(Rule { id, matching, skip: nth.saturating_sub(1), left: times, fault });
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

    /// Returns the fault for a new call and counts the call.
    pub(super) fn apply(&mut self, call: &RecordedCall) -> Option<Fault> {
        let rule =
            self.rules.iter_mut().find(|rule| rule.left > 0 && rule.matching.matches(call))?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        rule.left -= 1;
        self.used[rule.id.0] += 1;
        Some(rule.fault)
    }
}
