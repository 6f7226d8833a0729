//! A task that panics is not just gone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold_turmoil::{daemon::Setup, stage::Stage};

use crate::seconds;

#[test]
fn a_panic_in_a_task_fails_the_test() {
    let mut stage = Stage::new(901, Setup::default(), 0, 0);
    stage.wanderer(|_, _| async {
        tokio::spawn(async { panic!("on purpose") });
        std::future::pending().await
    });
    let run = catch_unwind(AssertUnwindSafe(|| stage.run(seconds(1))));
    let told = *run.unwrap_err().downcast::<String>().unwrap();
    assert!(told.contains("tasks panicked"), "{told}");
}
