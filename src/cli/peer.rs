//! Advice for a request that only another daemon can serve.

use leasehold_client::DaemonInfo;

use super::output::printable;

/// Names the daemon that can serve the request, and the option that selects it.
pub(super) fn advice(peer: Option<&DaemonInfo>) -> String {
    let Some(peer) = peer else {
        return "repeat the command with --endpoint of the holder's daemon".to_owned();
    };
    let description = Some(printable(&peer.description)).filter(|text| !text.is_empty());
    let daemon =
        description.map_or("the holder's daemon".to_owned(), |text| format!("daemon {text}"));
    match (&peer.endpoint, &peer.host) {
        (Some(endpoint), Some(host)) => format!(
            "{daemon} could not be reached from here; on host {}, repeat the command with \
             --endpoint {}",
            printable(host),
            printable(endpoint)
        ),
        (Some(endpoint), None) => format!(
            "{daemon} did not respond; repeat the command with --endpoint {}",
            printable(endpoint)
        ),
        (None, _) => format!("repeat the command with --endpoint of {daemon}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_daemon_and_address() {
        let peer = |endpoint: Option<&str>, host: Option<&str>| DaemonInfo {
            description: "vm (pid 7)".to_owned(),
            endpoint: endpoint.map(str::to_owned),
            host: host.map(str::to_owned),
        };
        let loopback = peer(Some("http://127.0.0.1:1"), Some("vm"));
        assert_eq!(
            advice(Some(&loopback)),
            "daemon vm (pid 7) could not be reached from here; on host vm, repeat the command with \
             --endpoint http://127.0.0.1:1"
        );
        let routable = advice(Some(&peer(Some("http://10.0.0.5:1"), None)));
        assert!(routable.ends_with("--endpoint http://10.0.0.5:1"), "{routable}");
        let unknown = advice(Some(&peer(None, None)));
        assert_eq!(unknown, "repeat the command with --endpoint of daemon vm (pid 7)");
        assert!(advice(None).contains("--endpoint"));
    }
}
