//! L6: a grant survives the end of its stream, because the daemon lists it at the resume.

use crate::{
    Event, Kind,
    format::Seconds,
    index::{About, Index},
    report::Report,
};

pub(crate) fn check(index: &Index<'_>, report: &mut Report) {
    for (pos, entry) in index.entries.iter().enumerate() {
        let (Event::StillGranted { .. }, About::Hold(hold)) = (&entry.event, index.about[pos])
        else {
            continue;
        };
        let hold = &index.holds[hold];
        let lost = hold.end.map(|end| end.point.pos);
        report.add(Kind::L6, entry.at, [hold.granted.pos, pos].into_iter().chain(lost), || {
            format!(
                "client {} lost token {} of lock {} at {}, because its daemon, which still had the \
                 grant, did not list it when the session was resumed",
                hold.client,
                hold.token,
                index.locks[hold.lock].id,
                Seconds(entry.at),
            )
        });
    }
}
