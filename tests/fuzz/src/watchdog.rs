//! Reports the input when a target panics or does not return.
//!
//! Panics are reported by a panic hook instead of being caught: a panic in a
//! daemon's core ends the process first, and the runtime swallows one in a
//! task. Reports bypass the output capture of the test harness, which is lost
//! with an aborted process.

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

/// Timeout of one input, far longer than any input takes on a busy machine.
const INPUT_TIMEOUT: Duration = Duration::from_secs(30);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Watched>>> = const { RefCell::new(None) };
}

/// Running targets.
static RUNNING: Mutex<Vec<Weak<Watched>>> = Mutex::new(Vec::new());

struct Watched {
    target: &'static str,
    seed: u64,
    input: Mutex<(Option<Instant>, Vec<u8>)>,
    panicked: AtomicBool,
}

impl Watched {
    fn report(&self, problem: &str) {
        let (_, input) = &*self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let path = corpus::keep_failed(self.target, input);
        let start = &input[..input.len().min(400)];
        _ = writeln!(
            io::stderr(),
            "fuzz {}: {problem} with FUZZ_SEED={} on an input of {} bytes, kept in {}: {}",
            self.target,
            self.seed,
            input.len(),
            path.display(),
            start.escape_ascii(),
        );
    }

    fn on_panic(&self) {
        self.panicked.store(true, Ordering::Relaxed);
        self.report("failed");
    }
}

fn running() -> MutexGuard<'static, Vec<Weak<Watched>>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the targets to which a panic on this thread may belong. Threads of a
/// runtime are not associated with a target.
fn panicking_targets() -> Vec<Arc<Watched>> {
    let current = CURRENT.try_with(|current| current.borrow().clone());
    match current {
        Ok(Some(watched)) => vec![watched],
        _ if thread::current().name().is_some_and(|name| name.starts_with("tokio")) => {
            running().iter().filter_map(Weak::upgrade).collect()
        }
        _ => Vec::new(),
    }
}

/// Watches the target on this thread.
pub(crate) struct Watchdog(Arc<Watched>);

impl Watchdog {
    pub(crate) fn start(target: &'static str, seed: u64) -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                for watched in panicking_targets() {
                    watched.on_panic();
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

    pub(crate) fn begin(&self, input: &[u8]) {
        let mut current = self.0.input.lock().unwrap_or_else(PoisonError::into_inner);
        current.0 = None;
        current.1.clear();
        current.1.extend_from_slice(input);
    }

    /// Checks that no task has panicked. A panic of the target itself would not
    /// return here.
    pub(crate) fn end(&self) {
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

/// Checks once per second. The time of an input counts from the first check
/// that sees it.
#[allow(clippy::disallowed_methods, reason = "separate thread, in real time")]
fn watch(watched: &Weak<Watched>) {
    while let Some(watched) = watched.upgrade() {
        let stuck = {
            let mut current = watched.input.lock().unwrap_or_else(PoisonError::into_inner);
            let since = *current.0.get_or_insert_with(now);
            since.elapsed() > INPUT_TIMEOUT
        };
        if stuck {
            watched.report("does not return");
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
    fn caught_panic_is_reported() {
        let watchdog = Watchdog::start("watchdog", 1);
        watchdog.begin(b"x");
        watchdog.end();
        _ = panic::catch_unwind(|| panic!("on purpose"));
        assert!(panic::catch_unwind(panic::AssertUnwindSafe(|| watchdog.end())).is_err());

        let watchdog = Watchdog::start("watchdog", 1);
        watchdog.begin(b"y");
        let runtime = thread::Builder::new().name("tokio-rt-worker".into());
        _ = runtime.spawn(|| panic!("on purpose")).map(thread::JoinHandle::join);
        assert!(watchdog.0.panicked.load(Ordering::Relaxed));
    }
}
