//! With a safety rule broken, the same scenes end in what must not happen: so
//! the checks see what goes on here.

use leasehold_check::Kind;
use leasehold_sim::broken::{self, Broken};
use leasehold_turmoil::{daemon::Setup, stage::Host};

use crate::{Two, holder_and_waiter, seconds, set_up};

/// Kinds of the violations that are found when this happens with a mutant.
fn found(key: &str, mut two: Two, act: impl FnOnce(&mut Two)) -> Vec<Kind> {
    broken::set(Some(Broken::of_key(key).expect("a mutant with this key")));
    act(&mut two);
    broken::set(None);
    let violations = two.stage.violations();
    violations.iter().map(|violation| violation.kind).collect()
}

#[test]
fn a_broken_stream_that_frees_grants_is_found() {
    let two = holder_and_waiter(601, 1);
    let kinds = found("11b", two, |two| {
        // The holder hears nothing, and turns to a new connection: that ends the
        // old one before it has resumed its session on the new.
        two.stage.cut_one_way(Host::Daemon(0), Host::Client(two.holder));
        two.stage.run(seconds(10));
    });
    assert!(kinds.contains(&Kind::I3), "{kinds:?}");
}

#[test]
fn an_unclear_renewal_that_extends_the_lease_is_found() {
    let two = holder_and_waiter(602, 2);
    let kinds = found("7a", two, |two| {
        two.stage.cut(Host::Daemon(0), Host::Storage);
        two.stage.run(seconds(40));
    });
    assert!(kinds.contains(&Kind::I3) && kinds.contains(&Kind::I6), "{kinds:?}");
}

#[test]
fn a_daemon_that_breaks_the_leases_of_its_predecessor_is_found() {
    let two = holder_and_waiter(603, 1);
    let kinds = found("13a", two, |two| {
        // The holder does not hear that its daemon is gone.
        two.stage.cut(Host::Client(two.holder), Host::Daemon(0));
        two.stage.crash(Host::Daemon(0));
        two.stage.start(Host::Daemon(0));
        two.stage.run(seconds(20));
    });
    assert!(kinds.contains(&Kind::I3), "{kinds:?}");
}

#[test]
fn a_stop_that_does_not_wait_for_holders_is_found() {
    let two = set_up(604, 2, Setup { drain: seconds(1), ..Setup::default() });
    let kinds = found("13b", two, |two| {
        two.stage.cut(Host::Client(two.holder), Host::Daemon(0));
        two.stage.stop(0);
        two.stage.run(seconds(20));
    });
    assert!(kinds.contains(&Kind::I3), "{kinds:?}");
}
