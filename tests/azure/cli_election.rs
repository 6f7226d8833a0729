//! Elections on the command line, with daemons that share a storage account.

use leasehold_test_support::{
    Daemon,
    azurite::Azurite,
    election_cli::{
        EXITS_ON_SIGTERM, begin, begin_with_stderr, candidates, code, leader, next_value, stderr,
        step_down, token,
    },
    rest::Rest,
};
use serde_json::{Value, json};

use crate::fixture::Fixture;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announced_loss_keeps_cause() {
    let fixture = Fixture::new().await;
    let daemon = fixture.daemon(&[]);
    let options = ["--once", "--output", "json", "--ttl", "60s"];
    let (mut leading, mut messages) = begin_with_stderr(&daemon, &options, EXITS_ON_SIGTERM);
    token(&mut leading);
    fixture.proxy.cut();
    let error: Value = serde_json::from_str(&messages.until("\"error\"")).unwrap();
    assert_eq!(error["error"]["reason"], "store_unavailable", "{error}");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("lease renewals are failing"), "{message}");
    assert_eq!(leading.code(), Some(73));
}

#[tokio::test]
async fn candidates_at_two_daemons_lead_in_turn() {
    const CONTAINER: &str = "elections";
    let azurite = Azurite::shared();
    Rest::new(azurite).container(CONTAINER).create().await.ok();
    let account = azurite.connection_string();
    let options = ["--store", "azure", "--azure-connection-string", &account];
    let options = [&options[..], &["--azure-container", CONTAINER, "--poll-interval", "500ms"]];
    let start = || Daemon::start_with(&options.concat());
    let (here, there) = (start(), start());
    let mut first = begin(&here, &["--value", "here"], EXITS_ON_SIGTERM);
    let low = token(&mut first);
    let mut observer = there.begin(&["observe", "jobs", "--output", "json"]);
    let mut last = None;
    assert_eq!(next_value(&mut observer, &mut last), "here");
    let state = leader(&there);
    assert_eq!(
        (&state["leader"]["local"], &state["leader"]["value"]),
        (&json!(false), &json!("here"))
    );
    let mut second = begin(&there, &["--value", "there"], EXITS_ON_SIGTERM);
    candidates(&there, 1).await;
    // The daemon forwards the request to the leader's daemon.
    let output = step_down(&there, "10m");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(first.line(), "asked");
    assert!(token(&mut second) > low);
    while next_value(&mut observer, &mut last) != "there" {}
    assert_eq!(leader(&here)["leader"]["value"], "there");
}
