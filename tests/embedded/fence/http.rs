//! The layer that refuses lower tokens, in front of HTTP and gRPC services.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Bytes};
use leasehold_client::Token;
use leasehold_fence::{
    LockToken,
    http::{LOCK, TOKEN, TokenGate, TokenLayer, headers},
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code,
    metadata::MetadataValue,
    transport::{Endpoint, Server},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::{Layer, ServiceExt};

/// Calls the layer. Returns the status and the body: the lock token that the service
/// received, or "none".
async fn call(layer: &TokenLayer, request: Request<Full<Bytes>>) -> (u16, String) {
    let service = tower::service_fn(async |request: Request<Full<Bytes>>| {
        let seen = request.extensions().get::<LockToken>().map(ToString::to_string);
        let body = Full::new(Bytes::from(seen.unwrap_or_else(|| "none".to_owned())));
        Ok::<_, Infallible>(Response::new(body))
    });
    let response = layer.layer(service).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn post(path: &str, lock: Option<&LockToken>) -> Request<Full<Bytes>> {
    let mut request = Request::post(path);
    for (name, value) in lock.map(headers).into_iter().flatten() {
        request = request.header(name, value);
    }
    request.body(Full::default()).unwrap()
}

fn held(lock: &str, token: u64) -> LockToken {
    LockToken::new("", lock, Token::new(token))
}

#[tokio::test]
async fn lower_token_is_refused_and_service_receives_lock_token() {
    let layer = TokenGate::new().layer();
    let (status, body) = call(&layer, post("/", Some(&held("a b/é", 7)))).await;
    assert_eq!((status, body.as_str()), (200, "lock \"a b/é\" in namespace default, token 7"));
    assert_eq!(call(&layer, post("/", Some(&held("a b/é", 7)))).await.0, 200);
    let (status, body) = call(&layer, post("/", Some(&held("a b/é", 6)))).await;
    assert_eq!(status, 412);
    assert!(body.contains("token 6 is stale: 7 was seen"), "{body}");
    assert_eq!(call(&layer, post("/", Some(&held("another", 6)))).await.0, 200);
    assert_eq!(call(&layer.clone(), post("/", Some(&held("a b/é", 8)))).await.0, 200);
    assert_eq!(call(&layer, post("/", Some(&held("a b/é", 7)))).await.0, 412, "clones share");
}

#[tokio::test]
async fn missing_and_invalid_headers_are_refused() {
    let layer = TokenGate::new().layer();
    let (status, body) = call(&layer, post("/", None)).await;
    assert_eq!(status, 428);
    assert!(body.contains("leasehold-lock and leasehold-token"), "{body}");
    let get = Request::get("/").body(Full::default()).unwrap();
    assert_eq!(call(&layer, get).await, (200, "none".to_owned()));
    for (lock, token) in [
        (Some("default/a"), None),
        (None, Some("1")),
        (Some("default/a"), Some("0")),
        (Some("default/a"), Some("-1")),
        (Some("default/a"), Some("9007199254740992")),
        (Some("a"), Some("1")),
        (Some("/a"), Some("1")),
        (Some("default/"), Some("1")),
        (Some("default/%2"), Some("1")),
        (Some("default/%zz"), Some("1")),
        (Some("default/%FF"), Some("1")),
    ] {
        let mut request = Request::get("/");
        for (name, value) in [(LOCK, lock), (TOKEN, token)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let (status, body) = call(&layer, request.body(Full::default()).unwrap()).await;
        assert_eq!(status, 400, "{lock:?} {token:?}: {body}");
    }
    let twice = Request::post("/").header(TOKEN, "9").header(TOKEN, "1").header(LOCK, "default/a");
    assert_eq!(call(&layer, twice.body(Full::default()).unwrap()).await.0, 400);
}

#[tokio::test]
async fn resource_accepts_only_assigned_lock() {
    let lock_of = |path: &str| path.starts_with("/a").then(|| "default/a".to_owned());
    let layer = TokenGate::new().lock_of(move |request| lock_of(request.uri.path())).layer();
    assert_eq!(call(&layer, post("/a/1", Some(&held("a", 1)))).await.0, 200);
    let (status, body) = call(&layer, post("/a/1", Some(&held("b", 9)))).await;
    assert_eq!(status, 412);
    assert!(body.contains("fenced by lock \"default/a\", not by \"default/b\""), "{body}");
    assert_eq!(call(&layer, post("/free", None)).await, (200, "none".to_owned()));
}

#[tokio::test]
async fn full_memory_refuses_new_locks_and_keeps_tokens() {
    let layer = TokenGate::new().max_locks(2).layer();
    for lock in ["a", "b"] {
        assert_eq!(call(&layer, post("/", Some(&held(lock, 2)))).await.0, 200);
    }
    let (status, body) = call(&layer, post("/", Some(&held("c", 2)))).await;
    assert_eq!(status, 503);
    assert!(body.contains("the tokens of at most 2 locks"), "{body}");
    assert_eq!(call(&layer, post("/", Some(&held("a", 1)))).await.0, 412);
    assert_eq!(call(&layer, post("/", Some(&held("b", 3)))).await.0, 200);
}

#[tokio::test]
async fn token_is_remembered_before_request_is_admitted() {
    let stored: Arc<Mutex<Vec<(String, Token)>>> = Arc::default();
    let gate = |stored: &Arc<Mutex<Vec<_>>>| {
        let stored = Arc::clone(stored);
        TokenGate::new().remember(move |lock, token| {
            let (stored, lock) = (Arc::clone(&stored), lock.to_owned());
            async move {
                if token.get() == 13 {
                    return Err("the disk is full".to_owned());
                }
                stored.lock().unwrap().push((lock, token));
                Ok(())
            }
        })
    };
    let layer = gate(&stored).layer();
    for token in [5, 5, 4, 7] {
        call(&layer, post("/", Some(&held("a", token)))).await;
    }
    let (status, body) = call(&layer, post("/", Some(&held("a", 13)))).await;
    assert_eq!(status, 503);
    assert!(body.contains("the disk is full"), "{body}");
    assert_eq!(call(&layer, post("/", Some(&held("a", 7)))).await.0, 200, "13 was not admitted");
    let known = stored.lock().unwrap().clone();
    assert_eq!(
        known,
        [("default/a".to_owned(), Token::new(5)), ("default/a".to_owned(), Token::new(7))]
    );
    // A new gate that is initialized with the stored tokens, as after a restart.
    let restarted =
        known.into_iter().rev().fold(gate(&stored), |gate, (lock, token)| gate.known(lock, token));
    assert_eq!(call(&restarted.layer(), post("/", Some(&held("a", 6)))).await.0, 412);
}

/// Sixteen concurrent requests: the remembered token never decreases, and no request is
/// admitted after one with a higher token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remembered_token_never_decreases_under_concurrency() {
    let stored: Arc<Mutex<Vec<u64>>> = Arc::default();
    let writer = Arc::clone(&stored);
    let gate = TokenGate::new().remember(move |_, token| {
        let writer = Arc::clone(&writer);
        async move {
            tokio::task::yield_now().await;
            writer.lock().unwrap().push(token.get());
            Ok(())
        }
    });
    let layer = gate.layer();
    let requests: Vec<_> = (1..=16)
        .map(|number| {
            let layer = layer.clone();
            tokio::spawn(async move {
                let token = number * 7 % 16 + 1;
                call(&layer, post("/", Some(&held("a", token)))).await.0
            })
        })
        .collect();
    for request in requests {
        assert!([200, 412].contains(&request.await.unwrap()));
    }
    let stored = stored.lock().unwrap();
    assert!(stored.is_sorted() && stored.last() == Some(&16), "{stored:?}");
}

#[tokio::test]
async fn grpc_refusals_have_grpc_status() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(TokenGate::new().layer()).add_service(health);
    let serving = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let channel = Endpoint::new(format!("http://{address}")).unwrap().connect_lazy();
    let mut client = HealthClient::new(channel);
    let mut check = async |lock: Option<LockToken>| {
        let mut request = tonic::Request::new(HealthCheckRequest::default());
        for (name, value) in lock.as_ref().map(headers).into_iter().flatten() {
            request.metadata_mut().insert(name, MetadataValue::try_from(value).unwrap());
        }
        client.check(request).await
    };
    check(Some(held("é", 7))).await.unwrap();
    let refused = check(Some(held("é", 6))).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("lock \"default/é\": token 6 is stale"), "{refused:?}");
    assert_eq!(check(None).await.unwrap_err().code(), Code::InvalidArgument);
    serving.abort();
}
