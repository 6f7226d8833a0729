//! Test of L6.

use super::history_builder::*;
use crate::{Event, Kind};

#[test]
fn grant_missing_from_resume_is_found() {
    let history = unbounded(&[
        (0, acquire(1, 0, 0)),
        (1, granted(1, 7)),
        (5, lost(0, 7)),
        (5, Event::StillGranted { client: 0, lock: 0, token: 7 }),
    ]);
    let violation = assert_excerpt(Kind::L6, &history, &[1, 2, 3]);
    assert_eq!(
        violation.what,
        "client 0 lost token 7 of lock 0 at 0.005 s, because its daemon, which still had the grant, \
         did not list it when the session was resumed"
    );
    assert_passes(&without(&history, 3));
}
