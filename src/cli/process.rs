//! What is particular to Unix: signals, process groups, child processes and
//! the terminal. The only such place of the command line.

mod orphans;

use std::{
    fs::File,
    future::poll_fn,
    io::{self, IsTerminal},
    path::PathBuf,
    task::Poll,
};

use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, kill, killpg, raise},
        wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    },
    unistd::{Pid, User, gethostname, getpgrp, getppid, getuid, tcgetpgrp, tcsetpgrp},
};
use tokio::signal::unix::{self, SignalKind};

pub(super) use self::orphans::{Awaited, adopt_orphans, reap_orphans, reap_strays};
pub(super) use nix::sys::signal::Signal;

/// Signals that arrive for this process, in no particular order.
#[derive(Debug)]
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Listens to these, except for those that were ignored when this process
    /// started, as by `nohup`: they stay ignored, here and in the command.
    pub(super) fn listen(wanted: &[Signal]) -> io::Result<Self> {
        let ignored = ignored();
        let heard = wanted.iter().copied().filter(|signal| !ignored.contains(*signal));
        let listen =
            |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
        heard.map(listen).collect::<io::Result<_>>().map(Self)
    }

    /// The next one. Cancel-safe.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Those that have arrived, each once however often it did. Does not wait.
    pub(super) async fn arrived(&mut self) -> Vec<Signal> {
        poll_fn(|context| {
            let ready = self.0.iter_mut().filter_map(|(signal, stream)| {
                stream.poll_recv(context).is_ready().then_some(*signal)
            });
            Poll::Ready(ready.collect())
        })
        .await
    }
}

/// The signals that ask a daemon to stop. A container's first process may have
/// been started with them ignored; they count all the same.
#[derive(Debug)]
pub(super) struct StopSignals(Signals);

impl StopSignals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self(Signals(vec![
            (Signal::SIGTERM, unix::signal(SignalKind::terminate())?),
            (Signal::SIGINT, unix::signal(SignalKind::interrupt())?),
        ])))
    }

    /// The next one. Cancel-safe.
    pub(super) async fn next(&mut self) -> Signal {
        self.0.next().await
    }
}

/// The signals that this process was started to ignore, as far as the system
/// tells.
fn ignored() -> SigSet {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    Signal::iterator().filter(|signal| mask & (1 << (*signal as i32 - 1)) != 0).collect()
}

/// Keeps every signal that can be kept away from this thread, and from those
/// that it starts.
pub(super) fn block_signals() -> io::Result<()> {
    Ok(SigSet::all().thread_block()?)
}

/// Stops this process until it is continued.
pub(super) fn stop_self() -> io::Result<()> {
    Ok(raise(Signal::SIGSTOP)?)
}

/// Stops this process and its group until they are continued: a script that
/// waits for us stands still with us, and its shell sees it.
pub(super) fn stop_own_group() -> io::Result<()> {
    Ok(kill(Pid::from_raw(0), Signal::SIGSTOP)?)
}

/// The parent's process id.
pub(super) fn parent() -> u32 {
    getppid().as_raw().unsigned_abs()
}

/// This program, for another process of it: also after an upgrade has replaced
/// its file.
pub(super) fn this_program() -> io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { Ok(running) } else { std::env::current_exe() }
}

/// The user and the machine, as in `ann@web-1`.
pub(super) fn who() -> String {
    let user = User::from_uid(getuid()).ok().flatten().map(|user| user.name);
    let user = user.unwrap_or_else(|| format!("uid {}", getuid()));
    let host = gethostname().map(|host| host.to_string_lossy().into_owned());
    format!("{user}@{}", host.unwrap_or_else(|_| "unknown".to_owned()))
}

/// A process group, never our own or everybody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group(Pid);

impl Group {
    /// The group that is led by the process of this id. `None` for ids that
    /// would mean something else to `kill`.
    pub(super) fn of(leader: u32) -> Option<Self> {
        let id = i32::try_from(leader).ok().filter(|id| *id > 1)?;
        Some(Self(Pid::from_raw(id))).filter(|group| group.0 != getpgrp())
    }

    /// The id of its leader.
    pub(super) fn id(self) -> u32 {
        self.0.as_raw().unsigned_abs()
    }

    /// Sends a signal to every member. A group that has none left is no error.
    pub(super) fn signal(self, signal: Signal) {
        let _ = killpg(self.0, signal);
    }

    /// Whether it has no members any more. Who has ended stays one until it is
    /// reaped.
    pub(super) fn is_gone(self) -> bool {
        killpg(self.0, None) == Err(Errno::ESRCH)
    }
}

/// What became of a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildState {
    /// It runs, or nothing new is known.
    Running,
    /// It stands still because of this signal.
    Stopped(Signal),
    /// It ended with this code.
    Exited(i32),
    /// It died of this signal.
    Killed(Signal),
}

/// Looks what became of a child. Once it has ended, its id may belong to
/// somebody else: don't ask again.
pub(super) fn look_at(child: u32) -> io::Result<ChildState> {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
    Ok(state_of(waitpid(pid_of(child)?, Some(flags))?))
}

/// The same, but leaves a child that has ended as it is: its id stays its own,
/// and that of its group.
pub(super) fn glance_at(child: u32) -> io::Result<ChildState> {
    let flags =
        WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT | WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED;
    Ok(state_of(waitid(Id::Pid(pid_of(child)?), flags)?))
}

fn pid_of(child: u32) -> io::Result<Pid> {
    i32::try_from(child).map(Pid::from_raw).map_err(io::Error::other)
}

fn state_of(status: WaitStatus) -> ChildState {
    match status {
        WaitStatus::Exited(_, code) => ChildState::Exited(code),
        WaitStatus::Signaled(_, signal, _) => ChildState::Killed(signal),
        WaitStatus::Stopped(_, signal) => ChildState::Stopped(signal),
        _ => ChildState::Running,
    }
}

/// Whether a person reads and types here, and no other program of a pipeline
/// or a script.
pub(super) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The terminal of this session, wherever standard input comes from. One
/// process group at a time is in its foreground: it alone may read, and gets
/// the signals that keys send.
#[derive(Debug)]
pub(super) struct Terminal(File);

impl Terminal {
    /// `None` if this session has none.
    pub(super) fn of_session() -> Option<Self> {
        let terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
        tcgetpgrp(&terminal).is_ok().then_some(Self(terminal))
    }

    /// Hands it to `group`, if it is ours to give. Says whether it was.
    pub(super) fn hand_to(&self, group: Group) -> bool {
        self.pass(getpgrp(), group.0)
    }

    /// Takes it back, if `group` has it.
    pub(super) fn take_back(&self, group: Group) {
        self.pass(group.0, getpgrp());
    }

    fn pass(&self, from: Pid, to: Pid) -> bool {
        if tcgetpgrp(&self.0) != Ok(from) {
            return false;
        }
        // Who takes the terminal from the background is stopped by SIGTTOU,
        // unless that is blocked.
        let mut background = SigSet::empty();
        background.add(Signal::SIGTTOU);
        let _ = background.thread_block();
        let passed = tcsetpgrp(&self.0, to).is_ok();
        let _ = background.thread_unblock();
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_mean_everybody_or_ourselves_are_no_group() {
        assert_eq!(Group::of(0), None);
        assert_eq!(Group::of(1), None);
        assert_eq!(Group::of(u32::MAX), None);
        assert_eq!(Group::of(getpgrp().as_raw().unsigned_abs()), None);
    }

    #[test]
    fn somebody_asks() {
        let who = who();
        assert!(who.contains('@') && !who.starts_with('@') && !who.ends_with('@'), "{who}");
    }
}
