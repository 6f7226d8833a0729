//! Unix: signals, process groups, child processes and the terminal. All such code
//! of the command line is here.

mod orphans;

use std::{
    fs::File,
    future::poll_fn,
    io::{self, IsTerminal},
    os::fd::AsFd,
    path::PathBuf,
    task::Poll,
};

use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::{SigSet, kill, killpg, raise},
        wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    },
    unistd::{Pid, User, gethostname, getpgrp, getppid, getuid, mkdtemp, tcgetpgrp, tcsetpgrp},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::unix::pipe::Receiver,
    signal::unix::{self, SignalKind},
};

pub(super) use self::orphans::{
    TrackedChild, adopt_orphans, reap_untracked_children, reap_untracked_now,
};
pub(super) use nix::sys::signal::Signal;

/// Signals to this process, in no particular order.
#[derive(Debug)]
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Listens for `wanted`, except for signals that were ignored when this process
    /// started, as by `nohup`. They stay ignored, here and in the command.
    pub(super) fn listen(wanted: &[Signal]) -> io::Result<Self> {
        let ignored = ignored();
        let heeded = wanted.iter().copied().filter(|signal| !ignored.contains(*signal));
        let listen =
            |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
        heeded.map(listen).collect::<io::Result<_>>().map(Self)
    }

    /// Waits for the next signal. Cancel-safe.
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

    /// Takes the signals that have arrived, without waiting. A repeated signal is
    /// returned once.
    pub(super) async fn take_arrived(&mut self) -> Vec<Signal> {
        poll_fn(|context| {
            let ready = self.0.iter_mut().filter_map(|(signal, stream)| {
                stream.poll_recv(context).is_ready().then_some(*signal)
            });
            Poll::Ready(ready.collect())
        })
        .await
    }
}

/// Signals that stop a daemon, even if they were ignored when this process started,
/// as they may be in the first process of a container.
#[derive(Debug)]
pub(super) struct StopSignals(Signals);

impl StopSignals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self(Signals(vec![
            (Signal::SIGTERM, unix::signal(SignalKind::terminate())?),
            (Signal::SIGINT, unix::signal(SignalKind::interrupt())?),
        ])))
    }

    /// Waits for the next signal. Cancel-safe.
    pub(super) async fn next(&mut self) -> Signal {
        self.0.next().await
    }
}

/// Returns the signals that this process ignores since its start. Empty without
/// /proc.
fn ignored() -> SigSet {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    Signal::iterator().filter(|signal| mask & (1 << (*signal as i32 - 1)) != 0).collect()
}

/// Blocks all signals that can be blocked, for this thread and threads that it starts.
pub(super) fn block_signals() -> io::Result<()> {
    Ok(SigSet::all().thread_block()?)
}

/// Stops this process until it is continued.
pub(super) fn stop_self() -> io::Result<()> {
    Ok(raise(Signal::SIGSTOP)?)
}

/// Stops this process and its group until they are continued. A script that waits
/// for this process then stops too, and its shell notices.
pub(super) fn stop_own_group() -> io::Result<()> {
    Ok(kill(Pid::from_raw(0), Signal::SIGSTOP)?)
}

/// Returns the process ID of the parent.
pub(super) fn parent() -> u32 {
    getppid().as_raw().unsigned_abs()
}

/// Kills this process when its parent ends, even if it is stopped then.
pub(super) fn end_with(expected_parent: u32) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    match parent() == expected_parent {
        true => Ok(()),
        // It ended before the call.
        false => Err(io::Error::other("the process that started this one has ended")),
    }
}

/// Returns the lines of standard input, which must be a pipe.
pub(super) fn input() -> io::Result<Lines<BufReader<Receiver>>> {
    let pipe = Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    Ok(BufReader::new(pipe).lines())
}

/// Creates a directory that only this user can access.
pub(super) fn temporary_directory(prefix: &str) -> io::Result<PathBuf> {
    Ok(mkdtemp(&std::env::temp_dir().join(format!("{prefix}-XXXXXX")))?)
}

/// Returns the path of this program, to start it again. Works after an upgrade has
/// replaced the file.
pub(super) fn this_program() -> io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { Ok(running) } else { std::env::current_exe() }
}

/// Returns the operator's name: user and host, as in `ann@web-1`.
pub(super) fn operator() -> String {
    let user = User::from_uid(getuid()).ok().flatten().map(|user| user.name);
    let user = user.unwrap_or_else(|| format!("uid {}", getuid()));
    let host = gethostname().map(|host| host.to_string_lossy().into_owned());
    format!("{user}@{}", host.unwrap_or_else(|_| "unknown".to_owned()))
}

/// Process group other than that of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group(Pid);

impl Group {
    /// Returns the group with this leader. `None` for IDs with another meaning in
    /// `kill`, and for the group of this process.
    pub(super) fn of(leader: u32) -> Option<Self> {
        let id = i32::try_from(leader).ok().filter(|id| *id > 1)?;
        Some(Self(Pid::from_raw(id))).filter(|group| group.0 != getpgrp())
    }

    /// Returns the process ID of the leader.
    pub(super) fn id(self) -> u32 {
        self.0.as_raw().unsigned_abs()
    }

    /// Sends a signal to all members. An empty group is no error.
    pub(super) fn signal(self, signal: Signal) {
        let _ = killpg(self.0, signal);
    }

    /// Returns whether the group is empty. A process stays a member until it is
    /// reaped.
    pub(super) fn is_gone(self) -> bool {
        killpg(self.0, None) == Err(Errno::ESRCH)
    }
}

/// State of a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildState {
    /// Running, or unchanged since the last call.
    Running,
    /// Stopped by this signal.
    Stopped(Signal),
    /// Exited with this code.
    Exited(i32),
    /// Killed by this signal.
    Killed(Signal),
}

/// Returns the state of a child, and reaps it if it has ended. Do not call this
/// again after the end: the ID may belong to another process.
pub(super) fn poll_child(child: u32) -> io::Result<ChildState> {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
    Ok(state_of(waitpid(pid_of(child)?, Some(flags))?))
}

/// Returns the state of a child without reaping it, so that its ID and that of its
/// group can't be reused.
pub(super) fn peek_child(child: u32) -> io::Result<ChildState> {
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

/// Returns whether standard input and output are a terminal, not a pipeline or a
/// script.
pub(super) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Controlling terminal of this session, independent of standard input. Only its
/// foreground process group may read from it and receives the signals of the
/// keyboard.
#[derive(Debug)]
pub(super) struct Terminal(File);

impl Terminal {
    /// Opens the terminal. Returns `None` if this session has none.
    pub(super) fn open() -> Option<Self> {
        let terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
        tcgetpgrp(&terminal).is_ok().then_some(Self(terminal))
    }

    /// Makes `group` the foreground group if this process's group is. Returns whether
    /// it did.
    pub(super) fn give_to(&self, group: Group) -> bool {
        self.change_foreground(getpgrp(), group.0)
    }

    /// Makes this process's group the foreground group if `group` is.
    pub(super) fn take_from(&self, group: Group) {
        self.change_foreground(group.0, getpgrp());
    }

    fn change_foreground(&self, from: Pid, to: Pid) -> bool {
        if tcgetpgrp(&self.0) != Ok(from) {
            return false;
        }
        // SIGTTOU would stop a background process that changes the foreground
        // group.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        let _ = blocked.thread_block();
        let is_changed = tcsetpgrp(&self.0, to).is_ok();
        let _ = blocked.thread_unblock();
        is_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_ids_and_own_group_are_refused() {
        assert_eq!(Group::of(0), None);
        assert_eq!(Group::of(1), None);
        assert_eq!(Group::of(u32::MAX), None);
        assert_eq!(Group::of(getpgrp().as_raw().unsigned_abs()), None);
    }

    #[test]
    fn operator_is_user_at_host() {
        let name = operator();
        assert!(name.contains('@') && !name.starts_with('@') && !name.ends_with('@'), "{name}");
    }
}
