//! Commands that read and break locks: `ls`, `get`, `watch`, `check`, `break`.

use std::{num::NonZeroUsize, process::ExitCode};

use leasehold_client::{Token, TokenState, Watch};
use serde_json::json;

use super::{
    Globals,
    exit::{FAILED, Failure, UNKNOWN},
    lock_output::{LockOutput, Table, stored_json, stored_paragraph},
    options::parse_count,
    output::{Output, line, lock_name, millis, optional_line, short_duration},
    palette::Palette,
    peer, process, times,
};

/// Number of rows that are read before printing, to compute the column widths.
const ROWS_TO_FIT: usize = 1_000;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Sorted by name; with --all-namespaces, by namespace and name, compared as \
the text NAMESPACE/NAME.

Examples:
  leasehold ls
  leasehold ls billing/
  leasehold ls --all-namespaces --limit 100
  leasehold ls -o json | jq -r 'select(.waiting > 0).name'"
)]
pub(super) struct Ls {
    /// Only names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// List the locks of all namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Maximum number of locks to print [default: no limit]
    #[arg(long, value_name = "COUNT", value_parser = parse_count::<NonZeroUsize>)]
    limit: Option<NonZeroUsize>,
}

impl Ls {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        let mut list = match self.all_namespaces {
            true => client.list_all_namespaces(&self.prefix),
            false => client.list(&self.prefix),
        };
        let mut remaining = self.limit.map_or(usize::MAX, NonZeroUsize::get);
        let mut table = Table::new(self.all_namespaces, Palette::stdout(globals.output));
        let mut rows = Vec::new();
        loop {
            let row = list.next().await.transpose()?.map(LockOutput::from);
            let has_more = row.is_some() && remaining == 0;
            let row = row.filter(|_| remaining > 0);
            let is_last = row.is_none();
            remaining = remaining.saturating_sub(1);
            match globals.output {
                Output::Json => row.map_or(Ok(()), |row| line(row.json()))?,
                Output::Text => {
                    rows.extend(row);
                    if (is_last && !rows.is_empty()) || rows.len() == ROWS_TO_FIT {
                        table.lines(&rows).iter().try_for_each(line)?;
                        rows.clear();
                    }
                }
            }
            if has_more && let Some(limit) = self.limit {
                globals
                    .output
                    .note(format_args!("printed the first {limit} locks; there are more"));
            }
            if is_last {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "A lock that no client has used is printed as free.

Examples:
  leasehold get orders
  leasehold get orders --output json | jq .token
  leasehold get orders --verbose")]
pub(super) struct Get {
    /// Name of the lock
    name: String,
    /// Also print where the lock is stored, its last break, and the daemon's storage calls
    #[arg(long, short)]
    verbose: bool,
}

impl Get {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        if self.verbose {
            let stored = client.inspect_stored(&self.name).await?;
            match globals.output {
                Output::Text => line(stored_paragraph(&stored, Palette::stdout(globals.output)))?,
                Output::Json => line(stored_json(&stored))?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        let lock = LockOutput::from(client.inspect(&self.name).await?);
        match globals.output {
            Output::Text => line(lock.paragraph(Palette::stdout(globals.output)))?,
            Output::Json => line(lock.json())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Prints the current state first, then a line for every change, until \
interrupted. A slow reader receives the latest state of each changed lock, not every intermediate \
state. Each line begins with the local time of its arrival. With --output json, \"time\" has it in UTC \
(RFC 3339), and \"initial\" is true for the current state.

Examples:
  leasehold watch orders
  leasehold watch --prefix billing/
  leasehold watch                     all locks of the namespace")]
pub(super) struct WatchArgs {
    /// Name of the lock [default: all locks of the namespace]
    #[arg(conflicts_with = "prefix")]
    name: Option<String>,
    /// Watch all locks whose name begins with this
    #[arg(long)]
    prefix: Option<String>,
}

impl WatchArgs {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        let prefix = Watch::Prefix(self.prefix.unwrap_or_default());
        let mut changes = client.watch(self.name.map_or(prefix, Watch::Name)).await?;
        let palette = Palette::stdout(globals.output);
        while let Some(change) = changes.next().await.transpose()? {
            let lock = LockOutput::from(change.lock);
            match globals.output {
                Output::Text => {
                    let time = palette.dim(&times::local_now());
                    line(format_args!("{time} {}", lock.line(palette)))?;
                }
                Output::Json => {
                    let mut object = lock.json();
                    object["time"] = times::utc_now().into();
                    object["initial"] = change.initial.into();
                    line(object)?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "The result may be out of date when it arrives. Do not use it as a fence: \
a resource must itself refuse tokens lower than the highest it has seen.

If the lock is held through another daemon, the request is forwarded to that daemon, if it can be \
reached from here.

Exit codes:
  0    the lock is held with this token
  1    the token is stale or was never granted, or the lock is not held
  2    unknown: the holder's daemon could not be reached

Examples:
  leasehold check orders 1048577 && ./publish")]
pub(super) struct Check {
    /// Name of the lock
    name: String,
    /// Token to check
    #[arg(value_parser = parse_token)]
    token: Token,
}

impl Check {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        let check = client.check(&self.name, self.token).await?;
        let Self { name, token } = self;
        let (state, sentence) = match check.state {
            TokenState::Current => ("current", "is the token of the current holder"),
            TokenState::Stale => ("stale", "is stale: the lock is held with a higher token"),
            TokenState::NotHeld => ("not_held", ""),
            TokenState::NeverGranted => {
                ("never_granted", "was never granted: the lock is held with a lower token")
            }
            TokenState::Unknown => ("unknown", "may belong to the current holder"),
        };
        let advice = match check.state {
            TokenState::Unknown => format!("; {}", peer::advice(check.lock.daemon.as_ref())),
            _ => String::new(),
        };
        let lock = LockOutput::from(check.lock);
        // The exit code is the result, even if the output is closed.
        match globals.output {
            Output::Text if check.state == TokenState::NotHeld => {
                let lock = lock_name(&globals.namespace(), &name);
                optional_line(format!("lock {lock} is not held, so token {token} is not current"))?;
            }
            Output::Text => {
                let line = lock.line(Palette::stdout(globals.output));
                optional_line(format!("token {token} {sentence}{advice}\n{line}"))?;
            }
            Output::Json => optional_line(json!({
                "name": name, "token": token.get(), "state": state, "lock": lock.json(),
            }))?,
        }
        Ok(ExitCode::from(match check.state {
            TokenState::Current => 0,
            TokenState::Unknown => UNKNOWN,
            _ => FAILED,
        }))
    }
}

/// Parses a token of the command line.
fn parse_token(text: &str) -> Result<Token, &'static str> {
    let token = text.parse().ok().and_then(|token: Token| Token::from_stored(token.get()));
    token.ok_or("use a decimal number below 2^53, without sign or leading zeros")
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The holder is notified immediately that it has lost the lock. The lock goes to \
the next waiter when the holder has released it, no later than at the holder's deadline. The reason \
and the operator (user@host) are sent to the holder, logged by the daemon and stored with the lock \
(see `get --verbose`).

A lock that is held through another daemon is broken too: that daemon can't renew its lease any \
longer and notifies the holder. The lock is free when the lease expires.

Breaking a lock without a holder does nothing and is no error.

Examples:
  leasehold break orders --reason 'worker stuck, see incident 4711'"
)]
pub(super) struct Break {
    /// Name of the lock
    name: String,
    /// Reason, sent to the holder and logged
    #[arg(long, short)]
    reason: String,
}

impl Break {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        let broken =
            client.break_lock(&self.name).by(process::operator()).reason(&self.reason).await?;
        let lock = LockOutput::from(broken.lock);
        let name = lock_name(&globals.namespace(), &self.name);
        match globals.output {
            Output::Text if broken.broken => {
                let within = short_duration(broken.free_within);
                let before = lock.grant();
                line(format!("broke lock {name}; free within {within}. It was held by {before}"))?;
            }
            Output::Text => {
                // A holder was known, but its lease ended before the break.
                let no_longer = if lock.is_held() { " no longer" } else { " not" };
                line(format!("lock {name} is{no_longer} held; nothing to break"))?;
            }
            Output::Json => line(json!({
                "broken": broken.broken,
                "free_within_ms": millis(broken.free_within),
                "lock": lock.json(),
            }))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
