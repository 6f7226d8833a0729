//! Faults of the fault proxy, as the client and Azurite observe them.

use leasehold_test_support::{
    azurite::Azurite,
    proxy::{Fault, Kind, Match, Proxy, Refusal},
    rest::{Blob, Container, Rest},
};
use std::{io::ErrorKind, net::Ipv4Addr, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

const ID: &str = "0c1f4f0e-2f6b-4b8e-9a51-3a2c5d7e9f10";
const LATER: Duration = Duration::from_millis(200);

/// A proxy in front of the shared Azurite, and a container with and without the proxy.
struct Fixture {
    proxy: Proxy,
    through: Container,
    direct: Container,
}

impl Fixture {
    async fn new(container: &str) -> Self {
        let azurite = Azurite::shared();
        let proxy = Proxy::start(azurite.port());
        let through = Rest::at(proxy.port()).container(container);
        let direct = Rest::new(azurite).container(container);
        direct.create().await.ok();
        Self { proxy, through, direct }
    }

    /// Creates a blob. Returns it with and without the proxy.
    async fn blob(&self, path: &str) -> (Blob, Blob) {
        let direct = self.direct.blob(path);
        direct.put().await.ok();
        (self.through.blob(path), direct)
    }
}

async fn connect(port: u16) -> std::io::Result<TcpStream> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await
}

#[tokio::test]
async fn calls_are_classified() {
    let Fixture { proxy, through, direct: _ } = Fixture::new("kinds").await;
    let blob = through.blob("locks/default/a b");
    through.head().await.ok();
    blob.put().if_none_match("*").await.ok();
    let etag = blob.head().await.ok().etag().to_owned();
    blob.get().await.ok();
    blob.acquire(ID, 15).await.ok();
    blob.renew(ID).await.ok();
    blob.set_metadata().lease(ID).if_match(&etag).await.ok();
    blob.change(ID, ID).await.ok();
    blob.release(ID).await.ok();
    blob.break_lease(None).await;
    through.list().await.ok();
    blob.delete().await.ok();
    through.acquire(ID, 15).await.ok();
    // Path as the SDK sends it. The request is not signed.
    let mut client = connect(proxy.port()).await.unwrap();
    let request =
        b"HEAD /devstoreaccount1/kinds/locks%2Fdefault%2Fa%20b HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(request).await.unwrap();
    proxy.wait_for(|seen| seen.status == Some(403)).await;

    let calls = proxy.calls();
    let seen: Vec<_> = calls.iter().map(|seen| (seen.kind, seen.blob.as_str())).collect();
    let blob = "locks/default/a b";
    let expected = [
        (Kind::Container, ""),
        (Kind::Create, blob),
        (Kind::Read, blob),
        (Kind::Read, blob),
        (Kind::Acquire, blob),
        (Kind::Renew, blob),
        (Kind::Write, blob),
        (Kind::Change, blob),
        (Kind::Release, blob),
        (Kind::Break, blob),
        (Kind::List, ""),
        (Kind::Delete, blob),
        (Kind::Container, ""),
        (Kind::Read, blob),
    ];
    assert_eq!(seen, expected);
    for seen in &calls {
        assert_eq!(seen.container, "kinds");
        assert_eq!((seen.status, seen.fault), (seen.upstream_status, None));
        assert!(seen.ended_at.unwrap() >= seen.received_at);
        let conditions = (seen.with_lease_id, seen.if_match, seen.if_none_match);
        match seen.kind {
            Kind::Write => assert_eq!(conditions, (true, true, false)),
            Kind::Create => assert_eq!(conditions, (false, false, true)),
            Kind::Read => assert_eq!(conditions, (false, false, false)),
            _ => {}
        }
    }
    assert!(calls.is_sorted_by_key(|seen| seen.received_at));
    let counts = [Kind::Read.into(), Kind::Renew.of("/a"), Kind::Renew.of("/b"), Match::any()];
    assert_eq!(counts.map(|what| proxy.count(what)), [3, 1, 0, 14]);
    proxy.clear();
    assert!(proxy.calls().is_empty());
}

#[tokio::test]
async fn delayed_call_is_applied_after_client_cancels() {
    let fixture = Fixture::new("latecall").await;
    let proxy = &fixture.proxy;
    proxy.when(Kind::Create.of("delayed")).then(Fault::Delay(LATER));
    fixture.through.blob("delayed").put().await.ok();
    let seen = &proxy.calls()[0];
    assert!(seen.ended_at.unwrap().since(seen.received_at) >= LATER);

    proxy.when(Kind::Create.of("held")).then(Fault::Hold);
    let client = tokio::spawn(fixture.through.blob("held").put().send());
    proxy.wait_for(|seen| seen.blob == "held").await;
    assert!(!client.is_finished());
    client.abort();
    let seen = proxy.wait_for(|seen| seen.blob == "held" && seen.is_done()).await;
    assert_eq!((seen.status, seen.upstream_status), (None, None));
    assert_eq!(fixture.direct.blob("held").head().await.status, 404);
    proxy.release_held();
    let seen = proxy.wait_for(|seen| seen.blob == "held" && seen.upstream_status.is_some()).await;
    assert_eq!((seen.status, seen.upstream_status), (None, Some(201)));
    fixture.direct.blob("held").head().await.ok();
}

#[tokio::test]
async fn delayed_response_follows_applied_call() {
    let fixture = Fixture::new("lateanswer").await;
    let (through, direct) = fixture.blob("locks/default/x").await;
    fixture.proxy.when(Kind::Acquire).times(1).then(Fault::HoldResponse);
    let client = tokio::spawn(through.acquire(ID, 15).into_future());
    let seen = fixture.proxy.wait_for(|seen| seen.upstream_status.is_some()).await;
    assert!(!seen.is_done());
    assert_eq!(direct.head().await.lease_state(), "leased");
    assert!(!client.is_finished());
    fixture.proxy.release_held();
    assert_eq!(client.await.unwrap().status, 201);

    fixture.proxy.when(Kind::Renew).then(Fault::DelayResponse(LATER));
    through.renew(ID).await.ok();
    let seen = &fixture.proxy.calls()[1];
    assert!(seen.ended_at.unwrap().since(seen.received_at) >= LATER);
}

#[tokio::test]
async fn dropped_response_leaves_call_applied() {
    let fixture = Fixture::new("dropanswer").await;
    let (through, direct) = fixture.blob("locks/default/x").await;
    fixture.proxy.when(Kind::Acquire).times(1).then(Fault::DropResponse);
    through.acquire(ID, 15).send().await.unwrap_err();
    assert_eq!(direct.head().await.lease_state(), "leased");
    let seen = fixture.proxy.wait_for(|seen| seen.is_done()).await;
    assert_eq!((seen.status, seen.upstream_status), (None, Some(201)));
    assert_eq!(seen.fault, Some(Fault::DropResponse));
    assert_eq!(through.acquire(ID, 15).await.status, 201, "once only");
}

#[tokio::test]
async fn reset_call_is_not_applied() {
    let fixture = Fixture::new("reset").await;
    let (through, direct) = fixture.blob("locks/default/x").await;
    fixture.proxy.when(Kind::Acquire).times(1).then(Fault::Reset);
    through.acquire(ID, 15).send().await.unwrap_err();
    assert_eq!(direct.head().await.lease_state(), "available");
    assert_eq!(fixture.proxy.calls()[0].upstream_status, None);

    fixture.proxy.when(Kind::Read).then(Fault::Reset);
    let mut client = connect(fixture.proxy.port()).await.unwrap();
    client.write_all(b"HEAD /a/reset/x HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let error = client.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn swallowed_call_is_not_applied() {
    let fixture = Fixture::new("swallow").await;
    let (through, direct) = fixture.blob("locks/default/x").await;
    fixture.proxy.when(Kind::Acquire).then(Fault::Swallow);
    let client = tokio::spawn(through.acquire(ID, 15).send());
    fixture.proxy.wait_for(|seen| seen.kind == Kind::Acquire).await;
    assert_eq!(direct.head().await.lease_state(), "available");
    assert!(!client.is_finished());
    assert!(!fixture.proxy.calls()[0].is_done());
    client.abort();
    let seen = fixture.proxy.wait_for(|seen| seen.is_done()).await;
    assert_eq!((seen.status, seen.upstream_status), (None, None));
}

#[tokio::test]
async fn refusals_match_storage_format() {
    let fixture = Fixture::new("refusals").await;
    let (through, direct) = fixture.blob("locks/default/x").await;
    let busy = Refusal::busy(Duration::from_secs(7));
    for refusal in [busy, Refusal::INTERNAL_ERROR, Refusal::FORBIDDEN] {
        let rule = fixture.proxy.when(Match::any()).then(Fault::Refuse(refusal));
        let reply = through.acquire(ID, 15).await;
        assert_eq!(reply.is(), (refusal.status, refusal.code));
        assert!(reply.body.contains(&format!("<Code>{}</Code>", refusal.code)), "{reply:?}");
        let retry_after = refusal.retry_after.map(|after| after.as_secs().to_string());
        assert_eq!(reply.header("retry-after"), retry_after.as_deref());
        assert!(reply.header("date").is_some());
        let reply = through.head().await;
        assert_eq!((reply.is(), reply.body.as_str()), ((refusal.status, refusal.code), ""));
        fixture.proxy.remove(rule);
    }
    assert!(fixture.proxy.calls().iter().all(|seen| seen.upstream_status.is_none()));
    assert_eq!(direct.head().await.lease_state(), "available");

    let fault = Fault::ApplyThenRefuse(Refusal::INTERNAL_ERROR);
    fixture.proxy.when(Kind::Acquire).then(fault);
    assert_eq!(through.acquire(ID, 15).await.is(), (500, "InternalError"));
    assert_eq!(direct.head().await.lease_state(), "leased");
}

#[tokio::test]
async fn duplicate_arrives_late() {
    let fixture = Fixture::new("duplicate").await;
    let (through, direct) = fixture.blob("locks/default/x").await;
    through.acquire(ID, 15).await.ok();
    fixture.proxy.when(Kind::Release).times(1).then(Fault::HoldDuplicate);
    assert_eq!(through.release(ID).await.status, 200);
    // Reuse the ID: the duplicate releases the new lease. The product never reuses an ID.
    direct.acquire(ID, 15).await.ok();
    fixture.proxy.release_held();
    let seen = fixture.proxy.wait_for(|seen| seen.duplicate_status.is_some()).await;
    assert_eq!(
        (seen.status, seen.upstream_status, seen.duplicate_status),
        (Some(200), Some(200), Some(200))
    );
    assert_eq!(direct.head().await.lease_state(), "available");

    fixture.proxy.clear();
    through.acquire(ID, 15).await.ok();
    fixture.proxy.when(Kind::Release).then(Fault::Duplicate { after: LATER });
    assert_eq!(through.release(ID).await.status, 200);
    let seen = fixture.proxy.wait_for(|seen| seen.duplicate_status.is_some()).await;
    assert_eq!(
        (seen.status, seen.upstream_status, seen.duplicate_status),
        (Some(200), Some(200), Some(409))
    );
}

#[tokio::test]
async fn response_header_is_replaced() {
    let fixture = Fixture::new("header").await;
    let (through, direct) = fixture.blob("locks/default/x").await;
    let value = "Fri, 01 Jan 2100 00:00:00 GMT";
    fixture.proxy.when(Kind::Read).then(Fault::Header { name: "date", value });
    let reply = through.head().await.ok();
    assert_eq!(reply.headers.get_all("date").iter().collect::<Vec<_>>(), [value]);
    assert_eq!(reply.etag(), direct.head().await.etag());
}

#[tokio::test]
async fn rules_count_skip_and_end() {
    let Fixture { proxy, through, direct: _ } = Fixture::new("rules").await;
    let answer = |status| Fault::Refuse(Refusal::new(status, "Rule"));
    proxy.when(Kind::Read.of("/a")).nth(2).times(2).then(answer(501));
    let second = proxy.when(Kind::Read).then(answer(502));
    let statuses = async |path: &str, count: usize| {
        let mut statuses = Vec::new();
        for _ in 0..count {
            statuses.push(through.blob(path).head().await.status);
        }
        statuses
    };
    assert_eq!(statuses("x/b", 2).await, [502, 502], "the first rule does not match");
    assert_eq!(
        statuses("x/a", 4).await,
        [404, 501, 501, 502],
        "the second and third match, then the next rule"
    );
    proxy.remove(second);
    assert_eq!(statuses("x/a", 1).await, [404]);
    proxy.when(Match::any()).then(answer(503));
    assert_eq!(statuses("x/a", 1).await, [503]);
    proxy.heal();
    assert_eq!(statuses("x/a", 1).await, [404]);
}

#[tokio::test]
async fn cut_resets_and_refuses_until_healed() {
    let fixture = Fixture::new("cutlink").await;
    let (through, direct) = fixture.blob("locks/default/x").await;
    let mut idle = connect(fixture.proxy.port()).await.unwrap();
    fixture.proxy.when(Kind::Acquire).then(Fault::Swallow);
    let waiting = tokio::spawn(through.acquire(ID, 15).send());
    fixture.proxy.wait_for(|seen| seen.kind == Kind::Acquire).await;

    for _ in 0..2 {
        fixture.proxy.cut();
        let refused = connect(fixture.proxy.port()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
    waiting.await.unwrap().unwrap_err();
    assert_eq!(idle.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(direct.head().await.lease_state(), "available");

    for _ in 0..2 {
        fixture.proxy.heal();
        through.acquire(ID, 15).await.ok();
    }
}

#[tokio::test]
async fn stalled_link_passes_nothing() {
    let fixture = Fixture::new("stalled").await;
    let proxy = &fixture.proxy;
    proxy.stall();
    let put = |name: &str| tokio::spawn(fixture.through.blob(name).put().send());
    let (kept, canceled) = (put("kept"), put("canceled"));
    proxy.wait_for_many(2, |seen| seen.kind == Kind::Create).await;
    canceled.abort();
    proxy.wait_for(|seen| seen.blob == "canceled" && seen.is_done()).await;
    assert_eq!(fixture.direct.blob("kept").head().await.status, 404);
    assert!(!kept.is_finished());

    proxy.heal();
    assert_eq!(kept.await.unwrap().unwrap().status, 201);
    fixture.through.blob("later").put().await.ok();
    assert_eq!(fixture.direct.blob("canceled").head().await.status, 404, "canceled while stalled");
}

#[tokio::test]
async fn link_stalls_in_one_direction() {
    let fixture = Fixture::new("oneway").await;
    let proxy = &fixture.proxy;
    proxy.stall_responses();
    let put = |name: &str| tokio::spawn(fixture.through.blob(name).put().send());
    let unanswered = put("unanswered");
    let seen = proxy.wait_for(|seen| seen.upstream_status.is_some()).await;
    fixture.direct.blob("unanswered").head().await.ok();
    assert!(!seen.is_done() && !unanswered.is_finished());
    proxy.stall_requests();
    assert_eq!(unanswered.await.unwrap().unwrap().status, 201);

    let held = put("held");
    proxy.wait_for(|seen| seen.blob == "held").await;
    assert_eq!(fixture.direct.blob("held").head().await.status, 404);
    proxy.heal();
    assert_eq!(held.await.unwrap().unwrap().status, 201);
}

#[tokio::test]
async fn missing_upstream_breaks_connection() {
    let mut azurite = Azurite::start();
    let proxy = Proxy::start(azurite.port());
    let container = Rest::at(proxy.port()).container("gone");
    container.create().await.ok();
    azurite.stop();
    container.head().send().await.unwrap_err();
    let seen = proxy.wait_for(|seen| seen.is_done() && seen.status.is_none()).await;
    assert_eq!((seen.upstream_status, seen.fault), (None, None));
    azurite.restart();
    container.head().await.ok();

    let port = proxy.port();
    drop(proxy);
    assert_eq!(connect(port).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// Starts a server that returns the head of each request as the body.
async fn echo() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut client = BufReader::new(client);
                while let Some(head) = head(&mut client).await {
                    let length = head.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{head}");
                    client.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    port
}

/// Reads the head of a message. None at the end of the stream.
async fn head(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

#[tokio::test]
async fn requests_are_forwarded_unchanged() {
    let proxy = Proxy::start(echo().await);
    let request = "DELETE /a/c/locks%2Fdefault%2f%41?comp=x&B=%20+ HTTP/1.1\r\n\
                   Host: account.blob.core.windows.net\r\nX-Ms-Version: 1\r\n\
                   authorization: SharedKey a:b=\r\nContent-Length: 0\r\n\
                   x-ms-meta-Odd:  two  words\r\nIf-Match: \"0x1\"\r\n\r\n";
    let mut client = BufReader::new(connect(proxy.port()).await.unwrap());
    client.write_all(request.as_bytes()).await.unwrap();
    head(&mut client).await.unwrap();
    assert_eq!(head(&mut client).await.unwrap(), request.replace("Odd:  ", "Odd: "));
}

#[tokio::test]
async fn hundreds_of_connections_get_matching_responses() {
    const CONNECTIONS: usize = 400;
    const CALLS: usize = 10;
    let proxy = Proxy::start(echo().await);
    let port = proxy.port();
    let mut clients = JoinSet::new();
    for number in 0..CONNECTIONS {
        clients.spawn(async move {
            let mut client = BufReader::new(connect(port).await.unwrap());
            for call in 0..CALLS {
                let request = format!("GET /a/c/{number}/{call} HTTP/1.1\r\nHost: x\r\n\r\n");
                client.write_all(request.as_bytes()).await.unwrap();
                head(&mut client).await.unwrap();
                assert_eq!(head(&mut client).await.unwrap().to_lowercase(), request.to_lowercase());
            }
            client
        });
    }
    // All connections stay open until the last call is complete.
    let clients = clients.join_all().await;
    assert_eq!(clients.len(), CONNECTIONS);
    assert_eq!(proxy.count(Kind::Read.of("/9")), CONNECTIONS);
    assert_eq!(proxy.count(Match::any()), CONNECTIONS * CALLS);
    assert!(proxy.calls().iter().all(|seen| seen.status == Some(200)));
}
