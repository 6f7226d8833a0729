//! Mutants: broken variants of safety rules, which prove that the tests detect a
//! violation. Compiled with the feature `simulation` only.

use std::cell::Cell;

macro_rules! mutants {
    ($($name:ident, $rule:literal, $key:literal, $what:literal;)*) => {
        /// Broken variant of a safety rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $(#[doc = $what] $name,)*
        }

        impl Mutant {
            /// All mutants, in the order of the rules.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Number of the safety rule that the mutant breaks.
            #[must_use]
            pub const fn rule(self) -> u8 {
                match self { $(Self::$name => $rule,)* }
            }

            /// Name on the command line and in `seeds.txt`.
            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }

            /// Description of the defect.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }
        }
    };
}

mutants! {
    NewBeginsAtOne, 2, "2c", "a new blob's tokens begin at 1, not at the storage clock";
    RegressedRecordAccepted, 2, "2d", "a stored token lower than one seen before is accepted";
    SameSecond, 2, "2f", "a new blob's tokens begin within the second of its creation";
    AnyDateAccepted, 2, "2g", "a storage clock far ahead of this machine's is used";
    NewIgnoresHighest, 2, "2h", "a new blob's tokens ignore tokens seen before its deletion";
    DeadlineFromAnswer, 3, "3a", "the lease deadline counts from the answer, not from the call";
    DeadlineWithoutMargin, 3, "3b", "the lease deadline has no margin and no room for drift";
    NoRoomForDrift, 3, "3c", "leases and sessions have no room for drift; margins are kept";
    CallWithoutTimeout, 4, "4", "storage calls have no timeout";
    JumpsUndetected, 5, "5b", "clock jumps are not detected";
    JumpForgotten, 5, "5c", "a clock jump does not shorten the validity of a lease";
    SmallJumpsForgotten, 5, "5d", "small clock jumps are forgotten every 10 s";
    HolderIgnoresJumps, 5, "5e", "a holder's deadline ignores clock jumps";
    ClockCheckedWhenDue, 5, "5f", "a daemon checks its clocks only when a timer is due";
    HolderKnowsJumps, 5, "5g", "after a clock jump, a broken lock is granted again before its holder's deadline";
    GrantOnExpiredLease, 6, "6", "a grant starts on a lease past its deadline";
    LingerWithoutGrant, 7, "7d", "a lease without a grant lingers";
    LingerExtended, 7, "7e", "a waiter that leaves without a grant extends the linger period";
    TokenIdentifiesRecord, 7, "7f", "a record is identified by its token, not by its nonce";
    LossReverted, 8, "8", "a lost grant is valid again after the next keep-alive";
    AnyLeaseId, 9, "9", "the lease ID in an answer is not compared";
    CountFromAnswer, 11, "11a", "the client counts a validity from the answer, not from its keep-alive";
    EverySessionEndsWithStream, 11, "11b", "the end of a stream ends its session at once";
    HolderNotWoken, 11, "11d", "an earlier deadline does not wake the task that waits for a loss";
    FencedOutlivesStream, 11, "11e", "a fenced session does not end with its stream";
    DisconnectedIsServed, 11, "11f", "a waiter without a stream is not passed over";
    FreeAtOnce, 13, "13b", "after a break or at shutdown, a lock is free before its holder must have stopped";
    CollectAnyEpoch, 14, "14b", "idle blobs are deleted regardless of their epoch";
    CollectByOneClock, 14, "14c", "idle blobs are deleted by the storage clock alone";
}

thread_local! {
    static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Returns whether `mutant` is active on this thread.
#[must_use]
pub fn is(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Activates a mutant on this thread, or none.
pub fn set(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}
