//! Observation of storage, daemons and clients: records changes of their state.

use leasehold_checker::Event;
use leasehold_simulated_storage::storage::{Answer, Call, Operation, Storage};

use crate::{
    broken::{self, Wrapped},
    world::{Machine, Nanos},
};

use super::{Running, SimState, blob_path, count, lock_name, lock_of, record};

impl SimState {
    /// Applies a call to the storage, and records what it changed.
    pub fn apply(&self, daemon: Option<u32>, call: &Call) -> Answer {
        if broken::is(Wrapped::TakeoverAfterCrash) {
            self.break_predecessors_lease(daemon, call);
        }
        let now = self.world.now();
        let date = self.date();
        let stored = |storage: &Storage| {
            let blob = storage.blob(&call.path)?;
            let token = blob.metadata.get("token").and_then(|token| token.parse().ok());
            Some((blob.etag.clone(), token.unwrap_or(0)))
        };
        let before = stored(&self.storage.borrow());
        let mut answer = self.storage.borrow_mut().answer(call, now, date);
        // Mutant 2i hides the incorrect date, so that the store does not refuse.
        if broken::is(Wrapped::ContinueWithoutDate)
            && date > self.correct_date() + 24 * 60 * 60
            && before.as_ref().is_some_and(|(_, token)| *token > 0)
        {
            answer.date = 1;
        }
        let kind = std::mem::discriminant(&call.operation);
        self.mix(&(daemon, kind, &call.path, &call.if_match, &call.lease));
        self.mix(&(answer.status, answer.code, &answer.etag, answer.lease_state));
        self.trace(|| {
            let (status, code) = (answer.status, answer.code);
            format!("    daemon {daemon:?}: {:?} {} -> {status} {code}", call.operation, call.path)
        });
        let Some(lock) = lock_of(&call.path) else { return answer };
        if let (Operation::Acquire { id, .. }, Some(daemon)) = (&call.operation, daemon) {
            self.record.borrow_mut().ids.entry(id.clone()).or_insert(daemon);
        }
        let after = stored(&self.storage.borrow());
        match (&before, &after, daemon) {
            // A write that keeps the token is not recorded.
            (Some((_, old)), Some((_, token)), Some(daemon)) if old != token => {
                self.record(Event::Stored { daemon, lock, token: *token });
            }
            (None, Some((_, token)), Some(daemon)) => {
                self.record(Event::Stored { daemon, lock, token: *token });
            }
            (Some(_), None, _) => {
                count("storage: idle blob collected");
                self.record(Event::Deleted { lock });
            }
            _ => {}
        }
        self.record_lease(lock);
        answer
    }

    /// Mutant 13a: breaks the lease that a daemon is about to acquire, if an
    /// earlier daemon of the same place holds it.
    fn break_predecessors_lease(&self, daemon: Option<u32>, call: &Call) {
        let (Some(daemon), Operation::Acquire { .. }) = (daemon, &call.operation) else { return };
        let holder = {
            let (storage, record) = (self.storage.borrow(), self.record.borrow());
            let blob = storage.blob(&call.path);
            let leased = blob.filter(|blob| blob.leased_until(self.world.now()).is_some());
            leased.and_then(|blob| record.ids.get(blob.lease_id()?).copied())
        };
        let is_predecessor = holder.is_some_and(|holder| {
            let places = self.places.borrow();
            let mut here = places.iter().filter(|place| place.numbers.contains(&daemon));
            holder != daemon && here.any(|place| place.numbers.contains(&holder))
        });
        if is_predecessor {
            let operation = Operation::Break { within: Some(0) };
            let path = call.path.clone();
            self.apply(
                Some(daemon),
                &Call { path, operation, if_match: None, if_absent: false, lease: None },
            );
        }
    }

    /// Handles a call that was applied without a caller to receive the answer,
    /// possibly long after it was sent. A lease acquired by it has no holder
    /// and must expire.
    pub fn handle_unclaimed(&self, call: &Call, answer: &Answer) {
        let (Operation::Acquire { id, .. } | Operation::Renew { id }) = &call.operation else {
            return;
        };
        let until = {
            let storage = self.storage.borrow();
            let blob = storage.blob(&call.path).filter(|blob| blob.lease_id() == Some(id));
            blob.and_then(|blob| blob.leased_until(self.world.now()))
        };
        if let Some(until) = until.filter(|_| answer.status < 300) {
            let until = until + self.plan.behavior.grace;
            let what = format!("a lease without a holder until {until}");
            self.record(Event::Disturbed { what: what.clone() });
            self.world.at(until, move || record(Event::Undisturbed { what }));
        }
    }

    /// Records which daemon has the lease of a lock's blob, if that has
    /// changed.
    pub fn record_lease(&self, lock: u32) {
        let now = self.world.now();
        let lease = {
            let storage = self.storage.borrow();
            let record = self.record.borrow();
            storage.blob(&blob_path(lock)).and_then(|blob| {
                let until = blob.leased_until(now)?;
                Some((*record.ids.get(blob.lease_id()?)?, until))
            })
        };
        if self.record.borrow_mut().leases.insert(lock, lease) != Some(lease) {
            match lease {
                Some((daemon, until)) => self.record(Event::Leased { daemon, lock, until }),
                None => self.record(Event::Unleased { lock }),
            }
        }
    }

    /// Records the holds or grants of the process on a machine, if they have
    /// changed.
    pub fn inspect_machine(&self, machine: Machine) {
        if self.world.is_paused(machine) {
            return;
        }
        let daemon = {
            let places = self.places.borrow();
            let mut running = places.iter().filter_map(|place| place.daemon.as_ref());
            running.find(|running| running.machine == machine).cloned()
        };
        match daemon {
            Some(daemon) => self.inspect_daemon(&daemon),
            None => self.inspect_client(machine),
        }
    }

    fn inspect_daemon(&self, daemon: &Running) {
        for lock in 0..self.plan.locks {
            let name = lock_name(lock);
            if let Some((lease, grant, has_waiter)) = daemon.driver.lock_state(&name) {
                let state = (lease * 3 + grant) * 2 + u8::from(has_waiter);
                self.record.borrow_mut().states |= 1 << state;
            }
            let key = (daemon.number, lock);
            let before = self.record.borrow().holds.get(&key).copied();
            let held = self.world.as_machine(daemon.machine, || daemon.driver.hold(&name));
            let held =
                held.map(|(first, deadline)| (first, self.world.reaches(daemon.machine, deadline)));
            let now = self.world.now();
            let passed = |held: &(u64, Nanos)| held.1 <= now;
            if before == held
                || before.zip(held).is_some_and(|(a, b)| a.0 == b.0 && passed(&a) && passed(&b))
            {
                continue;
            }
            let (number, mut record) = (daemon.number, self.record.borrow_mut());
            match held {
                Some((first, until)) => {
                    record.holds.insert(key, (first, until));
                    drop(record);
                    let last = first + 1023;
                    self.record(Event::Holds { daemon: number, lock, first, last, until });
                }
                None => {
                    record.holds.remove(&key);
                    drop(record);
                    self.record(Event::HoldEnded { daemon: number, lock });
                }
            }
        }
    }

    fn inspect_client(&self, machine: Machine) {
        let mut events = Vec::new();
        {
            let mut clients = self.clients.borrow_mut();
            let now = self.world.now();
            let here = clients.iter_mut().enumerate();
            for (number, process) in here.filter(|(_, process)| process.machine == machine) {
                process.holds.retain(|hold| hold.guard.strong_count() > 0);
                for hold in &mut process.holds {
                    let Some(guard) = hold.guard.upgrade() else { continue };
                    let seen = self.world.as_machine(machine, || guard.peek());
                    let (client, lock, token) = (number as u32, hold.lock, hold.token);
                    let until = seen.map_or(now, |(until, _)| self.world.reaches(machine, until));
                    let valid = seen.is_some_and(|(_, valid)| valid);
                    // A lost grant must not become valid again. A loss is
                    // recorded here only in that case: until then, the client
                    // may not have checked, and records the loss itself.
                    if valid && hold.lost {
                        events.push(Event::Lost { client, lock, token });
                    }
                    // True time is rounded to the nanosecond.
                    let moved = hold.until.is_none_or(|before| until.abs_diff(before) > 1);
                    if hold.until.is_none() || (valid && (moved || hold.lost)) {
                        hold.until = Some(until);
                        events.push(Event::Valid { client, lock, token, until });
                    }
                    hold.lost = !valid;
                }
            }
        }
        for event in events {
            self.record(event);
        }
    }
}
