//! A proxy between a daemon and its storage that sees every call, and can do
//! to it what networks and storages do.
//!
//! ```text
//! client ⇄ link (cut, freeze) ⇄ rules (faults) ⇄ upstream
//! ```
//!
//! What lies behind the link goes on when the client gives up or the link is
//! cut: a delayed or duplicated call reaches the storage all the same.
//! Requests are forwarded as they came, `Host` included, so signatures hold.
//!
//! ```ignore
//! let proxy = Proxy::start(azurite.port());
//! proxy.when(Kind::Renew.of("orders")).nth(2).times(1).then(Fault::DropAnswer);
//! proxy.wait_for(|seen| seen.fault.is_some() && seen.is_over()).await;
//! assert_eq!(proxy.count(Kind::Renew), 2);
//! ```

mod call;
mod listen;
mod record;
mod rule;
mod serve;
mod upstream;

use std::{
    sync::{Arc, mpsc::sync_channel},
    thread::{self, JoinHandle},
};

use tokio::sync::{mpsc, watch};

pub use call::{Kind, Seen};
pub use rule::{Fault, Match, Refusal, RuleId};

use listen::{Command, Door};
use record::Record;
use upstream::Upstream;

/// A running proxy, on a port of 127.0.0.1 and a thread of its own. It stops
/// when this is dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    /// Ends the thread when it is dropped.
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

/// What all connections have in common.
struct Shared {
    record: Arc<Record>,
    link: watch::Sender<Link>,
    /// Tells the calls that are held.
    let_go: watch::Sender<()>,
    upstream: Upstream,
}

/// What passes between the clients and the rules.
#[derive(Clone, Copy)]
struct Link {
    requests: bool,
    answers: bool,
}

impl Link {
    const OPEN: Self = Self { requests: true, answers: true };
}

impl Shared {
    async fn requests_pass(&self) {
        _ = self.link.subscribe().wait_for(|link| link.requests).await;
    }

    async fn answers_pass(&self) {
        _ = self.link.subscribe().wait_for(|link| link.answers).await;
    }
}

impl Proxy {
    /// Starts one in front of a server on another port of 127.0.0.1.
    pub fn start(upstream_port: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let shared = Arc::new(Shared {
            record: Arc::default(),
            link: watch::Sender::new(Link::OPEN),
            let_go: watch::Sender::default(),
            upstream: Upstream::new(upstream_port),
        });
        let (commands, received) = mpsc::unbounded_channel();
        let (door, listener) = {
            let _entered = runtime.enter();
            let door = Door::new().unwrap();
            let listener = door.open().unwrap();
            (door, listener)
        };
        let port = door.port();
        let listening = listen::listen(door, listener, Arc::clone(&shared), received);
        let thread = thread::Builder::new().name("proxy".to_owned());
        let thread = thread.spawn(move || runtime.block_on(listening)).unwrap();
        Self { port, shared, commands: Some(commands), thread: Some(thread) }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Begins a rule for calls of a kind: `proxy.when(kind).times(1).then(fault)`.
    pub fn when(&self, what: impl Into<Match>) -> When<'_> {
        When { proxy: self, what: what.into(), nth: 1, times: usize::MAX }
    }

    /// Takes a rule away. Calls that it was applied to stay under it.
    pub fn remove(&self, rule: RuleId) {
        self.shared.record.remove(rule);
    }

    /// How many calls a rule was applied to, also if it was taken away.
    pub fn used(&self, rule: RuleId) -> usize {
        self.shared.record.used(rule)
    }

    /// Nobody gets through: present connections are reset, new ones refused.
    /// It is so when this returns.
    pub fn cut(&self) {
        self.command(Command::Close);
    }

    /// A black hole: connections are accepted and stay, nothing passes. A call
    /// whose client gives up meanwhile never gets through; the others do when
    /// the link is healed.
    pub fn freeze(&self) {
        self.shared.link.send_replace(Link { requests: false, answers: false });
    }

    /// The same in one direction: nothing reaches the upstream any more, but
    /// what it was asked before is answered.
    pub fn freeze_requests(&self) {
        self.shared.link.send_replace(Link { requests: false, answers: true });
    }

    /// The same in the other direction: every call is applied, none answered.
    pub fn freeze_answers(&self) {
        self.shared.link.send_replace(Link { requests: true, answers: false });
    }

    /// Lets go of all calls that have come and are held by a rule.
    pub fn let_go(&self) {
        self.shared.let_go.send_replace(());
    }

    /// Ends any cut or freeze. New connections are accepted when this returns.
    pub fn open(&self) {
        self.shared.link.send_replace(Link::OPEN);
        self.command(Command::Open);
    }

    /// The same, and ends all rules; lets go of what is held.
    pub fn heal(&self) {
        self.shared.record.remove_all();
        self.let_go();
        self.open();
    }

    /// All calls since the start or the last [`Proxy::clear`], in the order in
    /// which they came.
    pub fn calls(&self) -> Vec<Seen> {
        self.shared.record.calls(|_| true)
    }

    /// How many of these there were.
    pub fn count(&self, what: impl Into<Match>) -> usize {
        let what = what.into();
        self.shared.record.calls(|seen| what.fits(seen)).len()
    }

    /// Forgets the calls so far, also those that are under way.
    pub fn clear(&self) {
        self.shared.record.clear();
    }

    /// Waits until there is such a call, and returns the first. It may have come
    /// before. Ask for [`Seen::is_over`] to wait for its end, too.
    pub async fn wait_for(&self, wanted: impl Fn(&Seen) -> bool) -> Seen {
        self.wait_for_many(1, wanted).await.remove(0)
    }

    /// Waits until there are that many such calls, and returns all.
    pub async fn wait_for_many(&self, count: usize, wanted: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        self.shared.record.wait_for_many(count, wanted).await
    }

    /// Waits until the proxy's thread has done it. That needs nothing from the
    /// caller's runtime, so it may be blocked.
    fn command(&self, command: fn(listen::Done) -> Command) {
        let (done, wait) = sync_channel(1);
        self.commands.as_ref().unwrap().send(command(done)).unwrap();
        wait.recv().unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// A rule that is being made. Of several that fit a call, the one made first is
/// applied, and only that one counts it.
#[must_use = "`then` makes the rule"]
pub struct When<'a> {
    proxy: &'a Proxy,
    what: Match,
    nth: usize,
    times: usize,
}

impl When<'_> {
    /// Begins with the nth call that fits, counted from 1 and from now.
    pub fn nth(mut self, nth: usize) -> Self {
        self.nth = nth;
        self
    }

    /// Ends after that many; without this it lasts until it is removed.
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// What happens to these calls.
    pub fn then(self, fault: Fault) -> RuleId {
        let Self { proxy, what, nth, times } = self;
        proxy.shared.record.add(what, nth, times, fault)
    }
}
