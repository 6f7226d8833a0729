//! A look at the daemon for what speaks no gRPC: probes, load balancers,
//! scripts. It only reads.
//!
//! ```text
//! GET /v1/elections/{namespace}/{name}           who leads
//! GET /v1/elections/{namespace}/{name}?self=1    200 if a client of this daemon does, else 503;
//!                                                asks nobody else, so others may not be shown
//! GET /healthz                                   200 as long as it answers
//! GET /readyz                                    200 if locks can be granted, else 503
//! ```
//!
//! Like every look, an answer may be out of date when it arrives: whoever acts
//! on it needs the token.

mod answer;
mod route;
mod serve;

use std::sync::Arc;

use answer::Answer;
use hyper::{Method, Uri};
use route::Route;
pub use serve::{MOST_CONNECTIONS, serve};
use tokio::sync::watch;

use crate::driver::Driver;
use leasehold_store::LeaseStore;

/// Answers requests. Cheap to clone.
#[derive(Clone)]
pub struct Http {
    driver: Driver,
    store: Arc<dyn LeaseStore>,
    draining: watch::Receiver<bool>,
}

impl Http {
    /// `draining` turns true when the daemon begins to stop.
    #[must_use]
    pub fn new(
        driver: Driver,
        store: Arc<dyn LeaseStore>,
        draining: watch::Receiver<bool>,
    ) -> Self {
        Self { driver, store, draining }
    }

    async fn answer(&self, method: &Method, uri: &Uri) -> Answer {
        match Route::of(method, uri) {
            Ok(Route::Health) => answer::well("ok"),
            Ok(Route::Ready) => self.ready(),
            // Whether it is one's own leader, this daemon knows by itself: a
            // probe costs no call to the storage.
            Ok(Route::Election { name, own: true }) => {
                answer::election(&self.driver.view(&name), true)
            }
            Ok(Route::Election { name, own: false }) => match self.driver.inspect(&name).await {
                Ok(view) => answer::election(&view, false),
                Err(error) => answer::trouble(&error),
            },
            Err(refusal) => answer::refused(refusal),
        }
    }

    fn ready(&self) -> Answer {
        if *self.draining.borrow() {
            return answer::stopping();
        }
        match self.store.trouble() {
            Some(error) => answer::trouble(&error),
            None => answer::well("ready"),
        }
    }
}
