//! Panics of tasks fail the simulation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold_turmoil::{cluster::Cluster, daemon::Setup};

use crate::seconds;

#[test]
fn panic_in_task_fails_test() {
    let mut cluster = Cluster::new(901, Setup::default(), 0, 0);
    cluster.add_program(|_, _| async {
        tokio::spawn(async { panic!("on purpose") });
        std::future::pending().await
    });
    let run = catch_unwind(AssertUnwindSafe(|| cluster.run(seconds(1))));
    let message = *run.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("tasks panicked"), "{message}");
}
