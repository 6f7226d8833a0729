//! The play: receives the reports of the workers, answers their writes, and injects the
//! faults.

use std::time::Duration;

use leasehold_client::Client;
use leasehold_time::Moment;
use tokio::sync::mpsc;

use super::{
    LOCK, Printer,
    cast::{Message, Worker, index, name},
    fault::{Fault, Plan},
    story::{Event, Story},
    worker::Report,
};
use crate::cli::{
    exit::{FAILED, Failure},
    options::connected,
    process::{self, Signal},
};

/// Number of workers.
const WORKERS: usize = 3;

/// Maximum time until a fault has had its effect.
const EFFECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for reports that were written before a pause to arrive.
const ARRIVAL_TIME: Duration = Duration::from_millis(100);

/// Interval of the checks whether a worker is stopped.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Capacity of the queue of reports.
const MESSAGES_CAPACITY: usize = 64;

/// Running play.
pub(super) struct Play {
    endpoint: String,
    client: Client,
    workers: Vec<Worker>,
    sender: mpsc::Sender<Message>,
    messages: mpsc::Receiver<Message>,
    story: Story,
    printer: Printer,
}

impl Play {
    /// Starts the workers.
    pub(super) async fn start(endpoint: &str, printer: Printer) -> Result<Self, Failure> {
        let client = connected(Client::connect(endpoint).await)?;
        let (sender, messages) = mpsc::channel(MESSAGES_CAPACITY);
        let (story, endpoint) = (Story::new(WORKERS), endpoint.to_owned());
        let workers = Vec::with_capacity(WORKERS);
        let mut play = Self { endpoint, client, workers, sender, messages, story, printer };
        for index in 0..WORKERS {
            let worker = Worker::start(index, &play.endpoint, play.sender.clone())?;
            play.joined(index, worker.pid(), false)?;
            play.workers.push(worker);
        }
        Ok(play)
    }

    /// Injects `rounds` faults, each `interval` after the end of the previous one.
    pub(super) async fn run(
        &mut self,
        mut plan: Plan,
        rounds: u32,
        interval: Duration,
    ) -> Result<(), Failure> {
        for round in 1..=rounds {
            self.watch_for(interval).await?;
            match plan.next() {
                fault @ (Fault::KillLeader | Fault::KillHolder) => self.kill(round, fault).await?,
                Fault::Pause => self.pause(round).await?,
                Fault::Break => self.break_lock(round).await?,
            }
        }
        Ok(())
    }

    /// Kills the workers, and prints the totals.
    pub(super) async fn finish(mut self) -> Result<(), Failure> {
        for worker in &mut self.workers {
            worker.kill().await?;
        }
        self.printer.print(&self.story.totals())
    }

    /// Kills the holder or the leader, and starts it again when another worker has its
    /// place.
    async fn kill(&mut self, round: u32, fault: Fault) -> Result<(), Failure> {
        let place = match fault {
            Fault::KillLeader => Story::leader,
            _ => Story::holder,
        };
        self.until("a worker to kill", |story, _| place(story).is_some()).await?;
        let Some((victim, token)) = place(&self.story) else { return Ok(()) };
        self.workers[victim].kill().await?;
        self.print_fault(round, fault, victim, token)?;
        self.story.forget(victim);
        self.until("the takeover", |story, _| {
            place(story).is_some_and(|(worker, newer)| worker != victim && newer > token)
        })
        .await?;
        let worker = Worker::start(victim, &self.endpoint, self.sender.clone())?;
        self.joined(victim, worker.pid(), true)?;
        self.workers[victim] = worker;
        Ok(())
    }

    /// Pauses the holder between its check and its write until another worker has
    /// written.
    async fn pause(&mut self, round: u32) -> Result<(), Failure> {
        let (holder, token) = loop {
            let working = |_: &Story, message: &Message| {
                matches!(message.report, Some(Report::Working { .. }))
            };
            let Message { worker, report, .. } = self.until("a working holder", working).await?;
            let Some(Report::Working { token }) = report else { continue };
            if self.stop_before_write(worker).await? {
                break (worker, token);
            }
            self.workers[worker].signal(Signal::SIGCONT);
        };
        self.print_fault(round, Fault::Pause, holder, token)?;
        self.until("a newer write", |story, _| story.highest_token() > token).await?;
        self.printer.print(&Event::Continued { worker: name(holder), lock: LOCK })?;
        self.workers[holder].signal(Signal::SIGCONT);
        self.until("the loss of the paused worker", |_, message| {
            let is_lost = matches!(message.report, Some(Report::Lost { .. }));
            message.worker == holder && is_lost
        })
        .await?;
        Ok(())
    }

    /// Stops a worker. Returns false if it has written before.
    async fn stop_before_write(&mut self, worker: usize) -> Result<bool, Failure> {
        self.workers[worker].signal(Signal::SIGSTOP);
        let mut end = Moment::now() + ARRIVAL_TIME;
        loop {
            tokio::select! {
                biased;
                message = self.next() => if message?.worker == worker {
                    return Ok(false);
                },
                () = leasehold_runtime::sleep(CHECK_INTERVAL) => {
                    if !self.workers[worker].is_stopped() {
                        end = Moment::now() + ARRIVAL_TIME;
                    } else if end.has_passed() {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// Breaks the lock as an operator.
    async fn break_lock(&mut self, round: u32) -> Result<(), Failure> {
        loop {
            self.until("a holder", |story, _| story.holder().is_some()).await?;
            let request = self.client.break_lock(LOCK).by(process::operator());
            let broken = request.reason("fault of the demo").await?;
            // The response names the holder at the time of the break, if there was one.
            let holder = broken.lock.holder.filter(|_| broken.broken);
            let holder = holder.and_then(|holder| index(&holder.client));
            let (Some(holder), Some(token)) = (holder, broken.lock.token) else { continue };
            let token = token.get();
            self.print_fault(round, Fault::Break, holder, token)?;
            self.until("the next grant", |story, _| {
                story.holder().is_some_and(|(_, newer)| newer > token)
            })
            .await?;
            return Ok(());
        }
    }

    fn print_fault(
        &self,
        round: u32,
        fault: Fault,
        worker: usize,
        token: u64,
    ) -> Result<(), Failure> {
        let pid = self.workers[worker].pid();
        self.printer.print(&Event::Fault { round, fault, worker: name(worker), pid, token })
    }

    fn joined(&self, worker: usize, pid: u32, again: bool) -> Result<(), Failure> {
        self.printer.print(&Event::Joined { worker: name(worker), pid, again })
    }

    /// Prints the events of a period.
    async fn watch_for(&mut self, time: Duration) -> Result<(), Failure> {
        let end = Moment::now() + time;
        loop {
            tokio::select! {
                () = leasehold_runtime::sleep_until(end) => return Ok(()),
                message = self.next() => drop(message?),
            }
        }
    }

    /// Prints events until a condition is true, and returns the message that made it true. A condition that is already true waits for one more message.
    async fn until(
        &mut self,
        what: &str,
        mut is_reached: impl FnMut(&Story, &Message) -> bool,
    ) -> Result<Message, Failure> {
        let end = Moment::now() + EFFECT_TIMEOUT;
        loop {
            tokio::select! {
                biased;
                message = self.next() => {
                    let message = message?;
                    if is_reached(&self.story, &message) {
                        return Ok(message);
                    }
                }
                () = leasehold_runtime::sleep_until(end) => {
                    let message = format!("waited too long for {what}");
                    return Err(Failure::new(FAILED, "demo", message));
                }
            }
        }
    }

    /// Receives the next message of a running worker, prints it, and answers a write.
    /// Cancel-safe.
    async fn next(&mut self) -> Result<Message, Failure> {
        loop {
            let Some(message) = self.messages.recv().await else {
                return Err(Failure::new(FAILED, "demo", "all workers ended"));
            };
            let Message { worker, report, .. } = &message;
            if !self.workers.get(*worker).is_some_and(|worker| worker.has_sent(&message)) {
                continue;
            }
            let Some(report) = report else {
                let text = format!("{} ended; did another process kill it?", name(*worker));
                return Err(Failure::new(FAILED, "demo", text));
            };
            let (event, answer) = self.story.on(*worker, report);
            event.map_or(Ok(()), |event| self.printer.print(&event))?;
            if let Some(answer) = answer {
                self.workers[*worker].answer(answer);
            }
            return Ok(message);
        }
    }
}
