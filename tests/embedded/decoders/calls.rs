//! Unary calls with arbitrary requests, sent to the services without a socket.

use std::{sync::Arc, time::Duration};

use leasehold::{driver::Driver, rpc, telemetry::Telemetry};
use leasehold_core::{lock, session};
use leasehold_embedded_store::Embedded;
use leasehold_fuzz::{
    Fuzz,
    wire::{self, Field, Value},
};
use leasehold_protocol::{
    v1 as pb,
    v1::{
        attach_request::Message, election_service_client::ElectionServiceClient,
        lock_service_client::LockServiceClient, session_service_client::SessionServiceClient,
    },
};
use leasehold_time::Entropy;
use prost::Message as _;
use tokio::runtime::Builder;
use tonic::{Code, Response, Status, service::Routes};

fn driver(dir: &std::path::Path) -> Driver {
    let sessions = session::Settings {
        default_ttl: Duration::from_secs(60),
        max_ttl: Duration::from_secs(60),
        max_sessions: 10,
        max_locks_per_session: 10,
    };
    let locks = lock::Settings {
        lease_duration: Duration::from_secs(30),
        linger: Duration::ZERO,
        poll_interval: Duration::from_secs(2),
        max_locks: 10,
        max_waiters_per_lock: 10,
        journal: leasehold_core::journal::Level::Off,
    };
    let store = Arc::new(Embedded::open(dir).unwrap());
    Driver::new(sessions, locks, store, Entropy::seeded(1), Telemetry::default())
}

/// Returns the kind of the answer. An error must be the fault of the caller.
fn outcome<T>(method: &str, answer: Result<Response<T>, Status>) -> String {
    match answer {
        Ok(_) => format!("{method} ok"),
        Err(status) => {
            let code = status.code();
            assert!(matches!(code, Code::InvalidArgument | Code::ResourceExhausted), "{status:?}");
            let text = status.message();
            assert!(!text.is_empty() && text.len() < 2000, "{status:?}");
            assert!(!text.chars().any(char::is_control), "{status:?}");
            format!("{method} {text}")
        }
    }
}

async fn call(routes: &Routes, number: u32, bytes: &[u8]) -> Option<String> {
    let mut locks = LockServiceClient::new(routes.clone());
    let mut elections = ElectionServiceClient::new(routes.clone());
    macro_rules! call {
        ($client:ident.$method:ident($message:ident)) => {
            outcome(stringify!($method), $client.$method(pb::$message::decode(bytes).ok()?).await)
        };
    }
    Some(match number {
        1 => call!(locks.inspect(InspectRequest)),
        2 => call!(locks.list(ListRequest)),
        3 => call!(locks.watch(WatchRequest)),
        4 => call!(locks.r#break(BreakRequest)),
        5 => call!(locks.check_token(CheckTokenRequest)),
        6 => call!(elections.leader(LeaderRequest)),
        7 => call!(elections.observe(ObserveRequest)),
        8 => call!(elections.step_down(StepDownRequest)),
        _ => return None,
    })
}

fn scripts() -> Vec<Vec<u8>> {
    let lock = Some(pb::LockRef { namespace: "default".into(), name: "held".into() });
    let (by, reason) = (String::from("ops"), String::from("stuck"));
    let broken = pb::BreakRequest { lock: lock.clone(), reason: reason.clone(), by: by.clone() };
    let token = pb::CheckTokenRequest { lock: lock.clone(), token: 1 << 20 };
    let down = pb::StepDownRequest { election: lock.clone(), reason, by, timeout_ms: 1000 };
    let list = pb::ListRequest {
        namespace: "default".into(),
        prefix: "he".into(),
        page_size: 1,
        page_token: "held".into(),
        all_namespaces: false,
    };
    let target = Some(pb::watch_request::Target::Prefix("he".into()));
    let watch = pb::WatchRequest { namespace: String::new(), target };
    let inspect = pb::InspectRequest { lock: lock.clone(), include_storage: true };
    let (leader, observe) =
        (pb::LeaderRequest { election: lock.clone() }, pb::ObserveRequest { election: lock });
    let request = |number, bytes: Vec<u8>| wire::write(&[Field::bytes(number, bytes)]);
    vec![
        request(1, inspect.encode_to_vec()),
        request(2, list.encode_to_vec()),
        request(3, watch.encode_to_vec()),
        request(4, broken.encode_to_vec()),
        request(5, token.encode_to_vec()),
        request(6, leader.encode_to_vec()),
        request(7, observe.encode_to_vec()),
        request(8, down.encode_to_vec()),
    ]
}

#[test]
fn calls_are_answered_fuzzed() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (routes, _stream) = runtime.block_on(async {
        let driver = driver(dir.path());
        let (routes, _) = rpc::routes(&driver, false);
        // A session that holds a lock, which the calls can inspect.
        let open = pb::Open { protocol_version: 1, ..Default::default() };
        let lock = Some(pb::LockRef { namespace: String::new(), name: "held".into() });
        let acquire = pb::Acquire { request: 1, lock, ..Default::default() };
        let messages = [Message::Open(open), Message::Acquire(acquire)];
        let messages = messages.map(|message| pb::AttachRequest { message: Some(message) });
        let requests = tokio_stream::StreamExt::merge(
            tokio_stream::iter(messages),
            tokio_stream::pending::<pb::AttachRequest>(),
        );
        let mut client = SessionServiceClient::new(routes.clone());
        let mut stream = client.attach(requests).await.unwrap().into_inner();
        stream.message().await.unwrap().unwrap();
        stream.message().await.unwrap().unwrap();
        (routes, stream)
    });
    Fuzz::new("call").nested().seeds(scripts()).run(|input| {
        runtime.block_on(async {
            let mut outcomes = Vec::new();
            for Field { number, value } in wire::read(input).0.into_iter().take(4) {
                if let Value::Bytes(bytes) = value {
                    outcomes.extend(call(&routes, number, &bytes).await);
                }
            }
            outcomes.sort();
            outcomes.join("|")
        })
    });
}
