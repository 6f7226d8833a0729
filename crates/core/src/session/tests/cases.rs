//! What must hold in that world: whatever happens, and step by step.

use super::*;
use crate::error::RequestError;

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn tokens_rise_holds_never_overlap_and_nothing_stays_behind(
        seed: u64,
        ops in prop::collection::vec(op(6), 1..200),
    ) {
        let mut world = World::new(2, 6, seed % (u64::MAX - 2));
        for op in ops {
            world.apply(op);
        }
        world.heal();
    }
}

/// One daemon, whose store answers at once.
fn calm(clients: usize) -> World {
    World::new(1, clients, 0)
}

impl World {
    fn ask(&mut self, client: usize, wait: Option<u64>) {
        self.apply(Op::Acquire(client, 0, wait, None));
        self.settle();
    }

    fn settle(&mut self) {
        while !self.store.asked.is_empty() {
            self.apply(Op::Store(0, Fate::Answered));
        }
    }

    fn keep_alive(&mut self) {
        for client in 0..self.clients.len() {
            self.apply(Op::Ping(client, 0));
        }
        self.settle();
    }

    /// The clients that may count on a grant.
    fn holders(&self) -> Vec<usize> {
        (0..self.clients.len())
            .filter(|client| {
                let mut beliefs = self.clients[*client].beliefs.values();
                beliefs.any(|belief| !belief.over && belief.deadline > self.now)
            })
            .collect()
    }
}

#[test]
fn waiters_are_served_in_order_past_the_dead_and_the_cancelled() {
    let mut world = calm(6);
    for client in 0..6 {
        world.ask(client, None);
    }
    assert_eq!(world.holders(), [0]);
    world.cut(1);
    world.apply(Op::CancelAll(3));
    for next in [2, 4, 5] {
        let holder = world.holders()[0];
        world.release_all(holder);
        world.settle();
        assert_eq!(world.holders(), [next]);
    }
}

#[test]
fn a_release_that_does_not_arrive_is_tried_again() {
    let mut world = calm(1);
    world.ask(0, None);
    world.release_all(0);
    for _ in 0..3 {
        assert!(matches!(world.store.asked[..], [(_, _, StoreCall::Release(..), _)]));
        world.apply(Op::Store(0, Fate::NeverArrived));
        assert!(world.store.blobs[&lock_name(0)].lease.is_some());
        world.pass(Duration::from_secs(2));
    }
    world.settle();
    assert!(world.store.blobs[&lock_name(0)].lease.is_none(), "others would wait for its end");
}

#[test]
fn the_end_of_a_stream_that_was_replaced_harms_nobody() {
    let mut world = calm(2);
    world.ask(0, None);
    world.ask(1, None);
    let old = world.clients[1].stream.unwrap();
    // It is back before the daemon has noticed that it was gone.
    world.apply(Op::Cut(1));
    world.apply(Op::Resume(1));
    world.event(0, Event::Detached(old));
    world.release_all(0);
    world.settle();
    assert_eq!(world.holders(), [1], "it is there, and not to be passed over");
    let heard = world.clients[1].kept_alive;
    world.apply(Op::Ping(1, 0));
    assert_eq!(world.clients[1].kept_alive, heard + 1);
}

#[test]
fn a_waiter_that_comes_back_in_time_has_kept_its_place() {
    let mut world = calm(4);
    for client in 0..4 {
        world.ask(client, None);
    }
    world.cut(1);
    world.release_all(0);
    world.settle();
    assert_eq!(world.holders(), [2]);
    world.apply(Op::Resume(1));
    world.release_all(2);
    world.settle();
    assert_eq!(world.holders(), [1]);
}

#[test]
fn a_silent_session_loses_all_at_its_ttl_and_not_before() {
    let mut world = calm(2);
    world.ask(0, None);
    world.ask(1, None);
    world.cut(0);
    world.pass(Duration::from_millis(2900));
    world.apply(Op::Ping(1, 0));
    assert_eq!(world.holders(), [0]);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.holders(), [1]);
}

/// An acquire as the client of `stream` sends it.
fn acquire(request: u64, lock: u8, wait: Option<Duration>) -> Request {
    let name = lock_name(lock);
    Request::Acquire { request, name, wait, max_hold_time: None, lease_duration: None, value: None }
}

impl World {
    /// Sends a request on a client's stream and returns what the daemon does.
    fn reply(&mut self, client: usize, request: Request) -> Vec<Action> {
        let (daemon, stream) = (self.clients[client].daemon, self.clients[client].stream.unwrap());
        let mut actions = Vec::new();
        self.daemons[daemon].on(Event::Request(stream, request), self.now, &mut actions);
        actions
    }
}

#[test]
fn acquires_of_one_session_exclude_each_other() {
    let mut world = calm(2);
    world.ask(0, None);
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
    world.clients[0].asked.insert(102, lock_name(0));
    let other = world.reply(1, acquire(1, 0, None));
    let [Action::Send(_, Message::Queued(queued)), Action::Changed(_)] = &other[..] else {
        panic!("{other:?}")
    };
    assert!(!queued.held_by_same_session && queued.position == 2);
    world.clients[1].requests = 1;
    world.clients[1].asked.insert(1, lock_name(0));
    for (holder, grants) in [(0, 2), (1, 3)] {
        world.release_all(0);
        world.settle();
        assert_eq!((world.holders(), world.grants), (vec![holder], grants), "first come");
    }
    world.release_all(1);
    world.settle();
    assert!(world.daemons[0].is_drained());
}

/// The problem with which the daemon ended the stream.
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
        world.ask(0, None);
        let actions = world.reply(0, request);
        let problem = ended(&actions);
        assert_eq!((problem.reason, problem.field), (Reason::Protocol, Some(field)));
        assert!(world.reply(0, acquire(9, 1, None)).is_empty(), "the stream has no session");
        // The session is still there, and can be resumed.
        world.clients[0].connected = false;
        world.apply(Op::Resume(0));
        assert_eq!(world.holders(), [0]);
    }
}

#[test]
fn acquire_repeated_after_resume_is_the_same_request() {
    let mut world = calm(2);
    world.ask(0, None);
    world.ask(1, None);
    world.reply(1, acquire(2, 1, None));
    world.settle();
    for client in 0..2 {
        world.cut(client);
        world.apply(Op::Resume(client));
    }
    // The holder repeats its acquire: the same grant. The waiter keeps its place.
    let (handle, belief) = world.clients[0].beliefs.iter().next().unwrap();
    let (handle, token) = (*handle, belief.token);
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
    world.ask(0, None);
    world.release_all(0);
    world.settle();
    world.cut(0);
    world.apply(Op::Resume(0));
    let grants = world.grants;
    world.event(0, Event::Request(world.clients[0].stream.unwrap(), acquire(1, 0, None)));
    world.settle();
    assert_eq!((world.holders(), world.grants), (vec![0], grants + 1));
}

#[test]
fn a_broken_lock_is_free_when_the_holder_lets_go_or_its_promise_ends() {
    for lets_go in [true, false] {
        let mut world = calm(2);
        world.ask(0, None);
        world.ask(1, None);
        world.clients[0].connected = lets_go;
        world.apply(Op::Break(0));
        world.apply(Op::Ping(1, 0));
        if lets_go {
            assert_eq!(world.holders(), [0; 0], "told, but the lock waits for it");
            world.release_all(0);
        } else {
            assert_eq!(world.holders(), [0], "it does not know yet");
            world.pass(Duration::from_millis(2999));
            assert!(!world.holders().contains(&1));
            world.apply(Op::Ping(1, 0));
            world.pass(Duration::from_millis(2));
        }
        world.settle();
        assert_eq!(world.holders(), [1]);
    }
}

#[test]
fn a_longest_hold_ends_the_grant() {
    let mut world = calm(2);
    world.apply(Op::Acquire(0, 0, None, Some(4000)));
    world.settle();
    world.ask(1, None);
    for _ in 0..3 {
        world.pass(Duration::from_secs(1));
        world.keep_alive();
        assert_eq!(world.holders(), [0]);
    }
    world.pass(Duration::from_secs(1));
    world.settle();
    assert_eq!(world.holders(), [1]);
}

#[test]
fn a_lease_that_can_not_be_renewed_warns_first_and_then_ends_everything() {
    let mut world = calm(1);
    world.ask(0, None);
    let deadline = lease_deadline(world.now);
    for _ in 0..13 {
        world.pass(Duration::from_secs(1));
        world.apply(Op::Ping(0, 0));
        while !world.store.asked.is_empty() {
            world.apply(Op::Store(0, Fate::NeverArrived));
        }
        let belief = world.clients[0].beliefs.values().next().unwrap();
        assert!(belief.deadline <= deadline, "I6: client deadline ≤ daemon deadline");
    }
    assert_eq!(world.holders(), [0]);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.holders(), [0; 0]);
}

#[test]
fn after_an_outage_all_that_is_renewed_is_told_together() {
    let mut world = calm(1);
    for lock in 0..20 {
        world.apply(Op::Acquire(0, lock, None, None));
    }
    world.settle();
    let deadline = lease_deadline(world.now);
    while world.now + Duration::from_secs(2) < deadline {
        world.pass(Duration::from_millis(100));
        world.apply(Op::Ping(0, 0));
        while !world.store.asked.is_empty() {
            world.apply(Op::Store(0, Fate::NeverArrived));
        }
    }
    assert_eq!(world.clients[0].warnings, 20);
    assert!(world.clients[0].beliefs.values().all(|belief| belief.deadline <= deadline));
    let before = world.clients[0].kept_alive;
    while world.now < deadline {
        world.pass(Duration::from_millis(10));
        world.settle();
    }
    assert!(world.clients[0].beliefs.values().all(|belief| belief.deadline > deadline));
    // Renewals are not tried again all at once: so at times there is more to tell.
    let told = world.clients[0].kept_alive - before;
    assert!((1..20).contains(&told), "told {told} times of 20 renewals");
}

#[test]
fn a_lease_taken_by_force_is_not_handed_on_while_the_holder_may_believe_in_it() {
    let mut world = calm(2);
    world.ask(0, None);
    world.ask(1, None);
    while world.store.asked.is_empty() {
        world.pass(Duration::from_millis(100));
        world.apply(Op::Ping(0, 0));
        world.apply(Op::Ping(1, 0));
    }
    // The holder hears nothing more; the renewal finds the lease broken.
    world.clients[0].connected = false;
    world.store.blobs.get_mut(&lock_name(0)).unwrap().lease = None;
    world.settle();
    assert_eq!(world.holders(), [0]);
    while world.holders() != [1] {
        world.pass(Duration::from_millis(100));
        world.apply(Op::Ping(1, 0));
        world.settle();
    }
}

#[test]
fn a_lease_that_was_broken_is_released_once_its_holder_has_let_go() {
    let mut world = calm(1);
    world.ask(0, None);
    while world.store.asked.is_empty() {
        world.pass(Duration::from_millis(100));
        world.apply(Op::Ping(0, 0));
    }
    // The renewal finds it broken: others wait for the end of its term.
    world.store.blobs.get_mut(&lock_name(0)).unwrap().lease = None;
    world.apply(Op::Store(0, Fate::Answered));
    world.release_all(0);
    let mut asked = world.store.asked.iter();
    assert!(asked.any(|(_, _, call, _)| matches!(call, StoreCall::Release(..))));
}

#[test]
fn a_lock_that_is_held_elsewhere_never_seems_to_be_free() {
    let mut world = World::new(2, 2, 0);
    world.ask(0, None);
    world.ask(1, Some(1000));
    while world.store.asked.is_empty() {
        world.pass(Duration::from_millis(10));
    }
    let name = lock_name(0);
    assert!(world.daemons[1].view(&name, world.now).held.is_some(), "while it is asked for again");
    assert!(!world.daemons[1].has_lease(&name));
    let mut actions = Vec::new();
    world.daemons[1].on(Event::Tick, world.now + Duration::from_secs(1), &mut actions);
    let refused = actions.iter().find_map(|action| match action {
        Action::Send(_, Message::Refused { problem, .. }) => Some(problem),
        _ => None,
    });
    let refused = refused.expect("it has waited long enough");
    assert_eq!(refused.reason, Reason::TimedOut);
    assert!(refused.message.contains("held by another daemon"), "{}", refused.message);
}

#[test]
fn draining_refuses_warns_then_ends_and_is_over_when_all_is_free() {
    let mut world = calm(2);
    world.ask(0, None);
    world.ask(1, None);
    let until = world.now + Duration::from_secs(1);
    world.event(0, Event::Drain(until));
    assert!(world.clients[1].asked.is_empty(), "whoever waits is refused");
    assert_eq!(world.holders(), [0]);
    world.keep_alive();
    world.event(0, Event::EndDrain);
    assert!(!world.daemons[0].is_drained(), "the holder has not let go");
    world.pass(TTL);
    world.settle();
    assert!(world.daemons[0].is_drained());
}

#[test]
fn who_comes_back_while_the_daemon_stops_is_told() {
    let mut world = calm(1);
    world.ask(0, None);
    world.cut(0);
    world.event(0, Event::Drain(world.now + Duration::from_secs(1)));
    assert_eq!(world.clients[0].warnings, 0, "nobody was there to hear");
    world.apply(Op::Resume(0));
    assert_eq!(world.clients[0].warnings, 1);
}

#[test]
fn of_those_who_expire_together_none_is_granted_what_another_gives_up() {
    let mut world = calm(3);
    for client in 0..3 {
        world.ask(client, None);
    }
    // Everything stood still, this daemon's timer as well.
    world.now = world.now + 2 * TTL;
    let before = world.grants;
    world.event(0, Event::Tick);
    world.settle();
    assert_eq!(world.grants, before);
    assert!(world.daemons[0].is_drained());
}

#[test]
fn a_lease_lingers_after_the_last_holder_in_case_another_comes() {
    // With this seed, for 2 s.
    let mut world = World::new(1, 2, 1);
    world.ask(0, None);
    world.release_all(0);
    world.settle();
    assert!(world.store.blobs[&lock_name(0)].lease.is_some(), "it was given up at once");
    world.pass(Duration::from_millis(1900));
    let asked = world.store.asked.len();
    world.apply(Op::Acquire(1, 0, None, None));
    assert_eq!(world.holders(), [1], "without a call to the store");
    assert_eq!(world.store.asked.len(), asked);
    world.release_all(1);
    world.pass(Duration::from_secs(2));
    world.settle();
    assert!(world.store.blobs[&lock_name(0)].lease.is_none(), "it was kept for too long");
    assert!(world.daemons[0].is_drained());
}

#[test]
fn a_daemon_that_stops_does_not_linger() {
    let mut world = World::new(1, 1, 1);
    world.ask(0, None);
    world.release_all(0);
    world.settle();
    world.event(0, Event::Drain(world.now + Duration::from_secs(9)));
    world.settle();
    assert!(world.daemons[0].is_drained());
}

/// What other daemons see of the election: the leader's token and value.
fn shown(world: &World) -> Option<(u64, Vec<u8>)> {
    let (token, value) = world.store.blobs[&lock_name(ELECTION)].shown.clone()?;
    Some((token.get(), value.to_vec()))
}

fn led_by(world: &World, client: usize) -> u64 {
    let beliefs = world.clients[client].beliefs.values();
    beliefs.filter(|belief| !belief.over).map(|belief| belief.token).next().unwrap()
}

#[test]
fn others_see_who_leads_through_campaign_hand_over_and_proclaim() {
    let mut world = calm(3);
    for client in 0..3 {
        world.apply(Op::Acquire(client, ELECTION, None, None));
    }
    world.settle();
    assert_eq!(shown(&world), Some((led_by(&world, 0), vec![0])), "with the lease itself");
    world.release_all(0);
    assert!(led_by(&world, 1) > 0, "it leads before others can see it");
    world.settle();
    assert_eq!(shown(&world), Some((led_by(&world, 1), vec![1])));
    let before = led_by(&world, 1);
    world.apply(Op::Proclaim(1, 7));
    world.settle();
    assert_eq!(shown(&world), Some((before, vec![1, 7])), "under the same token");
    // The last of several counts, and a write that fails is made up for.
    world.apply(Op::Proclaim(1, 8));
    world.apply(Op::Proclaim(1, 9));
    world.apply(Op::Store(0, Fate::NeverArrived));
    world.pass(Duration::from_secs(2));
    world.apply(Op::Ping(1, 0));
    world.apply(Op::Ping(2, 0));
    world.settle();
    assert_eq!(shown(&world), Some((before, vec![1, 9])));
}

#[test]
fn who_does_not_lead_proclaims_nothing() {
    let mut world = calm(2);
    world.apply(Op::Acquire(0, ELECTION, None, None));
    world.settle();
    let stream = world.clients[1].stream.unwrap();
    let handle = *world.clients[0].beliefs.keys().next().unwrap();
    let proclaim = Request::Proclaim { request: 5, handle, value: [1].into() };
    let mut actions = Vec::new();
    world.daemons[0].on(Event::Request(stream, proclaim), world.now, &mut actions);
    let Some(Action::Send(_, Message::Refused { request: 5, problem })) = actions.first() else {
        panic!("{actions:?}")
    };
    assert_eq!(problem.reason, Reason::UnknownHandle);
    assert_eq!(shown(&world).unwrap().1, [0]);
}

#[test]
fn a_leader_that_is_asked_to_step_down_is_told_and_loses_it_in_the_end() {
    let mut world = calm(2);
    for client in 0..2 {
        world.apply(Op::Acquire(client, ELECTION, None, None));
    }
    world.settle();
    world.apply(Op::StepDown(ELECTION));
    assert_eq!(world.clients[0].warnings, 1);
    for _ in 0..5 {
        assert!(world.clients[0].beliefs.values().all(|belief| !belief.over), "it has time");
        world.pass(Duration::from_millis(500));
        world.apply(Op::Ping(0, 0));
        world.apply(Op::Ping(1, 0));
    }
    world.pass(Duration::from_secs(1));
    world.settle();
    assert!(world.clients[0].beliefs.values().all(|belief| belief.over));
    assert_eq!(shown(&world), Some((led_by(&world, 1), vec![1])), "the next one leads");
}

#[test]
fn limits_are_kept_and_named() {
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
        };
        actions.clear();
        let stream = world.clients[0].stream.unwrap();
        world.daemons[0].on(Event::Request(stream, request), world.now, &mut actions);
    }
    let Some(Action::Send(_, Message::Refused { problem, .. })) = actions.first() else {
        panic!("{actions:?}")
    };
    assert_eq!(problem.reason, Reason::Limit);
    assert!(problem.message.contains("max_locks_per_session"), "{problem}");
}

#[test]
fn a_lingering_lease_without_tokens_does_not_stop_the_clock_and_is_not_kept_anew() {
    // Linger 2 s; two tokens per hold.
    let mut world = World::new(1, 2, 1);
    for _ in 0..2 {
        world.ask(0, None);
        world.release_all(0);
        world.settle();
    }
    // The lease lingers, its tokens are used up. Another comes just before the end.
    world.pass(Duration::from_millis(1900));
    world.apply(Op::Ping(0, 0));
    world.apply(Op::Ping(1, 0));
    world.apply(Op::Acquire(1, 0, None, None));
    assert!(matches!(world.store.asked.last().unwrap().2, StoreCall::NextTokens(..)));
    world.pass(Duration::from_millis(200));
    // It gives up without having been granted anything: the time is over.
    world.apply(Op::CancelAll(1));
    world.settle();
    assert!(world.store.blobs[&lock_name(0)].lease.is_none(), "it was kept for too long");
}

#[test]
fn a_proclaim_is_answered_also_when_the_lease_is_lost() {
    let mut world = calm(1);
    world.apply(Op::Acquire(0, ELECTION, None, None));
    world.settle();
    while world.store.asked.is_empty() {
        world.pass(Duration::from_millis(100));
        world.apply(Op::Ping(0, 0));
    }
    // A renewal is under way.
    world.store.blobs.get_mut(&lock_name(ELECTION)).unwrap().lease = None;
    let stream = world.clients[0].stream.unwrap();
    let handle = *world.clients[0].beliefs.keys().next().unwrap();
    let proclaim = Request::Proclaim { request: 77, handle, value: [1].into() };
    let mut actions = Vec::new();
    world.daemons[0].on(Event::Request(stream, proclaim), world.now, &mut actions);
    let mut calls: Vec<_> =
        world.store.asked.drain(..).map(|(_, lock, call, sent)| (lock, call, sent)).collect();
    for action in actions.drain(..) {
        if let Action::Call(lock, call) = action {
            calls.push((lock, call, world.now));
        }
    }
    let mut all = Vec::new();
    for (lock, call, sent) in calls {
        let (id, answer) = world.store.answer(&call, Fate::Answered, sent, world.now);
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
fn nothing_is_granted_on_a_lease_that_a_leap_may_have_outlived() {
    let mut world = World::new(2, 2, 0);
    world.apply(Op::Acquire(0, 0, None, None));
    let (daemon, lock, call, sent) = world.store.asked.remove(0);
    // The store does it, and the answer waits in a buffer while the machine is frozen.
    let (id, answer) = world.store.answer(&call, Fate::Answered, sent, world.now);
    world.event(0, Event::ClockJumped(Duration::from_secs(60)));
    world.event(daemon, Event::Answered(lock, id, answer));
    assert_eq!(world.grants, 0, "granted on a lease of 15 s after a leap of 60 s");
}

#[test]
fn a_store_that_asks_for_no_rest_is_not_asked_at_full_speed() {
    let mut world = calm(1);
    world.apply(Op::Acquire(0, 0, None, None));
    let mut polls = 0;
    let begin = world.now;
    while world.now.since(begin) < Duration::from_secs(1) && polls < 1000 {
        if let Some((daemon, lock, call, _)) = world.store.asked.pop() {
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
fn a_store_that_asks_for_a_day_of_rest_is_asked_again_before() {
    let mut world = calm(1);
    world.apply(Op::Acquire(0, 0, None, None));
    let (daemon, lock, call, _) = world.store.asked.pop().unwrap();
    let StoreCall::Acquire(claim) = call else { panic!() };
    let error = lease::Error::Unavailable {
        why: "busy".into(),
        retry_after: Some(Duration::from_secs(86400)),
    };
    world.event(daemon, Event::Answered(lock, claim.id, StoreAnswer::Acquire(Err(error))));
    for _ in 0..600 {
        world.pass(Duration::from_secs(1));
        world.apply(Op::Ping(0, 0));
    }
    assert!(!world.store.asked.is_empty(), "not asked again for ten minutes");
}

#[test]
fn a_step_down_says_when_the_hold_ends_by_itself() {
    let mut world = calm(1);
    world.apply(Op::Acquire(0, ELECTION, None, Some(4000)));
    world.settle();
    let until = world.daemons[0]
        .step_down_deadline(&lock_name(ELECTION), Duration::from_secs(30), world.now)
        .unwrap();
    assert!(until.since(world.now) <= Duration::from_secs(4), "said {:?}", until.since(world.now));
}

#[test]
fn who_resumes_is_told_of_the_step_down() {
    let mut world = calm(1);
    world.apply(Op::Acquire(0, ELECTION, None, None));
    world.settle();
    world.cut(0);
    let until = world.daemons[0]
        .step_down_deadline(&lock_name(ELECTION), Duration::from_secs(30), world.now)
        .unwrap();
    let name = lock_name(ELECTION);
    world.event(0, Event::StepDown { name, by: "a".into(), reason: "b".into(), until });
    world.apply(Op::Resume(0));
    assert_eq!(world.clients[0].warnings, 1);
}
