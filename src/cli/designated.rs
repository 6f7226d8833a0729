//! Options that select the lock of a command: its name, or the resource of a
//! storage account for which it is designated.

use std::env;

use leasehold_azure_account::{
    ConnectionString, ServiceKind, account_name, is_account_name, parse_account_url,
};
use leasehold_client::designated::Resource;

use super::exit::{Failure, USAGE};

/// Name of a lock, or the resource from which the name is derived.
#[derive(Debug, clap::Args)]
pub(super) struct LockSelector {
    #[command(flatten)]
    target: Target,
    /// With --table: the lock designated for the partition with this key
    #[arg(long, value_name = "KEY", requires = "table", allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["name", "blob", "container", "queue", "share"])]
    #[arg(help_heading = "Designated locks")]
    partition: Option<String>,
    /// Storage account of the resource [default: from LEASEHOLD_AZURE_ACCOUNT_URL or
    /// LEASEHOLD_AZURE_CONNECTION_STRING]
    #[arg(long, value_name = "ACCOUNT", conflicts_with = "name")]
    #[arg(help_heading = "Designated locks")]
    account: Option<String>,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// Name of the lock or election: 1 to 256 bytes without control characters
    name: Option<String>,
    /// Instead of NAME: the lock designated for this table
    #[arg(long, value_name = "TABLE", help_heading = "Designated locks")]
    table: Option<String>,
    /// Instead of NAME: the lock designated for this blob
    #[arg(long, value_name = "CONTAINER/BLOB", help_heading = "Designated locks")]
    blob: Option<String>,
    /// Instead of NAME: the lock designated for this container
    #[arg(long, value_name = "CONTAINER", help_heading = "Designated locks")]
    container: Option<String>,
    /// Instead of NAME: the lock designated for this queue
    #[arg(long, value_name = "QUEUE", help_heading = "Designated locks")]
    queue: Option<String>,
    /// Instead of NAME: the lock designated for this file share
    #[arg(long, value_name = "SHARE", help_heading = "Designated locks")]
    share: Option<String>,
}

impl LockSelector {
    /// Returns the name of the lock.
    pub(super) fn lock_name(&self) -> Result<String, Failure> {
        match &self.target.name {
            Some(name) => Ok(name.clone()),
            None => self.designated(|variable| env::var(variable).ok()),
        }
    }

    fn designated(&self, lookup: impl Fn(&str) -> Option<String>) -> Result<String, Failure> {
        let account = match &self.account {
            Some(account) => account.clone(),
            None => account_from(lookup)?,
        };
        let account = account.as_str();
        let resource = match &self.target {
            Target { table: Some(table), .. } => match &self.partition {
                Some(partition) => Resource::Partition { account, table, partition },
                None => Resource::Table { account, table },
            },
            Target { blob: Some(path), .. } => {
                let Some((container, blob)) = path.split_once('/') else {
                    let message = "invalid --blob: use CONTAINER/BLOB, or $root/BLOB for the \
                                   root container";
                    return Err(Failure::new(USAGE, "usage", message));
                };
                Resource::Blob { account, container, blob }
            }
            Target { container: Some(container), .. } => Resource::Container { account, container },
            Target { queue: Some(queue), .. } => Resource::Queue { account, queue },
            Target { share: Some(share), .. } => Resource::Share { account, share },
            _ => return Err(Failure::new(USAGE, "usage", "the lock name is missing")),
        };
        Ok(resource.lock_name()?)
    }
}

const ACCOUNT_URL: &str = "LEASEHOLD_AZURE_ACCOUNT_URL";
const CONNECTION_STRING: &str = "LEASEHOLD_AZURE_CONNECTION_STRING";

/// Returns the account in the environment. It is not guessed, because a process
/// that derives another name acquires another lock. Messages do not quote values,
/// because they may be secrets.
fn account_from(lookup: impl Fn(&str) -> Option<String>) -> Result<String, Failure> {
    let given = |variable: &str| lookup(variable).filter(|text| !text.trim().is_empty());
    let usage = |message: String| Err(Failure::new(USAGE, "usage", message));
    let (variable, account) = match (given(ACCOUNT_URL), given(CONNECTION_STRING)) {
        (Some(url), None) => (ACCOUNT_URL, account_of_url(&url)),
        (None, Some(text)) => (CONNECTION_STRING, account_of_string(&text)),
        (Some(_), Some(_)) => {
            return usage(format!(
                "{ACCOUNT_URL} and {CONNECTION_STRING} both name an account: select one \
                 with --account"
            ));
        }
        (None, None) => {
            return usage(format!(
                "the account is missing: use --account, or set {ACCOUNT_URL} or \
                 {CONNECTION_STRING}"
            ));
        }
    };
    match account {
        Some(account) => Ok(account),
        None => usage(format!("{variable} does not contain the account's name: use --account")),
    }
}

/// Account of `https://ACCOUNT.blob.…` or, for emulators, of
/// `http://HOST:PORT/ACCOUNT`.
fn account_of_url(url: &str) -> Option<String> {
    let (url, _) = parse_account_url(url).ok()?;
    account_name(&url, ServiceKind::Blob).filter(|account| is_account_name(account))
}

/// Account of a connection string, as the fences read it.
fn account_of_string(text: &str) -> Option<String> {
    let read = ConnectionString::parse(text).ok()?;
    match &read.account {
        Some(name) => is_account_name(name).then(|| name.clone()),
        None => account_of_url(read.endpoint(ServiceKind::Blob).ok()??.expose()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        lock: LockSelector,
    }

    fn named(line: &str, environment: &[(&str, &str)]) -> Result<String, String> {
        let line =
            Line::try_parse_from(format!("x {line}").split(' ')).map_err(|e| e.to_string())?;
        let lookup = |wanted: &str| {
            environment
                .iter()
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| (*value).to_owned())
        };
        match &line.lock.target.name {
            Some(name) => Ok(name.clone()),
            None => line.lock.designated(lookup).map_err(|failure| format!("{failure:?}")),
        }
    }

    #[test]
    fn resources_select_their_locks() {
        for (line, lock) in [
            ("orders", "orders"),
            ("--table Orders --account acme", "azure/acme/table/orders"),
            (
                "--table Orders --partition Zürich --account acme",
                "azure/acme/table/orders/Z%C3%BCrich",
            ),
            ("--blob reports/2026/a.csv --account acme", "azure/acme/blob/reports/2026/a.csv"),
            ("--blob $root/a.csv --account acme", "azure/acme/blob/$root/a.csv"),
            ("--container reports --account acme", "azure/acme/container/reports"),
            ("--queue jobs --account acme", "azure/acme/queue/jobs"),
            ("--share team --account acme", "azure/acme/share/team"),
        ] {
            assert_eq!(named(line, &[]).as_deref(), Ok(lock), "{line}");
        }
    }

    #[test]
    fn account_comes_from_environment_of_daemon() {
        for (variable, value, account) in [
            (ACCOUNT_URL, "https://acme.blob.core.windows.net", "acme"),
            (ACCOUNT_URL, "https://acme.privatelink.blob.core.windows.net/?sig=mysecret", "acme"),
            (ACCOUNT_URL, "http://127.0.0.1:10000/devstoreaccount1/", "devstoreaccount1"),
            (ACCOUNT_URL, "https://ACME.blob.core.windows.net", "acme"),
            (CONNECTION_STRING, "UseDevelopmentStorage=true", "devstoreaccount1"),
            (CONNECTION_STRING, "AccountName=acme;UseDevelopmentStorage=TRUE", "devstoreaccount1"),
            (CONNECTION_STRING, "UseDevelopmentStorage=false;AccountName=acme", "acme"),
            (CONNECTION_STRING, "a=b; accountname = acme ;AccountKey=mysecret", "acme"),
            (
                CONNECTION_STRING,
                "BlobEndpoint=https://acme.blob.x/;SharedAccessSignature=sig=mysecret",
                "acme",
            ),
        ] {
            let lock = format!("azure/{account}/queue/jobs");
            assert_eq!(named("--queue jobs", &[(variable, value)]), Ok(lock), "{value}");
        }
        let given = [(ACCOUNT_URL, "https://acme.blob.core.windows.net")];
        let lock = named("--queue jobs --account other", &given);
        assert_eq!(lock.as_deref(), Ok("azure/other/queue/jobs"));
    }

    #[test]
    fn missing_parts_are_named_without_secrets() {
        for (line, environment, hint) in [
            ("--queue jobs", vec![], "the account is missing"),
            ("--queue jobs --account AccountKey=mysecret", vec![], "letters, digits and hyphens"),
            ("--queue AccountKey=mysecret --account acme", vec![], "lowercase letters"),
            ("--blob mysecret --account acme", vec![], "CONTAINER/BLOB"),
            (
                "--queue jobs",
                vec![(ACCOUNT_URL, "https://mysecret"), (CONNECTION_STRING, "mysecret")],
                "both name an account",
            ),
            ("--queue Jobs --account acme", vec![], "lowercase letters"),
            ("--table orders --queue jobs", vec![], "cannot be used with"),
            ("orders --queue jobs", vec![], "cannot be used with"),
            ("orders --account acme", vec![], "cannot be used with"),
            ("--queue jobs --partition p", vec![], "cannot be used with"),
            ("--partition p --account acme", vec![], "required"),
            ("", vec![], "required"),
        ] {
            let problem = if line.is_empty() {
                Line::try_parse_from(["x"]).unwrap_err().to_string()
            } else {
                named(line, &environment).unwrap_err()
            };
            assert!(problem.contains(hint), "{line}: {problem}");
            assert!(!problem.contains("mysecret"), "{problem}");
        }
    }

    #[test]
    fn text_without_account_is_refused_without_secrets() {
        for variable in [
            (ACCOUNT_URL, "https://mysecret.example/"),
            (ACCOUNT_URL, "mysecret://acme.blob.x/"),
            (CONNECTION_STRING, "AccountKey=mysecret"),
            (CONNECTION_STRING, "UseDevelopmentStorage=false"),
            (CONNECTION_STRING, "AccountName=acme;AccountName=other"),
            (CONNECTION_STRING, "AccountName=AccountKey=mysecret"),
            (ACCOUNT_URL, "https://acme.blob.core.windows.net/AccountKey=mysecret"),
            (ACCOUNT_URL, "https://acme.blob.core.windows.net/reports"),
            (ACCOUNT_URL, "http://127.0.0.1:10000/AccountKey=mysecret"),
            (ACCOUNT_URL, "http://user:mysecret@127.0.0.1:10000/devstoreaccount1"),
            (ACCOUNT_URL, "https://user:mysecret@acme.blob.core.windows.net"),
        ] {
            let problem = named("--queue jobs", &[variable]).unwrap_err();
            assert!(problem.contains("does not contain the account"), "{problem}");
            assert!(!problem.contains("mysecret"), "{problem}");
        }
    }
}

#[cfg(test)]
mod fuzz {
    use leasehold_azure_account::Account;
    use leasehold_fuzz::Fuzz;

    use super::*;

    /// Stand-in for a secret.
    const SECRET: &str = "aHVzaGh1c2g";

    const WORDS: &[&str] = &[
        SECRET,
        "https://acme.blob.core.windows.net",
        "http://127.0.0.1:10000/devstoreaccount1",
        "AccountName=acme;",
        "AccountKey=a2V5;",
        "BlobEndpoint=",
        "UseDevelopmentStorage=true;",
        "SharedAccessSignature=sv=1&sig=x",
        ".blob.",
        "://",
        "\\",
        "?",
        "#",
        "@",
    ];

    /// The client derives lock names from the account as it reads it. With another
    /// account, the command would acquire another lock.
    #[test]
    fn account_is_the_same_as_in_client() {
        Fuzz::new("designated-account").words(WORDS).max_bytes(400).run(|input| {
            let text = String::from_utf8_lossy(input);
            let mut outcomes = Vec::new();
            let string = format!("BlobEndpoint={text};AccountKey=a2V5");
            for (variable, string) in [(CONNECTION_STRING, &*text), (ACCOUNT_URL, &*string)] {
                let found = account_from(|asked| (asked == variable).then(|| text.to_string()));
                match found {
                    Ok(account) => {
                        assert!(is_account_name(&account), "{account}");
                        let read = Account::from_connection_string(string);
                        // In a connection string, a semicolon ends the URL.
                        if let Ok(read) = &read
                            && (variable == CONNECTION_STRING || !text.contains(';'))
                        {
                            assert_eq!(account, read.name(), "{text:?}");
                        }
                        outcomes.push(format!("{variable} {}", read.is_ok()));
                    }
                    Err(failure) => {
                        let message = format!("{failure:?}");
                        assert!(!message.contains(SECRET), "{message}");
                        outcomes.push(message);
                    }
                }
            }
            outcomes.join("|")
        });
    }
}
