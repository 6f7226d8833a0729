//! Mutants: safety rules that a test can break, to show that it notices. Compiled
//! with the feature `simulation` only.

use std::cell::Cell;

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
    ForgetfulEpoch, 2, "2c", "a new blob's tokens begin at 1, not at the service's date";
    TrustOldRecord, 2, "2d", "a stored token lower than one seen before is believed";
    SameSecond, 2, "2f", "a new blob's tokens begin within the second of its creation";
    AbsurdDate, 2, "2g", "a service's clock that is absurdly ahead is believed";
    NewForgetsSeen, 2, "2h", "a new blob's tokens do not count what was seen before it was deleted";
    DeadlineFromAnswer, 3, "3a", "the deadline counts from the answer, not from the call";
    DeadlineWithoutMargin, 3, "3b", "the deadline leaves no margin and no room for drift";
    NoRoomForDrift, 3, "3c", "neither leases nor sessions leave room for drift, but margins are kept";
    EndlessCall, 4, "4", "calls of the storage have no time limit";
    BlindToLeaps, 5, "5b", "nobody looks whether the wall clock has run ahead";
    LeapForgotten, 5, "5c", "a jump of the wall clock does not shorten what is left of a lease";
    SmallLeapsForgotten, 5, "5d", "small leaps of the wall clock are forgotten every ten seconds";
    DeadlineBlindToLeaps, 5, "5e", "a guard's deadline does not count a leap of the wall clock";
    LooksWhenDue, 5, "5f", "a daemon looks at its clocks only when something is due";
    GivenByWallClock, 5, "5g", "after a leap of the wall clock, a broken lock is given on before its holder must let go";
    GrantWhenOver, 6, "6", "a grant starts on a lease whose deadline has passed";
    LingerForNobody, 7, "7d", "a lease that came when nobody waited any more is kept for a while";
    LingerAnew, 7, "7e", "whoever waits and gives up has a lease that nobody needs kept for longer";
    NonceUnread, 7, "7f", "whether a record was written is told by its token, not by its nonce";
    LostIsTakenBack, 8, "8", "a lost grant is valid again after the next keep-alive";
    AnyLeaseId, 9, "9", "the lease id in an answer is not compared";
    CountFromAnswer, 11, "11a", "the client counts from the answer, not from its keep-alive";
    FreedWithStream, 11, "11b", "a broken stream frees its session's grants at once";
    LossToldLate, 11, "11d", "whoever waits for a loss is not told that the deadline has come nearer";
    FencedOutlivesStream, 11, "11e", "a fenced session is not freed with its stream";
    AbsentIsServed, 11, "11f", "who waits without a stream is not passed over";
    HastyStop, 13, "13b", "a lock that is broken, or whose daemon stops, is free before its holder must have stopped";
    CollectAnyEpoch, 14, "14b", "idle blobs are deleted whatever their epoch";
    CollectByOneClock, 14, "14c", "idle blobs are deleted by the service's clock alone";
}

thread_local! {
    static BROKEN: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Reports whether this rule is broken on this thread.
#[must_use]
pub fn is(mutant: Mutant) -> bool {
    BROKEN.get() == Some(mutant)
}

/// Breaks one rule on this thread, or none.
pub fn set(mutant: Option<Mutant>) {
    BROKEN.set(mutant);
}
