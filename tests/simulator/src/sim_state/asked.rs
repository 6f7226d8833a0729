//! What clients ask for, of which daemon, and what ends that.

use leasehold_checker::Event;
use leasehold_types::LockName;

use crate::world::{Machine, Nanos, SECOND};

use super::{Hold, Pending, Process, SimState, lock_name};

/// How long a client may take to find a daemon that has begun.
const FOUND: Nanos = 10 * SECOND;

impl SimState {
    /// The clock of this machine is worse than what is assumed from here on: that
    /// of a client, or that of the daemon of some.
    pub fn clock_breaks(&self, machine: Machine) {
        self.broken.borrow_mut().push(machine);
        let clients = self.clients.borrow().len() as u32;
        (0..clients).for_each(|client| self.note_clock(client));
    }

    /// Notes that a client has to do with a clock that is worse than what is assumed,
    /// if it has.
    pub fn note_clock(&self, client: u32) {
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

    /// A client asks for a lock: what it is to know that by.
    pub fn acquire(&self, client: u32, lock: u32, campaigns: bool) -> (u64, Option<String>) {
        let ticket = self.next_op();
        // No two are alike, so that it is known whose value an observer is shown.
        let value = campaigns.then(|| format!("campaign {ticket}"));
        let place = self.clients.borrow()[client as usize].place;
        let daemon = self.places.borrow()[place].latest;
        let asked = self.ask(client, lock, daemon, place, value.as_deref());
        let pending = Pending { ticket, asked, lock, value: value.clone() };
        self.clients.borrow_mut()[client as usize].pending.push(pending);
        (ticket, value)
    }

    /// Whoever asks a daemon that is stopping is refused at once, and finds another.
    fn ask(
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

    /// What was refused because a daemon stops was granted all the same: its number
    /// in the history.
    pub fn ask_late(&self, client: u32, lock: u32, value: Option<&str>) -> u64 {
        let place = self.clients.borrow()[client as usize].place;
        let daemon = self.places.borrow()[place].latest;
        self.record_acquire(client, lock, daemon, value)
    }

    /// What a client asks for is answered: its number in the history, if it is
    /// there.
    pub fn answered(&self, client: u32, ticket: u64) -> Option<u64> {
        let pending = {
            let pending = &mut self.clients.borrow_mut()[client as usize].pending;
            let nth = pending.iter().position(|pending| pending.ticket == ticket);
            nth.map(|nth| pending.swap_remove(nth))
        };
        pending?.asked.map(|(op, _)| op)
    }

    /// A client asks for something that it is told to wait for.
    pub fn queued(&self, client: u32, ticket: u64) {
        let asked = {
            let clients = self.clients.borrow();
            let mut pending = clients[client as usize].pending.iter();
            pending.find(|pending| pending.ticket == ticket).and_then(|pending| pending.asked)
        };
        if let Some((op, _)) = asked {
            self.record(Event::Queued { op });
        }
    }

    /// A client has turned to another daemon: what it asked the one before for,
    /// it asks this one for.
    pub fn turned(&self, client: u32, daemon: u32) {
        let place = self.clients.borrow()[client as usize].place;
        self.each_pending(client, |sim, pending| match pending.asked {
            Some((_, before)) if before == daemon => {}
            _ => {
                sim.give_up(pending, "asked another daemon");
                let value = pending.value.as_deref();
                pending.asked = sim.ask(client, pending.lock, daemon, place, value);
            }
        });
        self.note_clock(client);
    }

    /// The daemon of a place refuses all who wait there, because it stops. Says
    /// whether some may have been granted something that they have not heard of.
    pub fn stops(&self, place: usize) -> bool {
        self.places.borrow_mut()[place].stopping = true;
        let clients = self.clients.borrow().len() as u32;
        let mut unclear = false;
        for client in 0..clients {
            if self.clients.borrow()[client as usize].place != place {
                continue;
            }
            let connections = self.connections.borrow();
            if connections.iter().any(|known| known.client == client && known.brings_grant()) {
                unclear = true;
            } else {
                self.each_pending(client, |sim, pending| {
                    sim.give_up(pending, "its daemon stops");
                });
            }
        }
        unclear
    }

    /// A client closes its session, and goes on under another number.
    pub fn closes(&self, client: u32) -> u32 {
        let (machine, place) = {
            let process = &mut self.clients.borrow_mut()[client as usize];
            process.closed = true;
            // With it goes all that was granted in it, whichever hand has it.
            for Hold { lock, token, lost, .. } in &mut process.holds {
                *lost = true;
                self.record(Event::Lost { client, lock: *lock, token: *token });
            }
            (process.machine, process.place)
        };
        self.each_pending(client, |sim, pending| sim.give_up(pending, "closed its session"));
        self.enrol(machine, place)
    }

    /// Whether the daemon of a client has a grant with this token, neither lost nor ending.
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

    /// The number of a new session.
    pub fn enrol(&self, machine: Machine, place: usize) -> u32 {
        let number = {
            let mut clients = self.clients.borrow_mut();
            let (holds, pending) = (Vec::new(), Vec::new());
            clients.push(Process { machine, place, holds, pending, closed: false });
            clients.len() as u32 - 1
        };
        self.note_clock(number);
        number
    }

    /// Whether a client's daemon, or the client itself, is the reason why an acquire
    /// comes to nothing: there is none, or it was told to stop, or it is so new that
    /// the client has yet to find it; or the client has closed its session.
    #[must_use]
    pub fn is_given_up(&self, client: u32) -> bool {
        let clients = self.clients.borrow();
        let client = &clients[client as usize];
        let place = &self.places.borrow()[client.place];
        if self.disk.borrow().is_unusable {
            return client.closed;
        }
        let found = place.daemon.is_some() && place.since + FOUND <= self.world.now();
        client.closed || place.stopping || !found
    }

    fn each_pending(&self, client: u32, act: impl Fn(&Self, &mut Pending)) {
        let mut pending = std::mem::take(&mut self.clients.borrow_mut()[client as usize].pending);
        pending.iter_mut().for_each(|pending| act(self, pending));
        self.clients.borrow_mut()[client as usize].pending = pending;
    }

    fn give_up(&self, pending: &mut Pending, why: &str) {
        if let Some((op, _)) = pending.asked.take() {
            self.record(Event::Refused { op, why: why.to_owned(), faulty: false, canceled: true });
        }
    }
}
