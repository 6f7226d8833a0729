//! Elections on the command line, with daemons that share a storage account.

use leasehold_test_support::{
    Daemon,
    azurite::Azurite,
    election_cli::{
        POLITE, begin, begin_noting, candidates, code, leader, next_value, stderr, step_down, token,
    },
    rest::Rest,
};
use serde_json::{Value, json};

use crate::scene::Scene;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_that_was_announced_is_explained_as_it_was() {
    let scene = Scene::new().await;
    let daemon = scene.daemon(&[]);
    let options = ["--once", "--output", "json", "--ttl", "60s"];
    let (mut leading, mut notes) = begin_noting(&daemon, &options, POLITE);
    token(&mut leading);
    scene.proxy.cut();
    let error: Value = serde_json::from_str(&notes.until("\"error\"")).unwrap();
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
    let mut first = begin(&here, &["--value", "here"], POLITE);
    let low = token(&mut first);
    let mut observer = there.begin(&["observe", "jobs", "--output", "json"]);
    let mut last = None;
    assert_eq!(next_value(&mut observer, &mut last), "here");
    let state = leader(&there);
    assert_eq!(
        (&state["leader"]["local"], &state["leader"]["value"]),
        (&json!(false), &json!("here"))
    );
    let mut second = begin(&there, &["--value", "there"], POLITE);
    candidates(&there, 1).await;
    // The request is sent on to the leader's own daemon.
    let output = step_down(&there, "10m");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(first.line(), "asked");
    assert!(token(&mut second) > low);
    while next_value(&mut observer, &mut last) != "there" {}
    assert_eq!(leader(&here)["leader"]["value"], "there");
}
