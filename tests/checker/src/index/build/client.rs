//! Index of the requests, responses and actions of clients.

use super::{
    super::{About, Acquire, Answer, End, EndCause, Gone, Hold, Place, Point},
    Builder, Op,
};

pub(super) const NOT_GRANTED: &str = "this client was never granted this token of this lock";
pub(super) const UNKNOWN: &str = "no acquire has this number";
pub(super) const ANSWERED: &str = "this acquire was answered before";

impl Builder<'_, '_> {
    pub(super) fn acquire(
        &mut self,
        point: Point,
        op: u64,
        client: u32,
        daemon: u32,
        lock: u32,
    ) -> About {
        self.check_alive(point, client);
        let place = self.place(lock, daemon);
        let Place { lock, daemon, .. } = self.index.places[place];
        let acquire = self.index.acquires.len();
        if self.ops.insert(op, Op::Acquire(acquire)).is_some() {
            self.malformed(point.pos, [], "duplicate operation number");
        }
        let of = self.clients.entry(client).or_default();
        of.acquires.push(acquire);
        if of.broken.is_some() {
            self.index.daemons[daemon].broken.get_or_insert(point);
        }
        // No client can wait at a dead daemon.
        let gone = self.index.daemons[daemon].died.map(|_| Gone { point, client: false });
        self.index.acquires.push(Acquire {
            client,
            lock,
            place,
            invoked: point,
            queued: None,
            answer: None,
            gone,
            absent: None,
            campaign: None,
        });
        self.index.locks[lock].acquires.push(acquire);
        self.index.places[place].acquires.push(acquire);
        self.index.daemons[daemon].acquires.push(acquire);
        About::Acquire(acquire)
    }

    pub(super) fn queued(&mut self, point: Point, op: u64) -> About {
        let Some(&Op::Acquire(acquire)) = self.ops.get(&op) else {
            return self.malformed(point.pos, [], UNKNOWN);
        };
        self.check_alive(point, self.index.acquires[acquire].client);
        if self.index.acquires[acquire].answer.is_some() {
            return self.malformed(point.pos, [], ANSWERED);
        }
        self.index.acquires[acquire].queued.get_or_insert(point);
        About::Acquire(acquire)
    }

    pub(super) fn granted(&mut self, point: Point, op: u64, token: u64) -> About {
        let Some(&Op::Acquire(acquire)) = self.ops.get(&op) else {
            return self.malformed(point.pos, [], UNKNOWN);
        };
        let Acquire { client, lock, invoked, answer, .. } = self.index.acquires[acquire];
        self.check_alive(point, client);
        if answer.is_some() {
            return self.malformed(point.pos, [], ANSWERED);
        }
        let hold = self.index.holds.len();
        let of = self.clients.entry(client).or_default();
        of.holds.push(hold);
        let died = of.died.map(|point| End { point, cause: EndCause::Died });
        let freed = of.freed.remove(&(lock, token));
        let freed = freed.then_some(End { point, cause: EndCause::Freed });
        let duplicate = self.tokens.insert((lock, token), hold);
        self.index.duplicates.extend(duplicate.map(|duplicate| (duplicate, hold)));
        self.index.locks[lock].holds.push(hold);
        self.index.holds.push(Hold {
            client,
            lock,
            token,
            acquire,
            granted: point,
            invoked,
            valid: Vec::new(),
            end: died.or(freed),
            late_release: None,
            released: None,
            died: of.died,
            broken: of.broken,
            segments: Vec::new(),
            valid_to: point,
            same_token: duplicate,
        });
        self.index.acquires[acquire].answer = Some(Answer::Granted { point, hold });
        About::Acquire(acquire)
    }

    pub(super) fn refused(&mut self, point: Point, op: u64, faulty: bool, canceled: bool) -> About {
        let Some(&Op::Acquire(acquire)) = self.ops.get(&op) else {
            return self.malformed(point.pos, [], UNKNOWN);
        };
        if self.index.acquires[acquire].answer.is_some() {
            return self.malformed(point.pos, [], ANSWERED);
        }
        self.index.acquires[acquire].answer = Some(Answer::Refused { point, faulty, canceled });
        About::Acquire(acquire)
    }

    pub(super) fn released(&mut self, point: Point, op: u64) -> About {
        let Some(Op::Release { hold, done }) = self.ops.get_mut(&op) else {
            return self.malformed(point.pos, [], "no release has this number");
        };
        let hold = *hold;
        if std::mem::replace(done, true) {
            return self.malformed(point.pos, [], "this release was answered before");
        }
        self.check_alive(point, self.index.holds[hold].client);
        self.index.holds[hold].released.get_or_insert(point);
        About::Hold(hold)
    }

    pub(super) fn end(&mut self, hold: usize, end: End) -> About {
        let hold_of = &mut self.index.holds[hold];
        if hold_of.end.is_some_and(|end| end.cause == EndCause::Lost)
            && end.cause == EndCause::Released
        {
            hold_of.late_release.get_or_insert(end.point);
        }
        hold_of.end.get_or_insert(end);
        About::Hold(hold)
    }

    pub(super) fn detached(&mut self, point: Point, client: u32) -> About {
        let client = self.clients.entry(client).or_default();
        if client.died.is_some() {
            for &acquire in &client.acquires {
                self.index.acquires[acquire].absent.get_or_insert(point);
            }
        }
        About::Nothing
    }

    pub(super) fn freed(&mut self, point: Point, client: u32, lock: u32, token: u64) -> About {
        let lock = self.lock(lock);
        if let Some(hold) = self.hold(client, lock, token) {
            // The daemon frees the grant of a dead client before its session expires.
            let known = &mut self.index.holds[hold];
            if known.valid.last().is_none_or(|valid| valid.until > point.at) {
                known.end.take_if(|end| end.cause == EndCause::Died);
            }
            return self.end(hold, End { point, cause: EndCause::Freed });
        }
        self.clients.entry(client).or_default().freed.insert((lock, token));
        About::Nothing
    }

    pub(super) fn client_died(&mut self, point: Point, client: u32) -> About {
        let client = self.clients.entry(client).or_default();
        if let Some(died) = client.died {
            return self.malformed(point.pos, [died.pos], "this client is dead already");
        }
        client.died = Some(point);
        for &acquire in &client.acquires {
            let acquire = &mut self.index.acquires[acquire];
            if acquire.answer.is_none() {
                acquire.gone.get_or_insert(Gone { point, client: true });
            }
        }
        for &hold in &client.holds {
            let hold = &mut self.index.holds[hold];
            hold.died = Some(point);
            hold.end.get_or_insert(End { point, cause: EndCause::Died });
        }
        About::Nothing
    }

    /// Returns the client's hold. Reports an entry of a dead client as malformed.
    pub(super) fn held(
        &mut self,
        point: Point,
        client: u32,
        lock: u32,
        token: u64,
    ) -> Option<usize> {
        self.check_alive(point, client);
        let lock = self.lock(lock);
        self.hold(client, lock, token)
    }

    pub(super) fn hold(&self, client: u32, lock: usize, token: u64) -> Option<usize> {
        let mut hold = self.tokens.get(&(lock, token)).copied();
        while let Some(at) = hold {
            if self.index.holds[at].client == client {
                break;
            }
            hold = self.index.holds[at].same_token;
        }
        hold
    }

    pub(super) fn check_alive(&mut self, point: Point, client: u32) {
        let died = self.clients.get(&client).and_then(|client| client.died);
        if let Some(died) = died.filter(|died| self.after(*died, point)) {
            self.malformed(point.pos, [died.pos], "this client is dead");
        }
    }
}
