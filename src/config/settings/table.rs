//! Table of all settings.

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

/// Returns whether this is `http://HOST:PORT`.
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

/// Returns whether this is a host name without a port.
fn is_host_name(text: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !text.is_empty() && text.len() <= 253 && text.bytes().all(is_valid)
}

/// All settings, in the order of the help.
pub const SETTINGS: &[Setting] = &[
    setting(
        "listen",
        Group::Listeners,
        "Address on which clients connect (repeatable)",
        Kind::Listeners { field: |config| &mut config.listen, is_required: true },
    ),
    setting(
        "http_listen",
        Group::Listeners,
        "Address that serves HTTP for probes and scripts: leaders of elections, /metrics, \
         /healthz and /readyz (repeatable); without any, HTTP is off",
        Kind::Listeners { field: |config| &mut config.http_listen, is_required: false },
    ),
    setting(
        "advertise",
        Group::Listeners,
        "Address of this daemon, stored with its leases so that clients of other daemons can send \
         `step-down` and `check` to it; by default that of a listener, which is used only on the \
         same host if it is loopback",
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
            format: |config| config.advertise.clone().unwrap_or_default(),
        },
    ),
    setting(
        "allow_remote",
        Group::Listeners,
        "Allow listeners that other machines can reach; there is no authentication, so any \
         process that connects can acquire and break locks",
        Kind::Switch(|config| &mut config.allow_remote),
    ),
    setting(
        "socket_mode",
        Group::Listeners,
        "Permission bits of Unix sockets, in octal",
        Kind::Text {
            allowed: "a string with an octal number from 0000 to 0777, such as \"0660\"",
            parse: |config, text| {
                let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
                config.socket_mode = mode.ok_or(None)?;
                Ok(())
            },
            format: |config| format!("{:04o}", config.socket_mode),
        },
    ),
    setting(
        "store",
        Group::Storage,
        "Store of the leases: this process (embedded) or a storage account (azure)",
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
            format: |config| config.store.name().to_owned(),
        },
    ),
    setting(
        "data_dir",
        Group::Storage,
        "Directory of the embedded store, for one daemon at a time",
        Kind::Text {
            allowed: "a directory's path",
            parse: |config, text| {
                if text.is_empty() || text.contains('\0') {
                    return Err(None);
                }
                config.data_dir = PathBuf::from(text);
                Ok(())
            },
            format: |config| config.data_dir.display().to_string(),
        },
    ),
    setting(
        "azure_account_url",
        Group::Azure,
        "URL of the storage account of the Azure store",
        Kind::Account,
    ),
    setting(
        "azure_connection_string",
        Group::Azure,
        "Connection string with the storage account and a credential, instead of azure_account_url",
        Kind::Secret {
            allowed: "a connection string as in the Azure portal, or \
                      \"UseDevelopmentStorage=true\" for Azurite on its default port",
            field: |config| &mut config.azure.connection_string,
            parse: |text| {
                leasehold_azure_account::Address::from_connection_string(text)?;
                Ok(SecretText::new(text))
            },
        },
    ),
    setting(
        "azure_account_key",
        Group::Azure,
        "Key of the storage account",
        Kind::Secret {
            allowed: "one of the account's two keys, in base64",
            field: |config| &mut config.azure.account_key,
            parse: |text| {
                leasehold_azure_account::check_key(text)?;
                Ok(SecretText::new(text))
            },
        },
    ),
    setting(
        "azure_sas",
        Group::Azure,
        "Shared access signature for the storage account or its container",
        Kind::Secret {
            allowed: "a query such as \"sv=...&sig=...\", with or without a question mark",
            field: |config| &mut config.azure.sas,
            parse: leasehold_azure_account::parse_sas,
        },
    ),
    setting(
        "azure_credential",
        Group::Azure,
        "Credential for the storage account; \"auto\" uses the configured connection string, \
         account key or shared access signature, else workload identity or a client secret from \
         the environment, else the managed identity of the machine, else the Azure CLI",
        Kind::Text {
            allowed: "\"auto\", \"connection-string\", \"account-key\", \"sas\", \
                      \"workload-identity\", \"client-secret\", \"managed-identity\" or \
                      \"azure-cli\"",
            parse: |config, text| {
                config.azure.credential = Credential::parse(text).ok_or(None)?;
                Ok(())
            },
            format: |config| config.azure.credential.name().to_owned(),
        },
    ),
    setting(
        "azure_container",
        Group::Azure,
        "Container of the locks, with one blob per lock",
        Kind::Text {
            allowed: azure::CONTAINER_ALLOWED,
            parse: |config, text| {
                config.azure.container = azure::container(text).ok_or(None)?;
                Ok(())
            },
            format: |config| config.azure.container.clone(),
        },
    ),
    setting(
        "azure_prefix",
        Group::Azure,
        "Prefix of the blobs' paths, so that a container can hold several sets of locks",
        Kind::Text {
            allowed: azure::PREFIX_ALLOWED,
            parse: |config, text| {
                config.azure.prefix = azure::prefix(text).ok_or(None)?;
                Ok(())
            },
            format: |config| config.azure.prefix.clone(),
        },
    ),
    setting(
        "azure_protect_container",
        Group::Azure,
        "Hold a lease on the container, which prevents its accidental deletion",
        Kind::Switch(|config| &mut config.azure.protect_container),
    ),
    setting(
        "gc_after",
        Group::Azure,
        "Idle time after which a lock's blob is deleted; 0s disables garbage collection",
        Kind::Text {
            allowed: "\"0s\", or a duration from \"1h\" to \"3650d\"",
            parse: |config, text| {
                let idle = humantime::parse_duration(text).map_err(|_| None)?;
                let range = Duration::from_hours(1)..=Duration::from_hours(3650 * 24);
                config.azure.gc_after = match idle {
                    idle if idle.is_zero() || range.contains(&idle) => idle,
                    _ => return Err(None),
                };
                Ok(())
            },
            format: |config| humantime::format_duration(config.azure.gc_after).to_string(),
        },
    ),
    setting(
        "default_ttl",
        Group::Timing,
        "TTL of sessions that request none; if unset, lowered to max_ttl where necessary",
        Kind::Duration(|config| &mut config.default_ttl, seconds(1, 60)),
    ),
    setting(
        "max_ttl",
        Group::Timing,
        "Maximum TTL of a session; longer requests are refused, and after a crash the embedded \
         store grants nothing until the longest TTL in use has elapsed",
        Kind::Duration(|config| &mut config.max_ttl, seconds(1, 60)),
    ),
    setting(
        "drain_timeout",
        Group::Timing,
        "Time for holders to release their locks at shutdown",
        Kind::Duration(|config| &mut config.drain_timeout, seconds(0, 300)),
    ),
    setting(
        "lease_duration",
        Group::Timing,
        "Duration of leases in the storage account, in whole seconds",
        Kind::Duration(|config| &mut config.lease_duration, lease::LEASE_DURATIONS),
    ),
    setting(
        "linger",
        Group::Timing,
        "Time for which to keep an unused lease after its last local holder released the lock, to \
         save storage calls if a client of this daemon acquires it again; delays peers by as much",
        Kind::Duration(|config| &mut config.linger, seconds(0, 60)),
    ),
    setting(
        "poll_interval",
        Group::Timing,
        "Maximum interval between polls of a lease that a peer holds",
        Kind::Duration(
            |config| &mut config.poll_interval,
            Duration::from_millis(500)..=Duration::from_secs(60),
        ),
    ),
    setting(
        "max_connections",
        Group::Limits,
        "Maximum number of concurrent connections",
        Kind::Number(|config| &mut config.max_connections, 1..=1_000_000),
    ),
    setting(
        "max_sessions",
        Group::Limits,
        "Maximum number of concurrent sessions",
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
        "Number of threads that serve clients; 1 is fastest for most workloads",
        Kind::Number(|config| &mut config.threads, 1..=64),
    ),
    setting(
        "reflection",
        Group::Running,
        "Serve gRPC reflection, for tools such as grpcurl",
        Kind::Switch(|config| &mut config.reflection),
    ),
    setting(
        "history",
        Group::Running,
        "Maximum number of lock events that are kept in memory for `explain` and `top`; 0 keeps \
         none",
        Kind::Number(|config| &mut config.history, 0..=1_000_000),
    ),
    setting(
        "console",
        Group::Running,
        "Serve a read-only web console at / on the HTTP listeners; like everything else, it has no \
         authentication",
        Kind::Switch(|config| &mut config.console),
    ),
    setting(
        "console_hosts",
        Group::Running,
        "Host names under which browsers request the console, besides IP addresses, localhost and \
         the name in advertise; others are refused, because a foreign site could use its own name",
        Kind::Text {
            allowed: "host names separated by commas, without ports",
            parse: |config, text| {
                let hosts = text.split(',').map(str::trim).filter(|host| !host.is_empty());
                let hosts: Vec<String> = hosts.map(str::to_owned).collect();
                if hosts.len() > 32 || !hosts.iter().all(|host| is_host_name(host)) {
                    return Err(None);
                }
                config.console_hosts = hosts;
                Ok(())
            },
            format: |config| config.console_hosts.join(","),
        },
    ),
    setting(
        "metrics_lock_names",
        Group::Running,
        "Maximum number of locks with time series of their own in /metrics; all others share one",
        Kind::Number(|config| &mut config.metrics_lock_names, 0..=10_000),
    ),
    setting(
        "log",
        Group::Running,
        "Log filter: a level, or directives per target",
        Kind::Text {
            allowed: "a level (error, warn, info, debug, trace, off), or directives such as \
                      \"info,leasehold_azure_store=debug\"",
            parse: |config, text| {
                telemetry::parse_filter(text).map_err(Some)?;
                text.clone_into(&mut config.log);
                Ok(())
            },
            format: |config| config.log.clone(),
        },
    ),
    setting(
        "log_format",
        Group::Running,
        "Format of log lines",
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
            format: |config| config.log_format.name().to_owned(),
        },
    ),
];
