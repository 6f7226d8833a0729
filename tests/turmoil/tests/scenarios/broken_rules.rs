//! Scenarios with a broken safety rule end in a violation, which shows that the
//! checker detects them.

use leasehold_checker::Kind;
use leasehold_simulator::broken::{self, Broken};
use leasehold_turmoil::{cluster::Host, daemon::Setup};

use crate::{Fixture, holder_and_waiter, seconds, set_up};

/// Returns the kinds of violations of a scenario with a mutant.
fn run_with_mutant(key: &str, mut fixture: Fixture, act: impl FnOnce(&mut Fixture)) -> Vec<Kind> {
    broken::set(Some(Broken::from_key(key).expect("a mutant with this key")));
    act(&mut fixture);
    broken::set(None);
    let violations = fixture.cluster.violations();
    violations.iter().map(|violation| violation.kind).collect()
}

#[test]
fn mutant_releasing_on_disconnect_is_detected() {
    let fixture = holder_and_waiter(601, 1);
    let kinds = run_with_mutant("11b", fixture, |fixture| {
        // The holder receives nothing and reconnects, which ends the old stream
        // before the session is resumed on the new one.
        fixture.cluster.cut_one_way(Host::Daemon(0), Host::Client(fixture.holder));
        fixture.cluster.run(seconds(10));
    });
    assert!(kinds.contains(&Kind::I3), "{kinds:?}");
}

#[test]
fn mutant_extending_unknown_renewal_is_detected() {
    let fixture = holder_and_waiter(602, 2);
    let kinds = run_with_mutant("7a", fixture, |fixture| {
        fixture.cluster.cut(Host::Daemon(0), Host::Storage);
        fixture.cluster.run(seconds(40));
    });
    assert!(kinds.contains(&Kind::I3) && kinds.contains(&Kind::I6), "{kinds:?}");
}

#[test]
fn mutant_breaking_predecessor_leases_is_detected() {
    let fixture = holder_and_waiter(603, 1);
    let kinds = run_with_mutant("13a", fixture, |fixture| {
        // The holder is not notified of its daemon's crash.
        fixture.cluster.cut(Host::Client(fixture.holder), Host::Daemon(0));
        fixture.cluster.crash(Host::Daemon(0));
        fixture.cluster.start(Host::Daemon(0));
        fixture.cluster.run(seconds(20));
    });
    assert!(kinds.contains(&Kind::I3), "{kinds:?}");
}

#[test]
fn mutant_shutdown_without_drain_is_detected() {
    let fixture = set_up(604, 2, Setup { drain: seconds(1), ..Setup::default() });
    let kinds = run_with_mutant("13b", fixture, |fixture| {
        fixture.cluster.cut(Host::Client(fixture.holder), Host::Daemon(0));
        fixture.cluster.stop(0);
        fixture.cluster.run(seconds(20));
    });
    assert!(kinds.contains(&Kind::I3), "{kinds:?}");
}
