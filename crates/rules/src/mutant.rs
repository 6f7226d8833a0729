//! Safety rules that a test can break, to show that it would notice. In builds
//! without the feature `simulation` all rules hold, and nothing is left of this.

macro_rules! mutants {
    ($($name:ident, $rule:literal, $key:literal, $what:literal;)*) => {
        /// A way to break a safety rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $(#[doc = $what] $name,)*
        }

        impl Mutant {
            /// All of them, in the order of the rules.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The number of the rule that it breaks.
            #[must_use]
            pub const fn rule(self) -> u8 {
                match self { $(Self::$name => $rule,)* }
            }

            /// Its name on the command line.
            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }

            /// What is different with it.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }
        }
    };
}

mutants! {
    SameLeaseId, 1, "1", "a daemon uses the same lease id for every acquisition";
    ForgetfulEpoch, 2, "2c", "a new blob's tokens begin at 1, not at the service's date";
    TrustOldRecord, 2, "2d", "a stored token lower than one seen before is believed";
    SameSecond, 2, "2f", "a new blob's tokens begin within the second of its creation";
    AbsurdDate, 2, "2g", "a service's clock that is absurdly ahead is believed";
    NewForgetsSeen, 2, "2h", "a new blob's tokens do not count what was seen before it was deleted";
    DeadlineFromAnswer, 3, "3a", "the deadline counts from the answer, not from the call";
    DeadlineWithoutMargin, 3, "3b", "the deadline leaves no margin and no room for drift";
    NoRoomForDrift, 3, "3c", "neither leases nor sessions leave room for drift, but margins are kept";
    EndlessCall, 4, "4", "calls of the storage have no time limit";
    ClockStopsInSuspend, 5, "5a", "the clock stands still during suspend";
    BlindToLeaps, 5, "5b", "nobody looks whether the wall clock has run ahead";
    LeapForgotten, 5, "5c", "a leap of the wall clock by less than what is left changes nothing";
    SmallLeapsForgotten, 5, "5d", "small leaps of the wall clock are forgotten every ten seconds";
    DeadlineBlindToLeaps, 5, "5e", "a guard's deadline does not count a leap of the wall clock";
    LooksWhenDue, 5, "5f", "a daemon looks at its clocks only when something is due";
    GivenByWallClock, 5, "5g", "after a leap of the wall clock, a broken lock is given on before its holder must let go";
    GrantWhenOver, 6, "6", "a grant starts on a lease whose deadline has passed";
    LostIsNotReleased, 7, "7c", "a lease that was lost because it was broken is not released";
    LingerForNobody, 7, "7d", "a lease that came when nobody waited any more is kept for a while";
    LingerAnew, 7, "7e", "whoever waits and gives up has a lease that nobody needs kept for longer";
    NonceUnread, 7, "7f", "whether a record was written is told by its token, not by its nonce";
    LostIsTakenBack, 8, "8", "a lost grant is valid again after the next keep-alive";
    AnyLeaseId, 9, "9", "the lease id in an answer is not compared";
    ResumedEpoch, 10, "10", "a restarted daemon goes on with the tokens that its predecessor stored";
    CountFromAnswer, 11, "11a", "the client counts from the answer, not from its ping";
    FreedWithStream, 11, "11b", "a broken stream frees its session's grants at once";
    LimitsLeftOut, 11, "11c", "keep-alive answers do not say which grants end with their lease";
    LossToldLate, 11, "11d", "whoever waits for a loss is not told that the deadline has come nearer";
    FencedOutlivesStream, 11, "11e", "a fenced session is not freed with its stream";
    AbsentIsServed, 11, "11f", "who waits without a stream is not passed over";
    ReleaseByName, 12, "12", "a repeated release frees whoever holds the lock by then";
    TakeOverAfterCrash, 13, "13a", "a restarted daemon breaks the leases of its predecessor";
    HastyStop, 13, "13b", "a daemon that stops frees its locks before its holders must have let go";
    StopWithLeases, 13, "13c", "a daemon that stops does not release its leases";
    CollectAnyEpoch, 14, "14b", "idle blobs are deleted whatever their epoch";
    CollectByOneClock, 14, "14c", "idle blobs are deleted by the service's clock alone";
}

#[cfg(feature = "simulation")]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static BROKEN: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether this rule is broken on this thread.
    #[must_use]
    pub fn is(mutant: Mutant) -> bool {
        BROKEN.get() == Some(mutant)
    }

    /// Breaks one rule on this thread, or none.
    pub fn set(mutant: Option<Mutant>) {
        BROKEN.set(mutant);
    }
}

#[cfg(feature = "simulation")]
pub use switch::{is, set};

/// Whether this rule is broken: never.
#[cfg(not(feature = "simulation"))]
#[must_use]
pub const fn is(_: Mutant) -> bool {
    false
}
