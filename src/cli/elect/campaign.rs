//! Campaigns, with the current leader on the status line.

use std::os::unix::ffi::OsStringExt;

use leasehold_client::{Client, Election, Error, Leadership};
use tokio::sync::watch;

use super::Elect;
use crate::cli::{
    leader::value_text, output::Output, process::Signals, run::Denied, run::Notes, run::WaitState,
    run::WaitTarget, run::Waiting,
};
use leasehold_time::Moment;

/// Maximum number of characters of a leader's value on the status line.
const MAX_VALUE_CHARS: usize = 40;

/// Waits until this process leads.
pub(super) async fn campaign(
    elect: &Elect,
    client: &Client,
    output: Output,
    signals: &mut Signals,
    notes: &Notes,
) -> Result<Leadership, Denied> {
    let waiting = Waiting::new(WaitTarget::Lead(&elect.name), None, output, notes.clone());
    let (sender, updates) = watch::channel(WaitState::default());
    let progress_sender = sender.clone();
    let mut election = client.election(&elect.name).on_progress(move |progress| {
        progress_sender.send_modify(|state| state.progress = Some((progress, Moment::now())));
    });
    if let Some(duration) = elect.lease_duration {
        election = election.lease_duration(duration);
    }
    let observed = waiting.is_visible().then(|| client.election(&elect.name));
    let leading = async {
        tokio::select! {
            leadership = election.campaign(elect.value.clone().into_vec()) => leadership,
            error = observe_value(observed, &sender) => Err(error),
        }
    };
    waiting.wait_for(leading, updates, signals).await
}

/// Reports the value of the leader. Returns only errors that a campaign would return
/// too.
async fn observe_value(election: Option<Election>, updates: &watch::Sender<WaitState>) -> Error {
    let Some(election) = election else { return std::future::pending().await };
    let mut observer = election.observe();
    loop {
        let state = match observer.next().await {
            Ok(state) => state,
            Err(error) => return error,
        };
        let value = state.leader.map(|leader| leader.value).filter(|value| !value.is_empty());
        let value = value.map(|value| shorten(value_text(&value)));
        updates.send_modify(|state| state.value = value);
    }
}

fn shorten(text: String) -> String {
    if text.chars().count() <= MAX_VALUE_CHARS {
        return text;
    }
    text.chars().take(MAX_VALUE_CHARS - 1).chain(['…']).collect()
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
