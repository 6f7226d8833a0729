//! Pending acquires of clients: which daemon serves them, and how they end.

use leasehold_checker::Event;
use leasehold_types::LockName;

use crate::world::{Machine, Nanos, SECOND};

use super::{Hold, Pending, Process, SimState, lock_name};

/// Time in which a client must connect to a new daemon.
const RECONNECT_TIME: Nanos = 10 * SECOND;

impl SimState {
    /// Marks a machine's clock as drifting beyond the tolerated rate. It
    /// affects the client on the machine, or the clients of the daemon on it.
    pub fn mark_clock_broken(&self, machine: Machine) {
        self.broken.borrow_mut().push(machine);
        let clients = self.clients.borrow().len() as u32;
        (0..clients).for_each(|client| self.record_broken_clock(client));
    }

    /// Records that a client is affected by such a clock, if it is.
    pub fn record_broken_clock(&self, client: u32) {
        let (machine, daemon) = {
            let client = &self.clients.borrow()[client as usize];
            let daemon = self.places.borrow()[client.place].daemon.as_ref().map(|d| d.machine);
            (client.machine, daemon)
        };
        let broken = self.broken.borrow();
        if self.world.is_alive(machine)
            && (broken.contains(&machine) || daemon.is_some_and(|daemon| broken.contains(&daemon)))
        {
            self.record(Event::ClockBroken { client });
        }
    }

    /// Records an acquire. Returns its ticket and the value of a campaign.
    pub fn acquire(&self, client: u32, lock: u32, campaigns: bool) -> (u64, Option<String>) {
        let ticket = self.next_op();
        // Values are unique, so that an observed value identifies its leader.
        let value = campaigns.then(|| format!("campaign {ticket}"));
        let place = self.clients.borrow()[client as usize].place;
        let daemon = self.places.borrow()[place].latest;
        let request = self.record_unless_stopping(client, lock, daemon, place, value.as_deref());
        let pending = Pending { ticket, request, lock, value: value.clone() };
        self.clients.borrow_mut()[client as usize].pending.push(pending);
        (ticket, value)
    }

    /// Records the acquire, unless the daemon is stopping: it refuses
    /// immediately, and the client finds another.
    fn record_unless_stopping(
        &self,
        client: u32,
        lock: u32,
        daemon: u32,
        place: usize,
        value: Option<&str>,
    ) -> Option<(u64, u32)> {
        if self.places.borrow()[place].stopping {
            return None;
        }
        Some((self.record_acquire(client, lock, daemon, value), daemon))
    }

    fn record_acquire(&self, client: u32, lock: u32, daemon: u32, value: Option<&str>) -> u64 {
        let op = self.next_op();
        self.record(Event::Acquire { op, client, daemon, lock });
        if let Some(value) = value {
            self.record(Event::Campaign { op, value: value.to_owned() });
        }
        op
    }

    /// Records an acquire that was granted although it was recorded as refused
    /// because its daemon is stopping. Returns its number in the history.
    pub fn record_late_acquire(&self, client: u32, lock: u32, value: Option<&str>) -> u64 {
        let place = self.clients.borrow()[client as usize].place;
        let daemon = self.places.borrow()[place].latest;
        self.record_acquire(client, lock, daemon, value)
    }

    /// Removes an acquire that was answered. Returns its number in the history,
    /// if it was recorded.
    pub fn take_answered(&self, client: u32, ticket: u64) -> Option<u64> {
        let pending = {
            let pending = &mut self.clients.borrow_mut()[client as usize].pending;
            let nth = pending.iter().position(|pending| pending.ticket == ticket);
            nth.map(|nth| pending.swap_remove(nth))
        };
        pending?.request.map(|(op, _)| op)
    }

    /// Records that an acquire is queued.
    pub fn record_queued(&self, client: u32, ticket: u64) {
        let request = {
            let clients = self.clients.borrow();
            let mut pending = clients[client as usize].pending.iter();
            pending.find(|pending| pending.ticket == ticket).and_then(|pending| pending.request)
        };
        if let Some((op, _)) = request {
            self.record(Event::Queued { op });
        }
    }

    /// Records that a client has connected to another daemon: its pending
    /// acquires move from the previous one.
    pub fn change_daemon(&self, client: u32, daemon: u32) {
        let place = self.clients.borrow()[client as usize].place;
        self.each_pending(client, |sim, pending| match pending.request {
            Some((_, before)) if before == daemon => {}
            _ => {
                sim.withdraw(pending, "asked another daemon");
                let value = pending.value.as_deref();
                pending.request =
                    sim.record_unless_stopping(client, pending.lock, daemon, place, value);
            }
        });
        self.record_broken_clock(client);
    }

    /// Records that the daemon of a place refuses all waiters because it is
    /// stopping. Returns whether a grant may still be in flight.
    pub fn refuse_waiters(&self, place: usize) -> bool {
        self.places.borrow_mut()[place].stopping = true;
        let clients = self.clients.borrow().len() as u32;
        let mut may_be_granted = false;
        for client in 0..clients {
            if self.clients.borrow()[client as usize].place != place {
                continue;
            }
            let connections = self.connections.borrow();
            if connections.iter().any(|known| known.client == client && known.has_grant_in_flight())
            {
                may_be_granted = true;
            } else {
                self.each_pending(client, |sim, pending| {
                    sim.withdraw(pending, "its daemon is stopping");
                });
            }
        }
        may_be_granted
    }

    /// Closes a client's session. Returns the client's new number.
    pub fn close_session(&self, client: u32) -> u32 {
        let (machine, place) = {
            let process = &mut self.clients.borrow_mut()[client as usize];
            process.closed = true;
            // All grants of the session are lost, in all tasks of the client.
            for Hold { lock, token, lost, .. } in &mut process.holds {
                *lost = true;
                self.record(Event::Lost { client, lock: *lock, token: *token });
            }
            (process.machine, process.place)
        };
        self.each_pending(client, |sim, pending| sim.withdraw(pending, "closed its session"));
        self.add_session(machine, place)
    }

    /// Returns whether the daemon of a client has a grant with this token that
    /// is neither lost nor ending.
    #[must_use]
    pub fn is_granted(&self, client: u32, lock: u32, token: u64) -> bool {
        let place = self.clients.borrow()[client as usize].place;
        let (Some(daemon), Ok(name)) = (self.running(place), LockName::parse("", &lock_name(lock)))
        else {
            return false;
        };
        let view = self.world.as_machine(daemon.machine, || daemon.driver.view(&name));
        view.held.is_some_and(|held| {
            held.session.is_some()
                && held.free_within.is_none()
                && held.token.is_some_and(|granted| granted.get() == token)
        })
    }

    /// Adds a session and returns its number.
    pub fn add_session(&self, machine: Machine, place: usize) -> u32 {
        let number = {
            let mut clients = self.clients.borrow_mut();
            let (holds, pending) = (Vec::new(), Vec::new());
            clients.push(Process { machine, place, holds, pending, closed: false });
            clients.len() as u32 - 1
        };
        self.record_broken_clock(number);
        number
    }

    /// Returns whether an acquire may fail without an error of the service:
    /// there is no daemon, it is stopping, or it is so new that the client may
    /// not be connected yet; or the client has closed its session.
    #[must_use]
    pub fn is_unserved(&self, client: u32) -> bool {
        let clients = self.clients.borrow();
        let client = &clients[client as usize];
        let place = &self.places.borrow()[client.place];
        if self.disk.borrow().is_unusable {
            return client.closed;
        }
        let is_reachable =
            place.daemon.is_some() && place.since + RECONNECT_TIME <= self.world.now();
        client.closed || place.stopping || !is_reachable
    }

    fn each_pending(&self, client: u32, act: impl Fn(&Self, &mut Pending)) {
        let mut pending = std::mem::take(&mut self.clients.borrow_mut()[client as usize].pending);
        pending.iter_mut().for_each(|pending| act(self, pending));
        self.clients.borrow_mut()[client as usize].pending = pending;
    }

    fn withdraw(&self, pending: &mut Pending, why: &str) {
        if let Some((op, _)) = pending.request.take() {
            self.record(Event::Refused { op, why: why.to_owned(), faulty: false, canceled: true });
        }
    }
}
