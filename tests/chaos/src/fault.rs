//! Faults of processes, links and the storage.

use leasehold_test_support::proxy::{self, Kind};
use std::{fmt, time::Duration};

use crate::{link::Passage, locks};

/// Fault; the plan states its duration.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// `kill -9`, then a new daemon.
    KillDaemon {
        slot: usize,
    },
    /// All daemons killed at once.
    KillAll,
    /// SIGTERM, then a new daemon after it has exited.
    DrainDaemon {
        slot: usize,
    },
    PauseDaemon {
        slot: usize,
    },
    /// Client process killed, then a new one.
    KillClients {
        process: usize,
    },
    PauseClients {
        process: usize,
    },
    /// Pause of the first client process in which a client is between its last
    /// check of the guard and its write.
    PauseBeforeWrite,
    PauseBoth {
        slot: usize,
        process: usize,
    },
    Storage {
        slot: usize,
        cut: StorageCut,
    },
    /// Storage cut off for all daemons.
    Outage {
        cut: StorageCut,
    },
    /// Fault of some storage calls of a daemon; `kind: None` means any kind.
    Calls {
        slot: usize,
        kind: Option<Kind>,
        fault: proxy::Fault,
        times: usize,
    },
    /// Cut of the link from one client process, or all, to a daemon.
    /// Afterwards, data in flight arrives late or, with `reset`, is lost.
    Link {
        slot: usize,
        process: Option<usize>,
        passage: Passage,
        reset: bool,
    },
    /// Break by an operator, through any daemon.
    Break {
        slot: usize,
        lock: u32,
    },
    /// Deletion of a lock's blob while it is not leased.
    DeleteIdle {
        lock: u32,
    },
    /// Break of a lease and deletion of its blob.
    DeleteHeld,
}

/// Kind of a cut between a daemon and its storage.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StorageCut {
    Refused,
    Silent,
    RequestsLost,
    AnswersLost,
}

impl Fault {
    /// Returns the name under which the fault is counted.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::KillDaemon { .. } => "daemon killed",
            Self::KillAll => "all daemons killed",
            Self::DrainDaemon { .. } => "daemon shut down",
            Self::PauseDaemon { .. } => "daemon paused",
            Self::KillClients { .. } => "clients killed",
            Self::PauseClients { .. } => "clients paused",
            Self::PauseBeforeWrite => "client paused between check and write",
            Self::PauseBoth { .. } => "daemon and clients paused",
            Self::Storage { cut, .. } => match cut {
                StorageCut::Refused => "storage: connections refused",
                StorageCut::Silent => "storage: silent in both directions",
                StorageCut::RequestsLost => "storage: requests lost",
                StorageCut::AnswersLost => "storage: answers lost, requests applied",
            },
            Self::Outage { cut, .. } => match cut {
                StorageCut::Refused => "storage of all daemons: connections refused",
                _ => "storage of all daemons: silent",
            },
            Self::Calls { fault, .. } => return format!("call: {}", call_fault_name(fault)),
            Self::Link { passage, .. } => match passage {
                Passage::Closed => "clients ↔ daemon: connections refused",
                Passage::Stalled | Passage::Open => "clients ↔ daemon: silent in both directions",
                Passage::ToDaemon => "clients ↔ daemon: answers lost",
                Passage::ToClients => "clients ↔ daemon: requests lost",
            },
            Self::Break { .. } => "lock broken by an operator",
            Self::DeleteIdle { .. } => "idle blob deleted",
            Self::DeleteHeld => "leased blob broken and deleted",
        }
        .to_owned()
    }

    /// Returns how long effects may follow after the planned end.
    pub(crate) fn late_effects(&self) -> Duration {
        match self {
            Self::Calls {
                fault:
                    proxy::Fault::Delay(length)
                    | proxy::Fault::DelayResponse(length)
                    | proxy::Fault::Duplicate { after: length },
                ..
            } => *length,
            _ => Duration::ZERO,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind())?;
        match self {
            Self::KillDaemon { slot }
            | Self::DrainDaemon { slot }
            | Self::PauseDaemon { slot }
            | Self::Storage { slot, .. } => write!(f, " (daemon {slot})"),
            Self::KillClients { process } | Self::PauseClients { process } => {
                write!(f, " (process {process})")
            }
            Self::PauseBoth { slot, process } => write!(f, " (daemon {slot}, process {process})"),
            Self::Calls { slot, kind, times, .. } => match kind {
                Some(kind) => write!(f, " (daemon {slot}, {times} × {kind:?})"),
                None => write!(f, " (daemon {slot}, {times} of any kind)"),
            },
            Self::Link { slot, process, reset, .. } => {
                let end = if *reset { "then reset" } else { "then late" };
                match process {
                    Some(process) => write!(f, " (process {process}, daemon {slot}, {end})"),
                    None => write!(f, " (all, daemon {slot}, {end})"),
                }
            }
            Self::Break { slot, lock } => {
                write!(f, " ({} through daemon {slot})", locks::name(*lock))
            }
            Self::DeleteIdle { lock } => write!(f, " ({})", locks::name(*lock)),
            Self::KillAll | Self::Outage { .. } | Self::PauseBeforeWrite | Self::DeleteHeld => {
                Ok(())
            }
        }
    }
}

fn call_fault_name(fault: &proxy::Fault) -> String {
    match fault {
        proxy::Fault::Delay(_) => "applied late".to_owned(),
        proxy::Fault::DelayResponse(_) => "answered late".to_owned(),
        proxy::Fault::DropResponse => "applied, connection closed".to_owned(),
        proxy::Fault::Reset => "connection reset".to_owned(),
        proxy::Fault::Swallow => "never answered".to_owned(),
        proxy::Fault::Refuse(refusal) => format!("{} {}", refusal.status, refusal.code),
        proxy::Fault::ApplyThenRefuse(refusal) => format!("applied, but {}", refusal.status),
        proxy::Fault::Duplicate { .. } => "applied twice".to_owned(),
        other => format!("{other:?}"),
    }
}
