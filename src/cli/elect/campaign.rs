//! Waiting to lead, and showing people who does.

use std::os::unix::ffi::OsStringExt;

use leasehold_client::{Client, Election, Error, Leadership};
use tokio::sync::watch;

use super::Elect;
use crate::cli::{
    leader::value_text, output::Output, process::Signals, run::Denied, run::Notes, run::Seen,
    run::WaitTarget, run::Waiting,
};
use leasehold_time::Moment;

/// As much of a leader's value as fits on a line.
const LONGEST_VALUE_SHOWN: usize = 40;

/// Waits until this process leads.
pub(super) async fn campaign(
    elect: &Elect,
    client: &Client,
    output: Output,
    signals: &mut Signals,
    notes: &Notes,
) -> Result<Leadership, Denied> {
    let waiting = Waiting::new(WaitTarget::Lead(&elect.name), None, output, notes.clone());
    let (sender, news) = watch::channel(Seen::default());
    let progress = sender.clone();
    let mut election = client.election(&elect.name).on_progress(move |told| {
        progress.send_modify(|seen| seen.progress = Some((told, Moment::now())));
    });
    if let Some(duration) = elect.lease_duration {
        election = election.lease_duration(duration);
    }
    let onlooker = waiting.is_shown().then(|| client.election(&elect.name));
    let leading = async {
        tokio::select! {
            leadership = election.campaign(elect.value.clone().into_vec()) => leadership,
            error = look_on(onlooker, &sender) => Err(error),
        }
    };
    waiting.until(leading, news, signals).await
}

/// Tells what the leader shows. Ends only with what a campaign would end with
/// too.
async fn look_on(election: Option<Election>, news: &watch::Sender<Seen>) -> Error {
    let Some(election) = election else { return std::future::pending().await };
    let mut observer = election.observe();
    loop {
        let state = match observer.next().await {
            Ok(state) => state,
            Err(error) => return error,
        };
        let value = state.leader.map(|leader| leader.value).filter(|value| !value.is_empty());
        let value = value.map(|value| shorten(value_text(&value)));
        news.send_modify(|seen| seen.value = value);
    }
}

fn shorten(text: String) -> String {
    if text.chars().count() <= LONGEST_VALUE_SHOWN {
        return text;
    }
    text.chars().take(LONGEST_VALUE_SHOWN - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(shorten("10.0.0.7".to_owned()), "10.0.0.7");
        let cut = shorten("ü".repeat(41));
        assert_eq!(cut.chars().count(), 40);
        assert!(cut.ends_with("ü…"));
    }
}
