//! Looking at locks, and breaking one: `ls`, `get`, `watch`, `check`, `break`.

use std::process::ExitCode;

use leasehold_client::{TokenState, Watch};
use serde_json::json;

use super::{
    Globals,
    exit::{FAILED, Failure, UNKNOWN},
    output::{Output, length, line, millis, offer},
    peer, process,
    show::{Shown, Table, stored_json, stored_paragraph},
};

/// As many rows as decide the widths of the columns.
const ROWS_TO_FIT: usize = 1_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold ls
  leasehold ls billing/
  leasehold ls --output json | jq -r 'select(.waiting > 0).name'")]
pub(super) struct Ls {
    /// Only names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
}

impl Ls {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        let mut list = client.list(&self.prefix);
        let mut table = None;
        let mut rows = Vec::new();
        loop {
            let row = list.next().await.transpose()?.map(Shown::from);
            let last = row.is_none();
            match globals.output {
                Output::Json => row.map_or(Ok(()), |row| line(row.json()))?,
                Output::Text => {
                    rows.extend(row);
                    if (last && !rows.is_empty()) || rows.len() == ROWS_TO_FIT {
                        print_rows(&mut table, &rows)?;
                        rows.clear();
                    }
                }
            }
            if last {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

fn print_rows(table: &mut Option<Table>, rows: &[Shown]) -> Result<(), Failure> {
    if table.is_none() {
        line(table.insert(Table::fitting(rows)).head())?;
    }
    if let Some(table) = table {
        for row in rows {
            line(table.row(row))?;
        }
    }
    Ok(())
}

#[derive(Debug, clap::Args)]
#[command(after_help = "A name that nobody has used is shown as free.

Examples:
  leasehold get orders
  leasehold get orders --output json | jq .token
  leasehold get orders --verbose")]
pub(super) struct Get {
    /// The lock
    name: String,
    /// Also show where it is stored, who broke it last, and how often the
    /// daemon has called its storage since it was started, and why
    #[arg(long, short)]
    verbose: bool,
}

impl Get {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        if self.verbose {
            let stored = client.inspect_stored(&self.name).await?;
            match globals.output {
                Output::Text => line(stored_paragraph(&stored))?,
                Output::Json => line(stored_json(&stored))?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        let shown = Shown::from(client.inspect(&self.name).await?);
        match globals.output {
            Output::Text => line(shown.paragraph())?,
            Output::Json => line(shown.json())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "The present state comes first, then a line for every change, until it is \
interrupted. A slow reader gets the latest state of each lock, not a backlog. With --output json, \
\"initial\" is true for the present state.

Examples:
  leasehold watch orders
  leasehold watch --prefix billing/
  leasehold watch                     everything in the namespace")]
pub(super) struct WatchArgs {
    /// The lock; without it, all of the namespace
    #[arg(conflicts_with = "prefix")]
    name: Option<String>,
    /// All locks whose name begins with this
    #[arg(long)]
    prefix: Option<String>,
}

impl WatchArgs {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        let prefix = Watch::Prefix(self.prefix.unwrap_or_default());
        let mut watching = client.watch(self.name.map_or(prefix, Watch::Name)).await?;
        while let Some(change) = watching.next().await.transpose()? {
            let shown = Shown::from(change.lock);
            match globals.output {
                Output::Text => line(shown.line())?,
                Output::Json => {
                    let mut object = shown.json();
                    object["initial"] = change.initial.into();
                    line(object)?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "The answer may be out of date when it arrives. A resource that must be \
safe remembers the greatest token that it has seen and refuses smaller ones itself.

If the lock is held through another daemon, that daemon is asked, if it can be reached from here.

Exit codes:
  0    the lock is held with this token
  1    it is not: the token is stale, was never granted, or the lock is not held
  2    unknown: only the holder's daemon knows, and it could not be asked

Examples:
  leasehold check orders 1048577 && ./publish")]
pub(super) struct Check {
    /// The lock
    name: String,
    /// The token
    token: u64,
}

impl Check {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        let check = client.check(&self.name, self.token).await?;
        let Self { name, token } = self;
        let (state, sentence) = match check.state {
            TokenState::Current => ("current", "is the token of the present holder"),
            TokenState::Stale => {
                ("stale", "has been overtaken: the lock is held with a greater token")
            }
            TokenState::NotHeld => ("not_held", "is of no present holder: the lock is not held"),
            TokenState::NeverGranted => {
                ("never_granted", "was never granted: the lock is held with a smaller token")
            }
            TokenState::Unknown => ("unknown", "may be that of the current holder"),
        };
        let advice = match check.state {
            TokenState::Unknown => format!("; {}", peer::advice(check.lock.daemon.as_ref())),
            _ => String::new(),
        };
        let shown = Shown::from(check.lock);
        // The exit code is the answer, also if nobody reads why.
        match globals.output {
            Output::Text => offer(format!("token {token} {sentence}{advice}\n{}", shown.line()))?,
            Output::Json => offer(json!({
                "name": name, "token": token, "state": state, "lock": shown.json(),
            }))?,
        }
        Ok(ExitCode::from(match check.state {
            TokenState::Current => 0,
            TokenState::Unknown => UNKNOWN,
            _ => FAILED,
        }))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "The holder is told at once that it has lost the lock. Others get it as \
soon as the holder has let go, at the latest when its grant has run out. The reason and who asked \
are shown to the holder, logged by the daemon and noted with the lock (see `get --verbose`).

A lock that is held through another daemon is broken too: that daemon can't renew its lease any \
more and tells its holder so; others get the lock when the lease's term is over.

Breaking a lock that nobody holds does nothing and is no error.

Examples:
  leasehold break orders --reason 'worker stuck, see incident 4711'")]
pub(super) struct Break {
    /// The lock
    name: String,
    /// Why: shown to the holder and logged
    #[arg(long)]
    reason: String,
}

impl Break {
    pub(super) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let client = globals.connect().await?;
        let broken = client.break_lock(&self.name, &self.reason, &process::who()).await?;
        let shown = Shown::from(broken.lock);
        match globals.output {
            Output::Text if broken.broken => {
                let within = length(broken.free_within);
                line(format!("broken; free within {within}. It was:\n{}", shown.line()))?;
            }
            Output::Text => line(format!("nothing to break: {}", shown.line()))?,
            Output::Json => line(json!({
                "broken": broken.broken,
                "free_within_ms": millis(broken.free_within),
                "lock": shown.json(),
            }))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
