//! Options shared by lock requests and campaigns.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    Progress,
    request::OnProgress,
    session::{AcquireOptions, Wait},
    value::Value,
};

/// Wait, lease duration and progress callback of an acquire or a campaign.
#[derive(Clone)]
pub(crate) struct WaitOptions {
    pub(crate) wait: Wait,
    pub(crate) lease_duration: Option<Duration>,
    /// Shared, because `run_as_leader` campaigns more than once.
    on_progress: Option<Arc<Mutex<OnProgress>>>,
}

impl Default for WaitOptions {
    fn default() -> Self {
        Self { wait: Wait::Forever, lease_duration: None, on_progress: None }
    }
}

impl WaitOptions {
    pub(crate) fn set_wait(&mut self, limit: Duration) {
        self.wait = if limit.is_zero() { Wait::Not } else { Wait::AtMost(limit) };
    }

    pub(crate) fn set_on_progress(&mut self, report: impl FnMut(Progress) + Send + 'static) {
        self.on_progress = Some(Arc::new(Mutex::new(Box::new(report))));
    }

    /// Returns the callback for one attempt.
    pub(crate) fn on_progress(&self) -> Option<OnProgress> {
        let shared = self.on_progress.clone()?;
        Some(Box::new(move |progress| {
            shared.lock().unwrap_or_else(PoisonError::into_inner)(progress);
        }))
    }

    pub(crate) fn acquire_options(
        &self,
        max_hold_time: Option<Duration>,
        value: Option<Value>,
    ) -> AcquireOptions {
        AcquireOptions {
            max_hold_time,
            lease_duration: self.lease_duration,
            value,
            ..AcquireOptions::default()
        }
    }
}

/// Adds the option methods to a builder with a field `options: WaitOptions`, so
/// that locks and elections have the same ones.
macro_rules! wait_option_methods {
    () => {
        /// Sets the maximum time to wait. Zero is equivalent to
        /// [`no_wait`](Self::no_wait).
        pub fn wait(mut self, limit: Duration) -> Self {
            self.options.set_wait(limit);
            self
        }

        /// Does not wait: the request is refused if another acquire holds the
        /// lock.
        pub fn no_wait(mut self) -> Self {
            self.options.wait = crate::session::Wait::Not;
            self
        }

        /// Waits without a time limit, also while the daemon is unreachable. This
        /// is the default.
        pub fn wait_forever(mut self) -> Self {
            self.options.wait = crate::session::Wait::Forever;
            self
        }

        /// Sets the duration of the storage lease, if this request acquires one:
        /// 15 to 60 whole seconds. After a crash of the daemon, a shorter lease
        /// frees the lock earlier; a longer one survives longer storage outages.
        /// Default: the setting of the daemon.
        pub fn lease_duration(mut self, duration: Duration) -> Self {
            self.options.lease_duration = Some(duration);
            self
        }

        /// Calls `report` while the request waits, whenever its position or the
        /// holder changes.
        pub fn on_progress(mut self, report: impl FnMut(crate::Progress) + Send + 'static) -> Self {
            self.options.set_on_progress(report);
            self
        }
    };
}
pub(crate) use wait_option_methods;
