//! Index of campaigns, proclaims and observed states.

use super::{
    super::{About, ObservedState, Observer, Point, Proclaim},
    Builder, Op,
    client::{ANSWERED, NOT_GRANTED, UNKNOWN},
};

const REUSED: &str = "duplicate operation number";
const NO_OBSERVER: &str = "no observer has this number";

impl<'h> Builder<'h, '_> {
    pub(super) fn campaign(&mut self, point: Point, op: u64, value: &'h str) -> About {
        let Some(&Op::Acquire(acquire)) = self.ops.get(&op) else {
            return self.malformed(point.pos, [], UNKNOWN);
        };
        if self.index.acquires[acquire].answer.is_some() {
            return self.malformed(point.pos, [], ANSWERED);
        }
        self.index.acquires[acquire].campaign = Some((value, point));
        self.index.has_elections = true;
        About::Acquire(acquire)
    }

    pub(super) fn proclaim(
        &mut self,
        point: Point,
        op: u64,
        holder: (u32, u32, u64),
        value: &'h str,
    ) -> About {
        let (client, lock, token) = holder;
        let Some(hold) = self.held(point, client, lock, token) else {
            return self.malformed(point.pos, [], NOT_GRANTED);
        };
        let proclaim = self.index.proclaims.len();
        if self.ops.insert(op, Op::Proclaim(proclaim)).is_some() {
            self.malformed(point.pos, [], REUSED);
        }
        self.index.proclaims.push(Proclaim { hold, value, invoked: point, acknowledged: None });
        self.index.has_elections = true;
        About::Hold(hold)
    }

    /// Records the response to a proclaim. Only an acknowledgment guarantees visibility.
    pub(super) fn proclaimed(&mut self, point: Point, op: u64, acknowledged: bool) -> About {
        let Some(&Op::Proclaim(proclaim)) = self.ops.get(&op) else {
            return self.malformed(point.pos, [], "no proclaim has this number");
        };
        let proclaim = &mut self.index.proclaims[proclaim];
        let hold = proclaim.hold;
        if proclaim.acknowledged.is_some() {
            return self.malformed(point.pos, [], "this proclaim was answered before");
        }
        if acknowledged {
            proclaim.acknowledged = Some(point);
        }
        About::Hold(hold)
    }

    pub(super) fn observer(
        &mut self,
        point: Point,
        op: u64,
        daemon: u32,
        lock: u32,
        is_stream: bool,
    ) -> About {
        let place = self.place(lock, daemon);
        let observer = self.index.observers.len();
        if self.ops.insert(op, Op::Observer(observer)).is_some() {
            self.malformed(point.pos, [], REUSED);
        }
        let states = Vec::new();
        let observer = Observer { place, is_stream, opened: point, ended: None, states };
        self.index.observers.push(observer);
        About::Nothing
    }

    pub(super) fn observed(&mut self, op: u64, state: ObservedState<'h>) -> About {
        let point = state.point;
        let Some(&Op::Observer(observer)) = self.ops.get(&op) else {
            return self.malformed(point.pos, [], NO_OBSERVER);
        };
        let observer = &mut self.index.observers[observer];
        if observer.ended.is_some() || !(observer.is_stream || observer.states.is_empty()) {
            return self.malformed(point.pos, [], "this observer was answered before");
        }
        observer.states.push(state);
        self.index.has_elections = true;
        About::Nothing
    }

    pub(super) fn observe_ended(&mut self, point: Point, op: u64) -> About {
        let Some(&Op::Observer(observer)) = self.ops.get(&op) else {
            return self.malformed(point.pos, [], NO_OBSERVER);
        };
        self.index.observers[observer].ended.get_or_insert(point);
        About::Nothing
    }
}
