//! Registry of mutants: the broken rules of `leasehold_rules` and the wrappers
//! of this crate.
//!
//! A wrapped mutant is a broken store, transport, stream or directory, which the
//! simulation puts around the product while [`is`] returns true for it.

use std::{cell::Cell, fmt};

use leasehold_rules::mutant::{self, Mutant};

macro_rules! wrapped_mutants {
    ($($name:ident, $rule:literal, $key:literal, $what:literal;)*) => {
        /// Mutant that wraps a part of the product.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Wrapped {
            $(#[doc = $what] $name,)*
        }

        impl Wrapped {
            /// All wrapped mutants, in the order of definition.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Safety rule or invariant that the mutant breaks.
            #[must_use]
            pub const fn rule(self) -> &'static str {
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

wrapped_mutants! {
    SameLeaseId, "1", "1", "a daemon uses the same lease id for every acquisition";
    WriteWithoutMatch, "2", "2a", "records are written without If-Match";
    GrantBeforeWrite, "2", "2b", "the lock is granted without its tokens having been stored";
    InvalidRecordIsNew, "2", "2e", "an invalid record counts as missing, and tokens restart";
    ClockStopsInSuspend, "5", "5a", "the clock stops during suspend";
    UnknownRenewExtends, "7", "7a", "an unknown renewal outcome extends the lease";
    UnknownWriteSucceeds, "7", "7b", "an unknown outcome of a record write counts as success";
    LostIsNotReleased, "7", "7c", "a lease lost to a break is not released";
    ResumedEpoch, "10", "10", "a restarted daemon continues the token range of its predecessor";
    LimitsLeftOut, "11", "11c", "keep-alive answers omit the grants that end with their lease";
    ReleaseByName, "12", "12", "a repeated release frees the current holder's grant";
    TakeoverAfterCrash, "13", "13a", "a restarted daemon breaks the leases of its predecessor";
    LeasesKeptAtShutdown, "13", "13c", "a daemon does not release its leases at shutdown";
    TtlNotRecorded, "13", "e1", "embedded: a session opens before its ttl is recorded";
    NoCrashWait, "13", "e2", "embedded: after a crash, locks are granted at once";
    ReservedLate, "10", "e3", "embedded: tokens are issued before their reservation is durable";
    WriteByPath, "10", "e4", "embedded: writes go to the directory that is currently at the path";
    IdentityUnchecked, "13", "e5", "embedded: a daemon keeps granting after its directory was replaced";
    DirectoryNotSynced, "13", "e6", "embedded: the rename of the state file is not synced";
    FileNotSynced, "13", "e7", "embedded: the state file is renamed before it is synced";
    HighestTokenIgnored, "10", "e8", "embedded: a start ignores the highest token on disk";
    WrongValue, "E1", "o1", "the store publishes another value than the leader's";
    FormerLeader, "E4", "o2", "a publication of the former leader is repeated after the new one";
    NotWritten, "E3", "o3", "a publication is acknowledged but never written";
    WrittenLater, "E3", "o4", "a publication is acknowledged two seconds before it is written";
    StaleRead, "E4", "o5", "a read returns the result of the previous read";
    ResumeWithoutGrants, "11", "o6", "grants are missing from a resume";
    CrossedGrantIgnored, "11", "o7", "a grant that crosses its cancel is ignored";
    ValidityNotShortened, "11", "o8", "keep-alive answers omit the end of a grant after a step-down request";
    ContinueWithoutDate, "2", "2i", "an old record is continued while the service's clock is days ahead";
}

/// Mutant of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Broken {
    /// Broken rule.
    Rule(Mutant),
    /// Wrapper in this crate.
    Wrapped(Wrapped),
}

impl Broken {
    /// Returns all mutants: numbered rules in the order of their keys, then the
    /// others.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let rules = Mutant::ALL.iter().copied().map(Self::Rule);
        let wrapped = Wrapped::ALL.iter().copied().map(Self::Wrapped);
        let mut all: Vec<_> = rules.chain(wrapped).collect();
        all.sort_by_key(|broken| {
            let key = broken.key();
            let number = key.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
            let number = number.parse().unwrap_or(u32::MAX);
            (number, if number == u32::MAX { "" } else { key })
        });
        all
    }

    /// Returns the mutant with this key.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::all().into_iter().find(|broken| broken.key() == key)
    }

    /// Safety rule or invariant that the mutant breaks.
    #[must_use]
    pub fn rule(self) -> String {
        match self {
            Self::Rule(mutant) => mutant.rule().to_string(),
            Self::Wrapped(mutant) => mutant.rule().to_owned(),
        }
    }

    /// Name on the command line and in `seeds.txt`.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Rule(mutant) => mutant.key(),
            Self::Wrapped(mutant) => mutant.key(),
        }
    }

    /// Description of the defect.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::Rule(mutant) => mutant.what(),
            Self::Wrapped(mutant) => mutant.what(),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.key(), self.what())
    }
}

thread_local! {
    static WRAPPED: Cell<Option<Wrapped>> = const { Cell::new(None) };
}

/// Returns whether this wrapped mutant is active on this thread.
#[must_use]
pub fn is(mutant: Wrapped) -> bool {
    WRAPPED.get() == Some(mutant)
}

/// Activates one mutant on this thread, or none.
pub fn set(broken: Option<Broken>) {
    let (rule, wrapped) = match broken {
        None => (None, None),
        Some(Broken::Rule(mutant)) => (Some(mutant), None),
        Some(Broken::Wrapped(mutant)) => (None, Some(mutant)),
    };
    mutant::set(rule);
    WRAPPED.set(wrapped);
}
