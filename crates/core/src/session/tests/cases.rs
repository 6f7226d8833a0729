//! Tests in the simulated world: one with random events, the others step by step.

use super::*;
use crate::error::RequestError;

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn tokens_increase_holds_never_overlap_nothing_is_left_behind(
        seed: u64,
        ops in prop::collection::vec(op(6), 1..200),
    ) {
        let mut world = World::new(2, 6, seed % (u64::MAX - 2));
        for op in ops {
            world.apply(op);
        }
        world.heal();
        world.check_journal();
    }
}

/// Creates one daemon, whose store answers immediately.
fn calm(clients: usize) -> World {
    World::new(1, clients, 0)
}

impl World {
    fn acquire(&mut self, client: usize, wait: Option<u64>) {
        self.apply(Op::Acquire(client, 0, wait, None));
        self.answer_all();
    }

    fn answer_all(&mut self) {
        while !self.store.pending.is_empty() {
            self.apply(Op::Store(0, Outcome::Answered));
        }
    }

    /// Checks that the journal has each grant once, and its end once.
    fn check_journal(&self) {
        let mut active = HashMap::default();
        for Entry { name, fact, .. } in &self.journal {
            match fact {
                Fact::Granted { token, .. } => {
                    assert!(active.insert((name, *token), ()).is_none(), "{name} {token}");
                }
                Fact::Released { token, .. } | Fact::Lost { token, .. } => {
                    assert!(active.remove(&(name, *token)).is_some(), "{name} {token}");
                }
                _ => {}
            }
        }
        for (name, token) in active.into_keys() {
            let held = |daemon: &Sessions| {
                let lock = daemon.locks.find(name)?;
                daemon.locks.active_grant(lock).map(|grant| grant.token)
            };
            assert!(self.daemons.iter().any(|daemon| held(daemon) == Some(token)), "{name}");
        }
    }

    fn keep_alive(&mut self) {
        for client in 0..self.clients.len() {
            self.apply(Op::KeepAlive(client, 0));
        }
        self.answer_all();
    }

    /// Returns the clients that may rely on a grant.
    fn holders(&self) -> Vec<usize> {
        (0..self.clients.len())
            .filter(|client| {
                let mut grants = self.clients[*client].grants.values();
                grants.any(|grant| !grant.over && grant.deadline > self.now)
            })
            .collect()
    }
}

#[test]
fn waiters_are_served_in_order_without_dead_and_canceled() {
    let mut world = calm(6);
    for client in 0..6 {
        world.acquire(client, None);
    }
    assert_eq!(world.holders(), [0]);
    world.cut(1);
    world.apply(Op::CancelAll(3));
    for next in [2, 4, 5] {
        let holder = world.holders()[0];
        world.release_all(holder);
        world.answer_all();
        assert_eq!(world.holders(), [next]);
    }
}

#[test]
fn lost_release_is_retried() {
    let mut world = calm(1);
    world.acquire(0, None);
    world.release_all(0);
    for _ in 0..3 {
        assert!(matches!(world.store.pending[..], [(_, _, StoreCall::Release(..), _)]));
        world.apply(Op::Store(0, Outcome::NeverArrived));
        assert!(world.store.blobs[&lock_name(0)].lease.is_some());
        world.pass(Duration::from_secs(2));
    }
    world.answer_all();
    assert!(world.store.blobs[&lock_name(0)].lease.is_none(), "peers would wait until it expires");
}

#[test]
fn end_of_superseded_stream_has_no_effect() {
    let mut world = calm(2);
    world.acquire(0, None);
    world.acquire(1, None);
    let old = world.clients[1].stream.unwrap();
    // The client resumes before the daemon has noticed the broken stream.
    world.apply(Op::Cut(1));
    world.apply(Op::Resume(1));
    world.event(0, Event::Detached(old));
    world.release_all(0);
    world.answer_all();
    assert_eq!(world.holders(), [1], "a connected waiter was skipped");
    let before = world.clients[1].kept_alive;
    world.apply(Op::KeepAlive(1, 0));
    assert_eq!(world.clients[1].kept_alive, before + 1);
}

#[test]
fn waiter_that_resumes_in_time_keeps_its_place() {
    let mut world = calm(4);
    for client in 0..4 {
        world.acquire(client, None);
    }
    world.cut(1);
    world.release_all(0);
    world.answer_all();
    assert_eq!(world.holders(), [2]);
    world.apply(Op::Resume(1));
    world.release_all(2);
    world.answer_all();
    assert_eq!(world.holders(), [1]);
}

#[test]
fn silent_session_ends_exactly_at_its_ttl() {
    let mut world = calm(2);
    world.acquire(0, None);
    world.acquire(1, None);
    world.cut(0);
    world.pass(Duration::from_millis(2900));
    world.apply(Op::KeepAlive(1, 0));
    assert_eq!(world.holders(), [0]);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.holders(), [1]);
}

/// Returns an acquire as a client sends it.
fn acquire(request: u64, lock: u8, wait: Option<Duration>) -> Request {
    let name = lock_name(lock);
    Request::Acquire {
        request,
        name,
        wait,
        max_hold_time: None,
        lease_duration: None,
        value: None,
        trace: None,
    }
}

impl World {
    /// Sends a request on a client's stream and returns what the daemon does.
    fn reply(&mut self, client: usize, request: Request) -> Vec<Action> {
        let (daemon, stream) = (self.clients[client].daemon, self.clients[client].stream.unwrap());
        let mut actions = Vec::new();
        self.daemons[daemon].on(Event::Request(stream, request), self.now, &mut actions);
        actions.retain(|action| !matches!(action, Action::Journal(_)));
        actions
    }
}

#[test]
fn acquires_of_one_session_exclude_each_other() {
    let mut world = calm(2);
    world.acquire(0, None);
    let refused = world.reply(0, acquire(101, 0, Some(Duration::ZERO)));
    let [Action::Send(_, Message::Refused { request: 101, problem })] = &refused[..] else {
        panic!("{refused:?}")
    };
    assert_eq!((problem.reason, problem.held_by_same_session), (Reason::Held, true));
    assert!(problem.message.contains("another acquire of the same session"), "{problem}");
    world.clients[0].requests = 101;
    let queued = world.reply(0, acquire(102, 0, None));
    let [Action::Send(_, Message::Queued(queued)), Action::Changed(_)] = &queued[..] else {
        panic!("{queued:?}")
    };
    assert!(queued.held_by_same_session && queued.position == 1);
    world.clients[0].requests = 102;
    world.clients[0].pending.insert(102, lock_name(0));
    let other = world.reply(1, acquire(1, 0, None));
    let [Action::Send(_, Message::Queued(queued)), Action::Changed(_)] = &other[..] else {
        panic!("{other:?}")
    };
    assert!(!queued.held_by_same_session && queued.position == 2);
    world.clients[1].requests = 1;
    world.clients[1].pending.insert(1, lock_name(0));
    for (holder, grants) in [(0, 2), (1, 3)] {
        world.release_all(0);
        world.answer_all();
        assert_eq!((world.holders(), world.grant_count), (vec![holder], grants), "first come");
    }
    world.release_all(1);
    world.answer_all();
    assert!(world.daemons[0].is_drained());
}

/// Returns the error with which the daemon ended the stream.
fn ended(actions: &[Action]) -> &RequestError {
    match actions.first() {
        Some(Action::End(_, Some(problem))) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn number_that_does_not_increase_ends_the_stream() {
    let handle = Handle::from_bytes(&[7; 16]).unwrap();
    for (request, field) in [
        (acquire(1, 1, None), "request"),
        (Request::Release { request: 1, handle }, "request"),
        (Request::Proclaim { request: 1, handle, value: [1].into() }, "request"),
        (Request::KeepAlive { keep_alive_number: 0 }, "keep_alive_number"),
    ] {
        let mut world = calm(2);
        world.acquire(0, None);
        let actions = world.reply(0, request);
        let problem = ended(&actions);
        assert_eq!((problem.reason, problem.field), (Reason::Protocol, Some(field)));
        assert!(world.reply(0, acquire(9, 1, None)).is_empty(), "the stream has no session");
        // The session still exists, and can be resumed.
        world.clients[0].connected = false;
        world.apply(Op::Resume(0));
        assert_eq!(world.holders(), [0]);
    }
}

#[test]
fn acquire_repeated_after_resume_is_the_same_request() {
    let mut world = calm(2);
    world.acquire(0, None);
    world.acquire(1, None);
    world.reply(1, acquire(2, 1, None));
    world.answer_all();
    for client in 0..2 {
        world.cut(client);
        world.apply(Op::Resume(client));
    }
    // The holder repeats its acquire: the same grant. The waiter keeps its place.
    let (handle, grant) = world.clients[0].grants.iter().next().unwrap();
    let (handle, token) = (*handle, grant.token);
    let granted = world.reply(0, acquire(1, 0, None));
    let [Action::Send(_, Message::Granted { request: 1, handle: same, token: equal, .. })] =
        &granted[..]
    else {
        panic!("{granted:?}")
    };
    assert_eq!((*same, equal.get()), (handle, token));
    let queued = world.reply(1, acquire(1, 0, None));
    assert!(
        matches!(&queued[..], [Action::Send(_, Message::Queued(queued))] if queued.position == 1),
        "{queued:?}"
    );
    assert_eq!(world.daemons[0].view(&lock_name(0), world.now).waiting, 1);
    // The numbers of a waiting acquire and of a grant belong to their locks.
    for client in [1, 0] {
        world.cut(client);
        world.apply(Op::Resume(client));
        let actions = world.reply(client, acquire(1, 2, None));
        assert_eq!(ended(&actions).field, Some("request"));
    }
}

#[test]
fn repeated_acquire_of_released_grant_is_a_new_one() {
    let mut world = calm(2);
    world.acquire(0, None);
    world.release_all(0);
    world.answer_all();
    world.cut(0);
    world.apply(Op::Resume(0));
    let grants = world.grant_count;
    world.event(0, Event::Request(world.clients[0].stream.unwrap(), acquire(1, 0, None)));
    world.answer_all();
    assert_eq!((world.holders(), world.grant_count), (vec![0], grants + 1));
}

#[test]
fn broken_lock_is_free_on_release_or_at_holder_deadline() {
    for releases in [true, false] {
        let mut world = calm(2);
        world.acquire(0, None);
        world.acquire(1, None);
        world.clients[0].connected = releases;
        world.apply(Op::Break(0));
        world.apply(Op::KeepAlive(1, 0));
        if releases {
            assert_eq!(world.holders(), [0; 0], "the holder was notified, but has not released");
            world.release_all(0);
        } else {
            assert_eq!(world.holders(), [0], "the holder does not know yet");
            world.pass(Duration::from_millis(2999));
            assert!(!world.holders().contains(&1));
            world.apply(Op::KeepAlive(1, 0));
            world.pass(Duration::from_millis(2));
        }
        world.answer_all();
        assert_eq!(world.holders(), [1]);
    }
}

#[test]
fn grant_ends_at_max_hold_time() {
    let mut world = calm(2);
    world.apply(Op::Acquire(0, 0, None, Some(4000)));
    world.answer_all();
    world.acquire(1, None);
    for _ in 0..3 {
        world.pass(Duration::from_secs(1));
        world.keep_alive();
        assert_eq!(world.holders(), [0]);
    }
    world.pass(Duration::from_secs(1));
    world.answer_all();
    assert_eq!(world.holders(), [1]);
}

#[test]
fn failing_renewals_warn_before_grants_are_lost() {
    let mut world = calm(1);
    world.acquire(0, None);
    let deadline = lease_deadline(world.now);
    for _ in 0..13 {
        world.pass(Duration::from_secs(1));
        world.apply(Op::KeepAlive(0, 0));
        while !world.store.pending.is_empty() {
            world.apply(Op::Store(0, Outcome::NeverArrived));
        }
        let grant = world.clients[0].grants.values().next().unwrap();
        assert!(grant.deadline <= deadline, "I6: client deadline ≤ daemon deadline");
    }
    assert_eq!(world.holders(), [0]);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.holders(), [0; 0]);
}

#[test]
fn keep_alives_after_outage_are_batched() {
    let mut world = calm(1);
    for lock in 0..20 {
        world.apply(Op::Acquire(0, lock, None, None));
    }
    world.answer_all();
    let deadline = lease_deadline(world.now);
    while world.now + Duration::from_secs(2) < deadline {
        world.pass(Duration::from_millis(100));
        world.apply(Op::KeepAlive(0, 0));
        while !world.store.pending.is_empty() {
            world.apply(Op::Store(0, Outcome::NeverArrived));
        }
    }
    assert_eq!(world.clients[0].warnings, 20);
    assert!(world.clients[0].grants.values().all(|grant| grant.deadline <= deadline));
    let before = world.clients[0].kept_alive;
    while world.now < deadline {
        world.pass(Duration::from_millis(10));
        world.answer_all();
    }
    assert!(world.clients[0].grants.values().all(|grant| grant.deadline > deadline));
    // Renewals are not retried all at once: several keep-alives may be due.
    let pushed = world.clients[0].kept_alive - before;
    assert!((1..20).contains(&pushed), "{pushed} keep-alives for 20 renewals");
}

#[test]
fn broken_lease_is_not_regranted_before_holder_deadline() {
    let mut world = calm(2);
    world.acquire(0, None);
    world.acquire(1, None);
    while world.store.pending.is_empty() {
        world.pass(Duration::from_millis(100));
        world.apply(Op::KeepAlive(0, 0));
        world.apply(Op::KeepAlive(1, 0));
    }
    // The holder receives nothing more. The renewal finds the lease broken.
    world.clients[0].connected = false;
    world.store.blobs.get_mut(&lock_name(0)).unwrap().lease = None;
    world.answer_all();
    assert_eq!(world.holders(), [0]);
    while world.holders() != [1] {
        world.pass(Duration::from_millis(100));
        world.apply(Op::KeepAlive(1, 0));
        world.answer_all();
    }
}

#[test]
fn broken_lease_is_released_once_its_holder_has_released() {
    let mut world = calm(1);
    world.acquire(0, None);
    while world.store.pending.is_empty() {
        world.pass(Duration::from_millis(100));
        world.apply(Op::KeepAlive(0, 0));
    }
    // The renewal finds the lease broken: peers wait until it expires.
    world.store.blobs.get_mut(&lock_name(0)).unwrap().lease = None;
    world.apply(Op::Store(0, Outcome::Answered));
    world.release_all(0);
    let mut pending = world.store.pending.iter();
    assert!(pending.any(|(_, _, call, _)| matches!(call, StoreCall::Release(..))));
}

#[test]
fn lost_lease_grants_nothing_to_next_waiter() {
    let mut world = calm(2);
    world.acquire(0, None);
    world.acquire(1, None);
    while world.store.pending.is_empty() {
        world.pass(Duration::from_millis(100));
        world.apply(Op::KeepAlive(0, 0));
        world.apply(Op::KeepAlive(1, 0));
    }
    // The renewal finds the lease lost before its deadline, with tokens left.
    world.store.blobs.get_mut(&lock_name(0)).unwrap().lease = None;
    world.apply(Op::Store(0, Outcome::Answered));
    world.release_all(0);
    assert_eq!(world.holders(), [0; 0], "granted on a lost lease");
    let mut pending = world.store.pending.iter();
    assert!(pending.any(|(_, _, call, _)| matches!(call, StoreCall::Release(..))));
    world.answer_all();
    assert_eq!(world.holders(), [1], "granted on a new lease");
}

#[test]
fn lock_held_by_peer_never_appears_free() {
    let mut world = World::new(2, 2, 0);
    world.acquire(0, None);
    world.acquire(1, Some(1000));
    while world.store.pending.is_empty() {
        world.pass(Duration::from_millis(10));
    }
    let name = lock_name(0);
    assert!(
        world.daemons[1].view(&name, world.now).held.is_some(),
        "appears free while another attempt is pending"
    );
    assert!(!world.daemons[1].has_lease(&name));
    let mut actions = Vec::new();
    world.daemons[1].on(Event::Tick, world.now + Duration::from_secs(1), &mut actions);
    let refused = actions.iter().find_map(|action| match action {
        Action::Send(_, Message::Refused { problem, .. }) => Some(problem),
        _ => None,
    });
    let refused = refused.expect("the waiter was not refused in time");
    assert_eq!(refused.reason, Reason::TimedOut);
    assert!(refused.message.contains("held by another daemon"), "{}", refused.message);
}

#[test]
fn drain_refuses_waiters_warns_holders_and_then_ends_grants() {
    let mut world = calm(2);
    world.acquire(0, None);
    world.acquire(1, None);
    let until = world.now + Duration::from_secs(1);
    world.event(0, Event::Drain(until));
    assert!(world.clients[1].pending.is_empty(), "a waiter was not refused");
    assert_eq!(world.holders(), [0]);
    world.keep_alive();
    world.event(0, Event::EndDrain);
    assert!(!world.daemons[0].is_drained(), "the holder has not released");
    world.pass(TTL);
    world.answer_all();
    assert!(world.daemons[0].is_drained());
}

#[test]
fn session_resumed_during_shutdown_is_warned() {
    let mut world = calm(1);
    world.acquire(0, None);
    world.cut(0);
    world.event(0, Event::Drain(world.now + Duration::from_secs(1)));
    assert_eq!(world.clients[0].warnings, 0, "the client was disconnected");
    world.apply(Op::Resume(0));
    assert_eq!(world.clients[0].warnings, 1);
}

#[test]
fn sessions_expiring_together_are_not_granted_each_others_locks() {
    let mut world = calm(3);
    for client in 0..3 {
        world.acquire(client, None);
    }
    // The whole machine was paused, with this daemon's timer.
    world.now = world.now + 2 * TTL;
    let before = world.grant_count;
    world.event(0, Event::Tick);
    world.answer_all();
    assert_eq!(world.grant_count, before);
    assert!(world.daemons[0].is_drained());
}

#[test]
fn lease_lingers_after_last_release() {
    // The linger period is 2 s with this seed.
    let mut world = World::new(1, 2, 1);
    world.acquire(0, None);
    world.release_all(0);
    world.answer_all();
    assert!(world.store.blobs[&lock_name(0)].lease.is_some(), "released immediately");
    world.pass(Duration::from_millis(1900));
    let pending = world.store.pending.len();
    world.apply(Op::Acquire(1, 0, None, None));
    assert_eq!(world.holders(), [1], "not granted without a store call");
    assert_eq!(world.store.pending.len(), pending);
    world.release_all(1);
    world.pass(Duration::from_secs(2));
    world.answer_all();
    assert!(world.store.blobs[&lock_name(0)].lease.is_none(), "the lease was kept for too long");
    assert!(world.daemons[0].is_drained());
}

#[test]
fn daemon_does_not_linger_during_shutdown() {
    let mut world = World::new(1, 1, 1);
    world.acquire(0, None);
    world.release_all(0);
    world.answer_all();
    world.event(0, Event::Drain(world.now + Duration::from_secs(9)));
    world.answer_all();
    assert!(world.daemons[0].is_drained());
}

/// Returns the leader's token and value, as published for other daemons.
fn published(world: &World) -> Option<(u64, Vec<u8>)> {
    let (token, value) = world.store.blobs[&lock_name(ELECTION)].published.clone()?;
    Some((token.get(), value.to_vec()))
}

fn leader_token(world: &World, client: usize) -> u64 {
    let grants = world.clients[client].grants.values();
    grants.filter(|grant| !grant.over).map(|grant| grant.token).next().unwrap()
}

#[test]
fn published_leader_follows_campaign_handoff_and_proclaim() {
    let mut world = calm(3);
    for client in 0..3 {
        world.apply(Op::Acquire(client, ELECTION, None, None));
    }
    world.answer_all();
    assert_eq!(
        published(&world),
        Some((leader_token(&world, 0), vec![0])),
        "published with the acquisition"
    );
    world.release_all(0);
    assert!(leader_token(&world, 1) > 0, "the next candidate leads before this is published");
    world.answer_all();
    assert_eq!(published(&world), Some((leader_token(&world, 1), vec![1])));
    let before = leader_token(&world, 1);
    world.apply(Op::Proclaim(1, 7));
    world.answer_all();
    assert_eq!(published(&world), Some((before, vec![1, 7])), "the token stays the same");
    // The last of several values wins, and a failed write is retried.
    world.apply(Op::Proclaim(1, 8));
    world.apply(Op::Proclaim(1, 9));
    world.apply(Op::Store(0, Outcome::NeverArrived));
    world.pass(Duration::from_secs(2));
    world.apply(Op::KeepAlive(1, 0));
    world.apply(Op::KeepAlive(2, 0));
    world.answer_all();
    assert_eq!(published(&world), Some((before, vec![1, 9])));
}

#[test]
fn proclaim_without_leadership_is_refused() {
    let mut world = calm(2);
    world.apply(Op::Acquire(0, ELECTION, None, None));
    world.answer_all();
    let stream = world.clients[1].stream.unwrap();
    let handle = *world.clients[0].grants.keys().next().unwrap();
    let proclaim = Request::Proclaim { request: 5, handle, value: [1].into() };
    let mut actions = Vec::new();
    world.daemons[0].on(Event::Request(stream, proclaim), world.now, &mut actions);
    let Some(Action::Send(_, Message::Refused { request: 5, problem })) = actions.first() else {
        panic!("{actions:?}")
    };
    assert_eq!(problem.reason, Reason::UnknownHandle);
    assert_eq!(published(&world).unwrap().1, [0]);
}

#[test]
fn leader_asked_to_step_down_is_warned_before_loss() {
    let mut world = calm(2);
    for client in 0..2 {
        world.apply(Op::Acquire(client, ELECTION, None, None));
    }
    world.answer_all();
    world.apply(Op::StepDown(ELECTION));
    assert_eq!(world.clients[0].warnings, 1);
    for _ in 0..5 {
        assert!(
            world.clients[0].grants.values().all(|grant| !grant.over),
            "lost before the deadline"
        );
        world.pass(Duration::from_millis(500));
        world.apply(Op::KeepAlive(0, 0));
        world.apply(Op::KeepAlive(1, 0));
    }
    world.pass(Duration::from_secs(1));
    world.answer_all();
    assert!(world.clients[0].grants.values().all(|grant| grant.over));
    assert_eq!(
        published(&world),
        Some((leader_token(&world, 1), vec![1])),
        "the next candidate leads"
    );
}

#[test]
fn limits_are_enforced_and_named() {
    let mut world = calm(1);
    let mut actions = Vec::new();
    for number in 0..101 {
        let request = Request::Acquire {
            request: number + 1,
            name: LockName::parse("", &number.to_string()).unwrap(),
            wait: None,
            max_hold_time: None,
            lease_duration: None,
            value: None,
            trace: None,
        };
        actions.clear();
        let stream = world.clients[0].stream.unwrap();
        world.daemons[0].on(Event::Request(stream, request), world.now, &mut actions);
    }
    let [Action::Journal(entry), Action::Send(_, Message::Refused { problem, .. })] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert!(matches!(entry.fact, Fact::Refused { cause: RefusalCause::Limit, .. }), "{entry:?}");
    assert_eq!(problem.reason, Reason::Limit);
    assert!(problem.message.contains("max_locks_per_session"), "{problem}");
}

#[test]
fn linger_continues_without_tokens_and_is_not_restarted() {
    // Linger 2 s; two tokens per hold.
    let mut world = World::new(1, 2, 1);
    for _ in 0..2 {
        world.acquire(0, None);
        world.release_all(0);
        world.answer_all();
    }
    // The lease lingers without tokens. Another client acquires just before the end.
    world.pass(Duration::from_millis(1900));
    world.apply(Op::KeepAlive(0, 0));
    world.apply(Op::KeepAlive(1, 0));
    world.apply(Op::Acquire(1, 0, None, None));
    assert!(matches!(world.store.pending.last().unwrap().2, StoreCall::NextTokens(..)));
    world.pass(Duration::from_millis(200));
    // It cancels without a grant: the linger period has ended.
    world.apply(Op::CancelAll(1));
    world.answer_all();
    assert!(world.store.blobs[&lock_name(0)].lease.is_none(), "the lease was kept for too long");
}

#[test]
fn proclaim_is_answered_when_lease_is_lost() {
    let mut world = calm(1);
    world.apply(Op::Acquire(0, ELECTION, None, None));
    world.answer_all();
    while world.store.pending.is_empty() {
        world.pass(Duration::from_millis(100));
        world.apply(Op::KeepAlive(0, 0));
    }
    // A renewal is pending.
    world.store.blobs.get_mut(&lock_name(ELECTION)).unwrap().lease = None;
    let stream = world.clients[0].stream.unwrap();
    let handle = *world.clients[0].grants.keys().next().unwrap();
    let proclaim = Request::Proclaim { request: 77, handle, value: [1].into() };
    let mut actions = Vec::new();
    world.daemons[0].on(Event::Request(stream, proclaim), world.now, &mut actions);
    let mut calls: Vec<_> =
        world.store.pending.drain(..).map(|(_, lock, call, sent)| (lock, call, sent)).collect();
    for action in actions.drain(..) {
        if let Action::Call(lock, call) = action {
            calls.push((lock, call, world.now));
        }
    }
    let mut all = Vec::new();
    for (lock, call, sent) in calls {
        let (id, answer) = world.store.answer(&call, Outcome::Answered, sent, world.now);
        world.daemons[0].on(Event::Answered(lock, id, answer), world.now, &mut all);
    }
    world.now = world.now + Duration::from_secs(100);
    world.daemons[0].on(Event::Tick, world.now, &mut all);
    let answered = all.iter().any(|action| {
        matches!(
            action,
            Action::Send(
                _,
                Message::Refused { request: 77, .. } | Message::Proclaimed { request: 77 }
            )
        )
    });
    assert!(answered, "never answered: {all:?}");
}

#[test]
fn no_grant_after_clock_jump_past_lease_deadline() {
    let mut world = World::new(2, 2, 0);
    world.apply(Op::Acquire(0, 0, None, None));
    let (daemon, lock, call, sent) = world.store.pending.remove(0);
    // The store applies the call. The answer waits in a buffer while the machine is
    // paused.
    let (id, answer) = world.store.answer(&call, Outcome::Answered, sent, world.now);
    world.event(0, Event::ClockJumped(Duration::from_secs(60)));
    world.event(daemon, Event::Answered(lock, id, answer));
    assert_eq!(world.grant_count, 0, "granted on a lease of 15 s after a clock jump of 60 s");
}

#[test]
fn retry_delay_of_zero_is_not_used_as_is() {
    let mut world = calm(1);
    world.apply(Op::Acquire(0, 0, None, None));
    let mut polls = 0;
    let begin = world.now;
    while world.now.since(begin) < Duration::from_secs(1) && polls < 1000 {
        if let Some((daemon, lock, call, _)) = world.store.pending.pop() {
            let StoreCall::Acquire(claim) = call else { panic!() };
            let error =
                lease::Error::Unavailable { why: "busy".into(), retry_after: Some(Duration::ZERO) };
            world.event(daemon, Event::Answered(lock, claim.id, StoreAnswer::Acquire(Err(error))));
            polls += 1;
        }
        world.pass(Duration::from_millis(1));
    }
    assert!(polls < 10, "{polls} polls in a second");
}

#[test]
fn excessive_retry_delay_is_limited() {
    let mut world = calm(1);
    world.apply(Op::Acquire(0, 0, None, None));
    let (daemon, lock, call, _) = world.store.pending.pop().unwrap();
    let StoreCall::Acquire(claim) = call else { panic!() };
    let error = lease::Error::Unavailable {
        why: "busy".into(),
        retry_after: Some(Duration::from_secs(86400)),
    };
    world.event(daemon, Event::Answered(lock, claim.id, StoreAnswer::Acquire(Err(error))));
    for _ in 0..600 {
        world.pass(Duration::from_secs(1));
        world.apply(Op::KeepAlive(0, 0));
    }
    assert!(!world.store.pending.is_empty(), "no retry within ten minutes");
}

#[test]
fn step_down_deadline_is_limited_by_max_hold_time() {
    let mut world = calm(1);
    world.apply(Op::Acquire(0, ELECTION, None, Some(4000)));
    world.answer_all();
    let until = world.daemons[0]
        .step_down_deadline(&lock_name(ELECTION), Duration::from_secs(30), world.now)
        .unwrap();
    assert!(until.since(world.now) <= Duration::from_secs(4), "{:?}", until.since(world.now));
}

#[test]
fn resumed_session_is_warned_of_step_down() {
    let mut world = calm(1);
    world.apply(Op::Acquire(0, ELECTION, None, None));
    world.answer_all();
    world.cut(0);
    let until = world.daemons[0]
        .step_down_deadline(&lock_name(ELECTION), Duration::from_secs(30), world.now)
        .unwrap();
    let name = lock_name(ELECTION);
    world.event(0, Event::StepDown { name, by: "a".into(), reason: "b".into(), until });
    world.apply(Op::Resume(0));
    assert_eq!(world.clients[0].warnings, 1);
}

#[test]
fn explanation_names_holder_waiters_and_cause() {
    let mut world = calm(3);
    for client in 0..3 {
        world.acquire(client, None);
    }
    world.pass(Duration::from_millis(500));
    let explain = |world: &World| world.daemons[0].explain(&lock_name(0), 10, world.now);
    let explanation = explain(&world);
    assert_eq!(explanation.diagnosis(), Diagnosis::WaitingForHolder);
    assert_eq!(explanation.waiters.len(), 2);
    assert_eq!(explanation.waiters[0].waiting_for, Duration::from_millis(500));
    assert!(explanation.advice()[0].contains("leasehold break lock-0"), "{explanation:?}");
    let LeaseView::Held(lease) = &explanation.lease else { panic!("{explanation:?}") };
    assert!(lease.valid_for.unwrap() < DURATION && !lease.is_at_risk);
    world.cut(0);
    assert_eq!(explain(&world).diagnosis(), Diagnosis::HolderSilent);
    world.apply(Op::Break(0));
    assert_eq!(explain(&world).diagnosis(), Diagnosis::Ending);
    let facts = world.journal.iter().filter(|entry| entry.name == lock_name(0));
    let facts: Vec<_> = facts.map(|entry| &entry.fact).collect();
    let [
        Fact::LeaseAcquired { .. },
        Fact::Granted { source: Source::Lease, .. },
        Fact::Queued,
        Fact::Queued,
        Fact::Lost { cause, .. },
    ] = facts[..]
    else {
        panic!("{facts:?}")
    };
    assert!(matches!(**cause, Cause::Broken { .. }), "{cause:?}");
}

#[test]
fn survey_finds_longest_holds_and_queues_in_parts() {
    let mut world = calm(2);
    for lock in 0..20 {
        world.apply(Op::Acquire(0, lock, None, None));
        world.answer_all();
        world.pass(Duration::from_millis(10));
    }
    world.apply(Op::Acquire(1, 7, None, None));
    let mut survey = Survey::new(3);
    let mut parts = 0;
    while !survey.is_complete() {
        world.daemons[0].survey(&mut survey, 4, world.now);
        parts += 1;
    }
    assert!(parts >= 5, "{parts}");
    assert_eq!((survey.locks, survey.held, survey.waiting, survey.sessions), (20, 20, 1, 2));
    let names =
        |locks: &[LockSummary]| locks.iter().map(|lock| lock.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&survey.longest_held), [lock_name(0), lock_name(1), lock_name(2)]);
    assert_eq!(names(&survey.longest_queues), [lock_name(7)]);
}
