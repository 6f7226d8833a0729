//! What is done to the processes, the ways between them and the storage.

use leasehold_test_support::proxy::{self, Kind};
use std::{fmt, time::Duration};

use crate::{link::Passage, locks};

/// Something that is done, for as long as the plan says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// kill -9, and another in its place afterwards.
    KillDaemon {
        slot: usize,
    },
    /// The same with all of them at once.
    KillAll,
    /// SIGTERM, and another in its place when it has ended.
    DrainDaemon {
        slot: usize,
    },
    StopDaemon {
        slot: usize,
    },
    /// A process of clients, as the following.
    KillClients {
        process: usize,
    },
    StopClients {
        process: usize,
    },
    /// The first process of clients of which one is between its last look at
    /// its guard and its write.
    StopInside,
    StopBoth {
        slot: usize,
        process: usize,
    },
    Storage {
        slot: usize,
        way: Way,
    },
    /// No daemon reaches its storage.
    Outage {
        way: Way,
    },
    /// Some calls of a daemon to its storage: `None`, of any kind.
    Calls {
        slot: usize,
        kind: Option<Kind>,
        fault: proxy::Fault,
        times: usize,
    },
    /// The way from one process of clients, or all, to a daemon. At its end,
    /// what was on the way arrives late or, with `reset`, never.
    Link {
        slot: usize,
        process: Option<usize>,
        passage: Passage,
        reset: bool,
    },
    /// By an operator, through any daemon.
    Break {
        slot: usize,
        lock: u32,
    },
    /// A lock's blob, while nobody has leased it.
    DeleteIdle {
        lock: u32,
    },
    /// A lock's blob with the lease that is on it.
    DeleteHeld,
}

/// How a daemon is cut off from its storage.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Refused,
    Silent,
    RequestsLost,
    AnswersLost,
}

impl Fault {
    /// As it is counted.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::KillDaemon { .. } => "daemon killed",
            Self::KillAll => "all daemons killed",
            Self::DrainDaemon { .. } => "daemon told to end",
            Self::StopDaemon { .. } => "daemon stopped",
            Self::KillClients { .. } => "clients killed",
            Self::StopClients { .. } => "clients stopped",
            Self::StopInside => "client stopped between look and write",
            Self::StopBoth { .. } => "daemon and clients stopped",
            Self::Storage { way, .. } => match way {
                Way::Refused => "storage: connections refused",
                Way::Silent => "storage: silent both ways",
                Way::RequestsLost => "storage: requests lost",
                Way::AnswersLost => "storage: answers lost, requests applied",
            },
            Self::Outage { way, .. } => match way {
                Way::Refused => "storage of all: connections refused",
                _ => "storage of all: silent both ways",
            },
            Self::Calls { fault, .. } => return format!("call: {}", shown(fault)),
            Self::Link { passage, .. } => match passage {
                Passage::Closed => "clients ↔ daemon: connections refused",
                Passage::Frozen | Passage::Open => "clients ↔ daemon: silent both ways",
                Passage::ToDaemon => "clients ↔ daemon: answers lost",
                Passage::ToClients => "clients ↔ daemon: requests lost",
            },
            Self::Break { .. } => "lock broken by an operator",
            Self::DeleteIdle { .. } => "idle blob deleted",
            Self::DeleteHeld => "leased blob broken and deleted",
        }
        .to_owned()
    }

    /// How much longer than planned its effects may come.
    pub(crate) fn aftermath(&self) -> Duration {
        match self {
            Self::Calls {
                fault:
                    proxy::Fault::Delay(length)
                    | proxy::Fault::DelayAnswer(length)
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
            | Self::StopDaemon { slot }
            | Self::Storage { slot, .. } => write!(f, " (daemon {slot})"),
            Self::KillClients { process } | Self::StopClients { process } => {
                write!(f, " (process {process})")
            }
            Self::StopBoth { slot, process } => write!(f, " (daemon {slot}, process {process})"),
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
            Self::KillAll | Self::Outage { .. } | Self::StopInside | Self::DeleteHeld => Ok(()),
        }
    }
}

fn shown(fault: &proxy::Fault) -> String {
    match fault {
        proxy::Fault::Delay(_) => "applied late".to_owned(),
        proxy::Fault::DelayAnswer(_) => "answered late".to_owned(),
        proxy::Fault::DropAnswer => "applied, connection closed".to_owned(),
        proxy::Fault::Reset => "connection reset".to_owned(),
        proxy::Fault::Swallow => "never answered".to_owned(),
        proxy::Fault::Answer(refusal) => format!("{} {}", refusal.status, refusal.code),
        proxy::Fault::ApplyThenAnswer(refusal) => format!("applied, but {}", refusal.status),
        proxy::Fault::Duplicate { .. } => "applied twice".to_owned(),
        other => format!("{other:?}"),
    }
}
