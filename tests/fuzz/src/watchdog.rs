//! Says which input it was when a target panics, or does not come back.
//!
//! A panic is told by the hook, not by catching it: a daemon whose core
//! panicked ends the process before anybody could.

use std::{
    cell::RefCell,
    panic,
    sync::{Arc, Mutex, Once, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use crate::{corpus, now};

/// Far longer than any input takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Watched>>> = const { RefCell::new(None) };
}

struct Watched {
    target: &'static str,
    seed: u64,
    input: Mutex<(Option<Instant>, Vec<u8>)>,
}

impl Watched {
    fn tell(&self, what: &str) {
        let (_, input) = &*self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let path = corpus::keep_failed(self.target, input);
        let start = &input[..input.len().min(400)];
        eprintln!(
            "fuzz {}: {what} with seed {} on an input of {} bytes, kept in {}: {}",
            self.target,
            self.seed,
            input.len(),
            path.display(),
            start.escape_ascii(),
        );
    }
}

/// Watches the target that runs on this thread.
pub(crate) struct Watchdog(Arc<Watched>);

impl Watchdog {
    pub(crate) fn start(target: &'static str, seed: u64) -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                let current = CURRENT.try_with(|current| current.borrow().clone());
                if let Ok(Some(watched)) = current {
                    watched.tell("failed");
                }
                before(panic);
            }));
        });
        let input = Mutex::default();
        let watched = Arc::new(Watched { target, seed, input });
        CURRENT.set(Some(Arc::clone(&watched)));
        let weak = Arc::downgrade(&watched);
        thread::spawn(move || watch(&weak));
        Self(watched)
    }

    pub(crate) fn begins(&self, input: &[u8]) {
        let mut current = self.0.input.lock().unwrap_or_else(PoisonError::into_inner);
        current.0 = None;
        current.1.clear();
        current.1.extend_from_slice(input);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// Looks once a second. An input that is seen for the first time is noted.
#[allow(clippy::disallowed_methods, reason = "a thread of its own, on real time")]
fn watch(watched: &Weak<Watched>) {
    while let Some(watched) = watched.upgrade() {
        let stuck = {
            let mut current = watched.input.lock().unwrap_or_else(PoisonError::into_inner);
            let since = *current.0.get_or_insert_with(now);
            since.elapsed() > PATIENCE
        };
        if stuck {
            watched.tell("does not come back");
            std::process::abort();
        }
        drop(watched);
        thread::sleep(Duration::from_secs(1));
    }
}
