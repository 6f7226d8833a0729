//! What is seen of storage, daemons and clients, and noted when it changes.

use leasehold_checker::Event;
use leasehold_simulated_storage::storage::{Act, Answer, Call, Storage};

use crate::{
    broken::{self, Wrapped},
    world::{Machine, Nanos},
};

use super::{Running, SimState, blob_path, count, lock_name, lock_of, record};

impl SimState {
    /// Carries a call out at the storage, and notes what that changes.
    pub fn apply(&self, daemon: Option<u32>, call: &Call) -> Answer {
        if broken::is(Wrapped::TakeOverAfterCrash) {
            self.take_over(daemon, call);
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
        // Without a date that is absurd to compare with, the store can't refuse.
        if broken::is(Wrapped::ContinueWithoutDate)
            && date > self.right_date() + 24 * 60 * 60
            && before.as_ref().is_some_and(|(_, token)| *token > 0)
        {
            answer.date = 1;
        }
        let kind = std::mem::discriminant(&call.act);
        self.mix(&(daemon, kind, &call.path, &call.if_match, &call.lease));
        self.mix(&(answer.status, answer.code, &answer.etag, answer.lease_state));
        self.trace(|| {
            let (status, code) = (answer.status, answer.code);
            format!("    daemon {daemon:?}: {:?} {} -> {status} {code}", call.act, call.path)
        });
        let Some(lock) = lock_of(&call.path) else { return answer };
        if let (Act::Acquire { id, .. }, Some(daemon)) = (&call.act, daemon) {
            self.record.borrow_mut().ids.entry(id.clone()).or_insert(daemon);
        }
        let after = stored(&self.storage.borrow());
        match (&before, &after, daemon) {
            // Whoever notes something with a record leaves its token alone.
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
        self.note_lease(lock);
        answer
    }

    /// Mutant 13a: breaks the lease that a daemon is about to acquire, if an
    /// earlier daemon of the same place has it.
    fn take_over(&self, daemon: Option<u32>, call: &Call) {
        let (Some(daemon), Act::Acquire { .. }) = (daemon, &call.act) else { return };
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
            let act = Act::Break { within: Some(0) };
            let path = call.path.clone();
            self.apply(
                Some(daemon),
                &Call { path, act, if_match: None, if_absent: false, lease: None },
            );
        }
    }

    /// A call was carried out whose answer nobody waits for, perhaps long after it
    /// was made: a lease that came of it is nobody's, and must run out.
    pub fn unasked(&self, call: &Call, answer: &Answer) {
        let (Act::Acquire { id, .. } | Act::Renew { id }) = &call.act else { return };
        let until = {
            let storage = self.storage.borrow();
            let blob = storage.blob(&call.path).filter(|blob| blob.lease_id() == Some(id));
            blob.and_then(|blob| blob.leased_until(self.world.now()))
        };
        if let Some(until) = until.filter(|_| answer.status < 300) {
            let until = until + self.plan.habits.grace;
            let what = format!("a lease of nobody's until {until}");
            self.record(Event::Disturbed { what: what.clone() });
            self.world.at(until, move || record(Event::Undisturbed { what }));
        }
    }

    /// Notes who has the lease on a lock's blob, if that has changed.
    pub fn note_lease(&self, lock: u32) {
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

    /// Notes what the process on a machine counts on, if that has changed.
    pub fn look_at(&self, machine: Machine) {
        if self.world.is_paused(machine) {
            return;
        }
        let daemon = {
            let places = self.places.borrow();
            let mut running = places.iter().filter_map(|place| place.daemon.as_ref());
            running.find(|running| running.machine == machine).cloned()
        };
        match daemon {
            Some(daemon) => self.look_at_daemon(&daemon),
            None => self.look_at_client(machine),
        }
    }

    fn look_at_daemon(&self, daemon: &Running) {
        for lock in 0..self.plan.locks {
            let name = lock_name(lock);
            if let Some((lease, grant, waited)) = daemon.driver.lock_state(&name) {
                let state = (lease * 3 + grant) * 2 + u8::from(waited);
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
                    self.record(Event::LetGo { daemon: number, lock });
                }
            }
        }
    }

    fn look_at_client(&self, machine: Machine) {
        let mut news = Vec::new();
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
                    // What was lost is not to be valid again. Until then its program may
                    // not have looked: that it was lost by its deadline, the program says.
                    if valid && hold.lost {
                        news.push(Event::Lost { client, lock, token });
                    }
                    // True time is known to the nanosecond only.
                    let moved = hold.until.is_none_or(|before| until.abs_diff(before) > 1);
                    if hold.until.is_none() || (valid && (moved || hold.lost)) {
                        hold.until = Some(until);
                        news.push(Event::Valid { client, lock, token, until });
                    }
                    hold.lost = !valid;
                }
            }
        }
        for event in news {
            self.record(event);
        }
    }
}
