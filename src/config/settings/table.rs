//! The table of all that can be set.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use super::{Group, Kind, Setting};
use crate::{
    config::{Credential, LogFormat, SecretText, Store, azure},
    telemetry,
};
use leasehold_store as lease;

const fn setting(key: &'static str, group: Group, about: &'static str, kind: Kind) -> Setting {
    Setting { key, group, about, kind }
}

const fn seconds(from: u64, to: u64) -> RangeInclusive<Duration> {
    Duration::from_secs(from)..=Duration::from_secs(to)
}

/// Whether this is `http://HOST:PORT`.
fn is_advertisable(text: &str) -> bool {
    let Some((host, port)) = text.strip_prefix("http://").and_then(|at| at.rsplit_once(':')) else {
        return false;
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    text.len() <= 200
        && !host.is_empty()
        && host.bytes().all(is_host)
        && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// All that can be set, in the order in which it is shown.
pub const SETTINGS: &[Setting] = &[
    setting(
        "listen",
        Group::Listeners,
        "Address on which clients connect (repeatable)",
        Kind::Listeners { field: |config| &mut config.listen, needed: true },
    ),
    setting(
        "http_listen",
        Group::Listeners,
        "Where HTTP is served for probes and scripts: who leads an election, /healthz and \
         /readyz. Several are possible; without any it is off",
        Kind::Listeners { field: |config| &mut config.http_listen, needed: false },
    ),
    setting(
        "advertise",
        Group::Listeners,
        "Address of this daemon that is stored with its leases, so that `step-down` and `check` \
         sent to another daemon reach it. By default the address of a listener; one on loopback \
         is used only on the same host",
        Kind::Text {
            allowed: "\"http://HOST:PORT\" with at most 200 characters, or \"\" for the default",
            parse: |config, text| {
                config.advertise = match text {
                    "" => None,
                    _ if is_advertisable(text) => Some(text.to_owned()),
                    _ => return Err(None),
                };
                Ok(())
            },
            show: |config| config.advertise.clone().unwrap_or_default(),
        },
    ),
    setting(
        "allow_remote",
        Group::Listeners,
        "Allow listeners that other machines can reach. There is no authentication: \
         anyone who can connect can take and break locks",
        Kind::Switch(|config| &mut config.allow_remote),
    ),
    setting(
        "socket_mode",
        Group::Listeners,
        "The permission bits of Unix sockets",
        Kind::Text {
            allowed: "an octal number from 0000 to 0777, in a file as a string such as \"0660\"",
            parse: |config, text| {
                let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
                config.socket_mode = mode.ok_or(None)?;
                Ok(())
            },
            show: |config| format!("{:04o}", config.socket_mode),
        },
    ),
    setting(
        "store",
        Group::Storage,
        "Where leases are kept",
        Kind::Text {
            allowed: "\"embedded\" or \"azure\"",
            parse: |config, text| {
                config.store = match text {
                    "embedded" => Store::Embedded,
                    "azure" => Store::Azure,
                    _ => return Err(None),
                };
                Ok(())
            },
            show: |config| config.store.name().to_owned(),
        },
    ),
    setting(
        "data_dir",
        Group::Storage,
        "The directory of the embedded store; one daemon at a time uses it",
        Kind::Text {
            allowed: "the path of a directory",
            parse: |config, text| {
                if text.is_empty() || text.contains('\0') {
                    return Err(None);
                }
                config.data_dir = PathBuf::from(text);
                Ok(())
            },
            show: |config| config.data_dir.display().to_string(),
        },
    ),
    setting(
        "azure_account_url",
        Group::Azure,
        "The storage account of the Azure store",
        Kind::Account,
    ),
    setting(
        "azure_connection_string",
        Group::Azure,
        "The storage account and a credential for it, in place of azure_account_url",
        Kind::Secret {
            allowed: "a connection string as the portal shows it, or \
                      \"UseDevelopmentStorage=true\" for Azurite on its usual port",
            field: |config| &mut config.azure.connection_string,
            read: |text| {
                leasehold_azure_account::Address::of_connection_string(text)?;
                Ok(SecretText::new(text))
            },
        },
    ),
    setting(
        "azure_account_key",
        Group::Azure,
        "The key of the storage account",
        Kind::Secret {
            allowed: "one of the account's two keys, in base64",
            field: |config| &mut config.azure.account_key,
            read: |text| {
                leasehold_azure_account::check_key(text)?;
                Ok(SecretText::new(text))
            },
        },
    ),
    setting(
        "azure_sas",
        Group::Azure,
        "A shared access signature for the storage account or its container",
        Kind::Secret {
            allowed: "a query such as \"sv=...&sig=...\", with or without a question mark",
            field: |config| &mut config.azure.sas,
            read: leasehold_azure_account::parse_sas,
        },
    ),
    setting(
        "azure_credential",
        Group::Azure,
        "How the daemon proves who it is. With \"auto\": by a connection string, an account key \
         or a shared access signature, whichever is given; else by what the environment has for \
         workload identity or a client secret; else by the machine's managed identity; else by \
         the Azure CLI",
        Kind::Text {
            allowed: "\"auto\", \"connection-string\", \"account-key\", \"sas\", \
                      \"workload-identity\", \"client-secret\", \"managed-identity\" or \
                      \"azure-cli\"",
            parse: |config, text| {
                config.azure.credential = Credential::parse(text).ok_or(None)?;
                Ok(())
            },
            show: |config| config.azure.credential.name().to_owned(),
        },
    ),
    setting(
        "azure_container",
        Group::Azure,
        "The container that has the locks, one blob for each",
        Kind::Text {
            allowed: azure::CONTAINER_ALLOWED,
            parse: |config, text| {
                config.azure.container = azure::container(text).ok_or(None)?;
                Ok(())
            },
            show: |config| config.azure.container.clone(),
        },
    ),
    setting(
        "azure_prefix",
        Group::Azure,
        "What the blobs' paths begin with, so that a container can have several sets of locks",
        Kind::Text {
            allowed: azure::PREFIX_ALLOWED,
            parse: |config, text| {
                config.azure.prefix = azure::prefix(text).ok_or(None)?;
                Ok(())
            },
            show: |config| config.azure.prefix.clone(),
        },
    ),
    setting(
        "azure_protect_container",
        Group::Azure,
        "Keep a lease on the container, so that nobody deletes it by accident",
        Kind::Switch(|config| &mut config.azure.protect_container),
    ),
    setting(
        "gc_after",
        Group::Azure,
        "Delete the blobs of locks that were idle for this long; 0s for never",
        Kind::Text {
            allowed: "\"0s\", or a length of time from \"1h\" to \"3650d\"",
            parse: |config, text| {
                let length = text.parse::<humantime::Duration>().map_err(|_| None)?;
                let hours = Duration::from_hours(1)..=Duration::from_hours(3650 * 24);
                config.azure.gc_after = match *length {
                    length if length.is_zero() || hours.contains(&length) => length,
                    _ => return Err(None),
                };
                Ok(())
            },
            show: |config| humantime::format_duration(config.azure.gc_after).to_string(),
        },
    ),
    setting(
        "default_ttl",
        Group::Timing,
        "The ttl of sessions that ask for none; if not set, no longer than max_ttl",
        Kind::Length(|config| &mut config.default_ttl, seconds(1, 60)),
    ),
    setting(
        "max_ttl",
        Group::Timing,
        "The longest ttl of a session; who asks for more is refused. After a crash, \
         nothing is granted for the longest ttl that was in use",
        Kind::Length(|config| &mut config.max_ttl, seconds(1, 60)),
    ),
    setting(
        "drain_timeout",
        Group::Timing,
        "Time that holders have to release their locks at shutdown",
        Kind::Length(|config| &mut config.drain_timeout, seconds(0, 300)),
    ),
    setting(
        "lease_duration",
        Group::Timing,
        "Duration of leases, in stores whose leases expire",
        Kind::Length(|config| &mut config.lease_duration, lease::DURATIONS),
    ),
    setting(
        "linger",
        Group::Timing,
        "How long to keep an unused lease after its last local holder released the lock. Saves \
         storage calls if a client of this daemon acquires it again; delays peers by the same time",
        Kind::Length(|config| &mut config.linger, seconds(0, 60)),
    ),
    setting(
        "poll_interval",
        Group::Timing,
        "Maximum interval between polls of a lease that a peer holds",
        Kind::Length(
            |config| &mut config.poll_interval,
            Duration::from_millis(500)..=Duration::from_secs(60),
        ),
    ),
    setting(
        "max_connections",
        Group::Limits,
        "Maximum number of connections",
        Kind::Number(|config| &mut config.max_connections, 1..=1_000_000),
    ),
    setting(
        "max_sessions",
        Group::Limits,
        "Maximum number of sessions",
        Kind::Number(|config| &mut config.max_sessions, 1..=10_000_000),
    ),
    setting(
        "max_locks",
        Group::Limits,
        "Maximum number of locks that have a holder or a waiter",
        Kind::Number(|config| &mut config.max_locks, 1..=100_000_000),
    ),
    setting(
        "max_waiters_per_lock",
        Group::Limits,
        "Maximum number of acquires that wait for one lock",
        Kind::Number(|config| &mut config.max_waiters_per_lock, 1..=10_000_000),
    ),
    setting(
        "max_locks_per_session",
        Group::Limits,
        "Maximum number of locks that one session holds or waits for",
        Kind::Number(|config| &mut config.max_locks_per_session, 1..=100_000_000),
    ),
    setting(
        "max_storage_calls",
        Group::Limits,
        "Maximum number of concurrent calls to the storage account",
        Kind::Number(|config| &mut config.azure.max_storage_calls, 1..=1000),
    ),
    setting(
        "threads",
        Group::Running,
        "How many threads serve clients; with 1, everything runs on one thread, which \
         is fastest for most",
        Kind::Number(|config| &mut config.threads, 1..=64),
    ),
    setting(
        "reflection",
        Group::Running,
        "Serve gRPC reflection, for tools such as grpcurl",
        Kind::Switch(|config| &mut config.reflection),
    ),
    setting(
        "log",
        Group::Running,
        "Log filter: a level, or directives for targets",
        Kind::Text {
            allowed: "a level (error, warn, info, debug, trace, off), or directives such as \
                      \"info,leasehold_azure_store=debug\"",
            parse: |config, text| {
                telemetry::parse_filter(text).map_err(Some)?;
                text.clone_into(&mut config.log);
                Ok(())
            },
            show: |config| config.log.clone(),
        },
    ),
    setting(
        "log_format",
        Group::Running,
        "Log format",
        Kind::Text {
            allowed: "\"text\" or \"json\"",
            parse: |config, text| {
                config.log_format = match text {
                    "text" => LogFormat::Text,
                    "json" => LogFormat::Json,
                    _ => return Err(None),
                };
                Ok(())
            },
            show: |config| config.log_format.name().to_owned(),
        },
    ),
];
