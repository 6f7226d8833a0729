//! HTTP endpoint of daemons that share a storage account.

use std::sync::Arc;

use leasehold_test_support::{
    Daemon, Running,
    azurite::Azurite,
    http_endpoint::{HttpDaemon, LONG, campaign},
    program, until,
};
use serde_json::{Value, json};
use tempfile::TempDir;

#[tokio::test]
async fn http_reports_peer_leaders_and_storage_outage() {
    let mut azurite = Azurite::start();
    let start = || {
        let mut command = program();
        command.args(["serve", "--store", "azure", "--listen", "127.0.0.1:0"]);
        command.args(["--http-listen", "127.0.0.1:0", "--log", "error"]);
        command.env("LEASEHOLD_AZURE_CONNECTION_STRING", azurite.connection_string());
        let mut process = Running::start(&mut command);
        let endpoint = process.line().replace("listening on ", "http://");
        HttpDaemon::of(Daemon { process, endpoint, dir: Arc::new(TempDir::new().unwrap()) })
    };
    let (here, there) = (start(), start());
    let leadership = campaign(&here.client(LONG).await, "at the first").await;
    assert_eq!(here.check_local_leader().await.status, 200);
    assert_eq!(there.check_local_leader().await.status, 503);
    let leader = &there.leader().await;
    assert_eq!(leader["value"], "at the first");
    assert_eq!(leader["token"], leadership.token().get());
    assert_eq!((&leader["local"], &leader["session_id"]), (&json!(false), &Value::Null));
    assert!(leader["daemon"].is_string(), "{leader}");
    assert_eq!(leader["holder"]["client"], "test 1");

    azurite.stop();
    let reply = there.get("/v1/elections/default/scheduler").await;
    assert_eq!((reply.status, reply.reason().as_str()), (503, "STORE_UNAVAILABLE"));
    assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1, "{reply:?}");
    // A local leader is known without the storage.
    assert_eq!(here.check_local_leader().await.status, 200);
    assert_eq!(there.get("/healthz").await.status, 200);
    azurite.restart();
    until(async || {
        let reply = there.get("/v1/elections/default/scheduler").await;
        (reply.json()["leader"]["value"] == "at the first").then_some(())
    })
    .await;
    leadership.resign().await.unwrap();
}
