//! The command as a job: signals, stops, and its place at the terminal.

use std::io;

use crate::cli::process::{self, Group, Signal, Terminal};

/// The command's process group, and its place at the terminal.
#[derive(Debug)]
pub(super) struct Job {
    group: Group,
    terminal: Option<Terminal>,
    started: bool,
    /// From when we stop with it until we are continued, and it with us.
    stands_still: bool,
}

impl Job {
    /// A command that is yet to be started.
    pub(super) fn of(group: Group) -> Self {
        Self { group, terminal: Terminal::of_session(), started: false, stands_still: false }
    }

    pub(super) const fn group(&self) -> Group {
        self.group
    }

    pub(super) const fn is_started(&self) -> bool {
        self.started
    }

    /// Lets the command begin, now that it can't escape.
    pub(super) fn start(&mut self) {
        self.started = true;
        self.go_on();
    }

    fn go_on(&mut self) {
        self.stands_still = false;
        // In a pipeline, the terminal may be needed by the next program, such
        // as a pager; in a script, by the script. The command gets it if it
        // asks.
        if process::is_interactive() {
            self.hand_over_terminal();
        }
        self.group.signal(Signal::SIGCONT);
    }

    /// Passes a signal that we got on to the command.
    pub(super) fn pass_on(&mut self, signal: Signal) -> io::Result<()> {
        match signal {
            // Would let it begin too early.
            Signal::SIGCONT if !self.started => {}
            Signal::SIGCONT => self.go_on(),
            // Who sent this to the whole group has stopped the others already.
            Signal::SIGTSTP => {
                if self.started {
                    self.group.signal(signal);
                    self.yield_terminal();
                }
                process::stop_self()?;
            }
            Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT => {
                self.group.signal(signal);
                // Who stands still could not obey.
                if self.started {
                    self.group.signal(Signal::SIGCONT);
                }
            }
            _ => self.group.signal(signal),
        }
        Ok(())
    }

    /// When the terminal stops the command, our shell must see us stop. If
    /// that lasts longer than the lock, the watchdog kills the command.
    pub(super) fn on_stop(&mut self, signal: Signal) -> io::Result<()> {
        match signal {
            // We have stood still since, and go on as soon as we have heard of
            // it.
            _ if self.stands_still => {}
            // It wants the terminal.
            Signal::SIGTTIN | Signal::SIGTTOU if self.hand_over_terminal() => {
                self.group.signal(Signal::SIGCONT);
            }
            Signal::SIGTTIN | Signal::SIGTTOU | Signal::SIGTSTP if self.terminal.is_some() => {
                self.yield_terminal();
                process::stop_own_group()?;
            }
            // Nobody has a terminal to give, and the rest of our group nothing
            // to do with it.
            Signal::SIGTTIN | Signal::SIGTTOU => {
                self.stands_still = true;
                process::stop_self()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Before we stop.
    fn yield_terminal(&mut self) {
        self.stands_still = true;
        self.take_terminal_back();
    }

    fn hand_over_terminal(&self) -> bool {
        self.terminal.as_ref().is_some_and(|terminal| terminal.hand_to(self.group))
    }

    /// Takes the terminal back, if the command has it.
    pub(super) fn take_terminal_back(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.group);
        }
    }
}
