//! Job control: signals, stops, and the terminal of the command.

use std::io;

use crate::cli::process::{self, Group, Signal, Terminal};

/// Process group of the command, and its terminal.
#[derive(Debug)]
pub(super) struct Job {
    group: Group,
    terminal: Option<Terminal>,
    is_started: bool,
    /// True from the stop of this process together with the command until both are
    /// continued.
    is_stopped: bool,
}

impl Job {
    /// Creates the job of a command that has not been started yet.
    pub(super) fn of(group: Group) -> Self {
        Self { group, terminal: Terminal::open(), is_started: false, is_stopped: false }
    }

    pub(super) const fn group(&self) -> Group {
        self.group
    }

    pub(super) const fn is_started(&self) -> bool {
        self.is_started
    }

    /// Starts the command. The watchdog must know its group by now.
    pub(super) fn start(&mut self) {
        self.is_started = true;
        self.resume();
    }

    fn resume(&mut self) {
        self.is_stopped = false;
        // In a pipeline or a script, another program may need the terminal, such as a
        // pager. The command then gets it when it requests it.
        if process::is_interactive() {
            self.give_terminal();
        }
        self.group.signal(Signal::SIGCONT);
    }

    /// Forwards a signal to the command.
    pub(super) fn forward(&mut self, signal: Signal) -> io::Result<()> {
        match signal {
            // Would start the command too early.
            Signal::SIGCONT if !self.is_started => {}
            Signal::SIGCONT => self.resume(),
            // The sender has stopped the rest of this process's group as well.
            Signal::SIGTSTP => {
                if self.is_started {
                    self.group.signal(signal);
                    self.prepare_stop();
                }
                process::stop_self()?;
            }
            Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT => {
                self.group.signal(signal);
                // A stopped process can't handle the signal.
                if self.is_started {
                    self.group.signal(Signal::SIGCONT);
                }
            }
            _ => self.group.signal(signal),
        }
        Ok(())
    }

    /// Handles a stop of the command. If the terminal stopped it, this process stops
    /// too, so that the shell notices. If the stop lasts longer than the lock, the
    /// watchdog kills the command.
    pub(super) fn on_stop(&mut self, signal: Signal) -> io::Result<()> {
        match signal {
            // This process has stopped too, and its SIGCONT resumes the command.
            _ if self.is_stopped => {}
            // The command requests the terminal.
            Signal::SIGTTIN | Signal::SIGTTOU if self.give_terminal() => {
                self.group.signal(Signal::SIGCONT);
            }
            Signal::SIGTTIN | Signal::SIGTTOU | Signal::SIGTSTP if self.terminal.is_some() => {
                self.prepare_stop();
                process::stop_own_group()?;
            }
            // There is no terminal, so the rest of this process's group continues.
            Signal::SIGTTIN | Signal::SIGTTOU => {
                self.is_stopped = true;
                process::stop_self()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Prepares for the stop of this process.
    fn prepare_stop(&mut self) {
        self.is_stopped = true;
        self.take_terminal_back();
    }

    fn give_terminal(&self) -> bool {
        self.terminal.as_ref().is_some_and(|terminal| terminal.give_to(self.group))
    }

    /// Takes the terminal back if the command has it.
    pub(super) fn take_terminal_back(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_from(self.group);
        }
    }
}
