//! Observers of elections: programs that read the leader from a daemon, once or
//! as a stream. They call the daemon's election service without a connection,
//! and end with its machine.

use leasehold::rpc;
use leasehold_checker::Event;
use leasehold_protocol::v1 as pb;
use leasehold_runtime as task;
use leasehold_runtime::sleep;
use pb::election_service_client::ElectionServiceClient;
use tonic::service::Routes;

use crate::{
    rng::Rng,
    sim_state::{Running, count, lock_name, record, sim},
};

/// Maximum delays between two reads, in milliseconds.
const READ_DELAYS: [u64; 3] = [300, 3_000, 15_000];

/// Starts the observers of a daemon: one stream for most locks, and one
/// observer that reads.
pub fn start(daemon: &Running, mut rng: Rng) {
    let sim = sim();
    let observer = Observer::new(daemon);
    sim.world.as_machine(daemon.machine, || {
        for lock in 0..sim.plan.locks {
            if rng.permille(700) {
                task::spawn(observer.clone().follow(lock, rng.split()));
            }
        }
        task::spawn(observer.read_often(sim.plan.locks, rng.split()));
    });
}

/// Reads the leader of a lock once, at the daemon of a place.
pub fn read_at(place: usize, lock: u32) {
    let sim = sim();
    if let Some(daemon) = sim.running(place) {
        let mut observer = Observer::new(&daemon);
        sim.world.as_machine(daemon.machine, || {
            task::spawn(async move { observer.read(lock).await });
        });
    }
}

#[derive(Clone)]
struct Observer {
    daemon: u32,
    service: ElectionServiceClient<Routes>,
}

impl Observer {
    fn new(daemon: &Running) -> Self {
        let (routes, _) = rpc::routes(&daemon.driver, false);
        Self { daemon: daemon.number, service: ElectionServiceClient::new(routes) }
    }

    async fn read_often(mut self, locks: u32, mut rng: Rng) {
        loop {
            let max = *rng.pick(&READ_DELAYS);
            sleep(rng.length(0..max)).await;
            self.read(rng.within(0..u64::from(locks)) as u32).await;
        }
    }

    async fn read(&mut self, lock: u32) {
        let op = sim().next_op();
        record(Event::ReadLeader { op, daemon: self.daemon, lock });
        let request = pb::LeaderRequest { election: Some(election(lock)) };
        match self.service.leader(request).await {
            Ok(response) => {
                count("observers: reads");
                observed(op, response.into_inner().state);
            }
            Err(_) => count("observers: failed reads"),
        }
    }

    /// Observes an election, and opens a new stream when one ends.
    async fn follow(mut self, lock: u32, mut rng: Rng) {
        loop {
            sleep(rng.length(0..3_000)).await;
            let op = sim().next_op();
            record(Event::Observe { op, daemon: self.daemon, lock });
            let _open = Open(op);
            let request = pb::ObserveRequest { election: Some(election(lock)) };
            if let Ok(response) = self.service.observe(request).await {
                count("observers: streams");
                let mut states = response.into_inner();
                while let Ok(Some(response)) = states.message().await {
                    count("observers: streamed states");
                    observed(op, response.state);
                }
            }
        }
    }
}

/// Open stream. It also ends with its daemon.
struct Open(u64);

impl Drop for Open {
    fn drop(&mut self) {
        record(Event::ObserveEnded { op: self.0 });
    }
}

fn election(lock: u32) -> pb::LockRef {
    pb::LockRef { namespace: String::new(), name: lock_name(lock) }
}

fn observed(op: u64, state: Option<pb::ElectionState>) {
    let leader = state.and_then(|state| state.leader);
    let token = leader.as_ref().and_then(|leader| leader.token);
    let ending = leader.as_ref().is_some_and(|leader| leader.ending);
    let value = leader.map(|leader| leader.value).filter(|value| !value.is_empty());
    let value = value.map(|value| String::from_utf8_lossy(&value).into_owned());
    record(Event::Observed { op, token, value, ending });
}
