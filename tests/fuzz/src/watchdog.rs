//! Says which input it was when a target panics, or does not come back.
//!
//! A panic is told by the hook, not by catching it: a daemon whose core
//! panicked ends the process before anybody could, and one in a task of a
//! runtime is kept by the runtime. All is told past what the test harness
//! captures: that is lost with a process that is ended.

use std::{
    cell::RefCell,
    io::{self, Write as _},
    panic,
    sync::{
        Arc, Mutex, MutexGuard, Once, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{corpus, now};

/// Far longer than any input takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Watched>>> = const { RefCell::new(None) };
}

/// Targets that run.
static RUNNING: Mutex<Vec<Weak<Watched>>> = Mutex::new(Vec::new());

struct Watched {
    target: &'static str,
    seed: u64,
    input: Mutex<(Option<Instant>, Vec<u8>)>,
    panicked: AtomicBool,
}

impl Watched {
    fn tell(&self, what: &str) {
        let (_, input) = &*self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let path = corpus::keep_failed(self.target, input);
        let start = &input[..input.len().min(400)];
        _ = writeln!(
            io::stderr(),
            "fuzz {}: {what} with FUZZ_SEED={} on an input of {} bytes, kept in {}: {}",
            self.target,
            self.seed,
            input.len(),
            path.display(),
            start.escape_ascii(),
        );
    }

    fn panics(&self) {
        self.panicked.store(true, Ordering::Relaxed);
        self.tell("failed");
    }
}

fn running() -> MutexGuard<'static, Vec<Weak<Watched>>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whose panic it is. Threads of runtimes do not say for which target they work.
fn concerned() -> Vec<Arc<Watched>> {
    let current = CURRENT.try_with(|current| current.borrow().clone());
    match current {
        Ok(Some(watched)) => vec![watched],
        _ if thread::current().name().is_some_and(|name| name.starts_with("tokio")) => {
            running().iter().filter_map(Weak::upgrade).collect()
        }
        _ => Vec::new(),
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
                for watched in concerned() {
                    watched.panics();
                }
                before(panic);
            }));
        });
        let (input, panicked) = (Mutex::default(), AtomicBool::new(false));
        let watched = Arc::new(Watched { target, seed, input, panicked });
        CURRENT.set(Some(Arc::clone(&watched)));
        let weak = Arc::downgrade(&watched);
        running().push(weak.clone());
        thread::spawn(move || watch(&weak));
        Self(watched)
    }

    pub(crate) fn begins(&self, input: &[u8]) {
        let mut current = self.0.input.lock().unwrap_or_else(PoisonError::into_inner);
        current.0 = None;
        current.1.clear();
        current.1.extend_from_slice(input);
    }

    /// No task has panicked: the target itself would not have come back.
    pub(crate) fn ends(&self) {
        let panicked = self.0.panicked.load(Ordering::Relaxed);
        assert!(!panicked, "a task of the target {} panicked", self.0.target);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        CURRENT.set(None);
        let own = Arc::downgrade(&self.0);
        running().retain(|other| !other.ptr_eq(&own));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_that_others_caught_is_not_forgotten() {
        let watchdog = Watchdog::start("watchdog", 1);
        watchdog.begins(b"x");
        watchdog.ends();
        _ = panic::catch_unwind(|| panic!("on purpose"));
        assert!(panic::catch_unwind(panic::AssertUnwindSafe(|| watchdog.ends())).is_err());

        let watchdog = Watchdog::start("watchdog", 1);
        watchdog.begins(b"y");
        let runtime = thread::Builder::new().name("tokio-rt-worker".into());
        _ = runtime.spawn(|| panic!("on purpose")).map(thread::JoinHandle::join);
        assert!(watchdog.0.panicked.load(Ordering::Relaxed));
    }
}
