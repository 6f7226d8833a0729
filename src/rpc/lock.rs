//! Unary calls on locks, and watching them.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use tonic::{Request, Response, Status};

use super::{
    decode, encode, pb,
    status::{status, store_status},
};
use crate::driver::{Driver, Watch};
use leasehold_core::{
    error::RequestError,
    session::{HeldView, LockView},
    watch::Target,
};
use leasehold_store as lease;
use leasehold_store::Page;
use leasehold_types::{LockName, Namespace, name::check_text};

/// Default and maximum page size.
const PAGE: (u32, u32) = (100, 1000);

/// Implements `LockService`: inspect, list, watch, break, check.
pub(super) struct Service {
    driver: Driver,
}

impl Service {
    pub(super) const fn new(driver: Driver) -> Self {
        Self { driver }
    }
}

#[tonic::async_trait]
impl leasehold_protocol::server::lock_service_server::LockService for Service {
    type WatchStream = Watching;

    async fn inspect(
        &self,
        request: Request<pb::InspectRequest>,
    ) -> Result<Response<pb::InspectResponse>, Status> {
        let pb::InspectRequest { lock, include_storage } = request.into_inner();
        let name = decode::lock(lock).map_err(status)?;
        if !include_storage {
            let view = self.driver.inspect(&name).await.map_err(store_status)?;
            let lock = Some(encode::lock_info(&view));
            return Ok(Response::new(pb::InspectResponse { lock, store: None, last_break: None }));
        }
        let (view, info) = self.driver.inspect_stored(&name).await.map_err(store_status)?;
        let (description, calls) = self.driver.store();
        let broken = info.as_ref().and_then(|info| info.broken.clone());
        let location = info.and_then(|info| info.location).unwrap_or_default();
        let calls = calls.iter().map(encode::calls).collect();
        Ok(Response::new(pb::InspectResponse {
            lock: Some(encode::lock_info(&view)),
            store: Some(pb::StoreInfo { description, location, calls }),
            last_break: broken.map(encode::breaker),
        }))
    }

    async fn list(
        &self,
        request: Request<pb::ListRequest>,
    ) -> Result<Response<pb::ListResponse>, Status> {
        let request = request.into_inner();
        let mut page = page(&request).map_err(status)?;
        let limit = match request.page_size {
            0 => PAGE.0,
            size => size.min(PAGE.1),
        } as usize;
        page.limit = limit + 1;
        let mut locks = self.driver.list(&page).await.map_err(store_status)?;
        let more = locks.len() > limit;
        locks.truncate(limit);
        let last = locks.last().filter(|_| more).map(|view| page_token(&page, &view.name));
        Ok(Response::new(pb::ListResponse {
            locks: locks.iter().map(encode::lock_info).collect(),
            next_page_token: last.unwrap_or_default(),
        }))
    }

    async fn watch(
        &self,
        request: Request<pb::WatchRequest>,
    ) -> Result<Response<Watching>, Status> {
        use pb::watch_request::Target as Asked;
        let pb::WatchRequest { namespace, target: asked } = request.into_inner();
        // The watch starts before the state is read, so that no change is missed.
        let watching = match asked {
            Some(Asked::Name(name)) => {
                let lock = pb::LockRef { namespace, name };
                let name = decode::lock(Some(lock)).map_err(status)?;
                let watch = self.driver.watch(Target::Name(name.clone())).map_err(status)?;
                let state = self.driver.inspect(&name).await.map_err(store_status)?;
                Watching { states: [state].into(), pages: None, watch }
            }
            Some(Asked::Prefix(prefix)) => {
                let (namespace, prefix) = target(&namespace, &prefix).map_err(status)?;
                let target = Target::Prefix(namespace.clone(), prefix.clone());
                let watch = self.driver.watch(target).map_err(status)?;
                let pages = Pages::new(self.driver.clone(), namespace, prefix);
                Watching { states: VecDeque::new(), pages: Some(pages), watch }
            }
            None => return Err(status(RequestError::invalid("target", "is missing"))),
        };
        Ok(Response::new(watching))
    }

    async fn r#break(
        &self,
        request: Request<pb::BreakRequest>,
    ) -> Result<Response<pb::BreakResponse>, Status> {
        let pb::BreakRequest { lock, reason, by } = request.into_inner();
        let name = decode::lock(lock).map_err(status)?;
        let breaker = decode::breaker(by, reason).map_err(status)?;
        let broken = self.driver.break_lock(name, breaker).await;
        let (before, free_within) = broken.map_err(store_status)?;
        Ok(Response::new(pb::BreakResponse {
            broken: free_within.is_some(),
            lock: Some(encode::lock_info(&before)),
            free_within_ms: free_within.map(encode::millis).unwrap_or_default(),
        }))
    }

    async fn check_token(
        &self,
        request: Request<pb::CheckTokenRequest>,
    ) -> Result<Response<pb::CheckTokenResponse>, Status> {
        let pb::CheckTokenRequest { lock, token } = request.into_inner();
        let name = decode::lock(lock).map_err(status)?;
        let view = self.driver.inspect(&name).await.map_err(store_status)?;
        let state = view.held.as_ref().map_or(pb::TokenState::NotHeld, |held| check(held, token));
        let lock = Some(encode::lock_info(&view));
        Ok(Response::new(pb::CheckTokenResponse { state: state.into(), lock }))
    }
}

fn check(held: &HeldView, token: u64) -> pb::TokenState {
    // A holder at a peer has one of a range of tokens.
    let (least, most) = match (held.token, held.token_range) {
        // A local handoff within that hold may have followed, which is not recorded.
        (Some(held), Some(among)) if token > held.get() && token <= among.bounds().1 => {
            return pb::TokenState::Unknown;
        }
        (Some(held), _) => (held.get(), held.get()),
        (None, Some(among)) => among.bounds(),
        (None, None) => return pb::TokenState::Unknown,
    };
    match token {
        _ if token < least => pb::TokenState::Stale,
        _ if token > most => pb::TokenState::NeverGranted,
        _ if least == most => pb::TokenState::Current,
        _ => pb::TokenState::Unknown,
    }
}

fn target(namespace: &str, prefix: &str) -> Result<(Namespace, String), RequestError> {
    let namespace = Namespace::parse(namespace)?;
    check_text("prefix", prefix, leasehold_types::name::MAX_NAME_BYTES)?;
    Ok((namespace, prefix.to_owned()))
}

/// Decodes the page of a request, without its limit.
fn page(request: &pb::ListRequest) -> Result<Page, RequestError> {
    let pb::ListRequest { namespace, prefix, page_token, all_namespaces, .. } = request;
    if *all_namespaces && !namespace.is_empty() {
        return Err(RequestError::invalid("namespace", "must be empty with all_namespaces"));
    }
    let (namespace, prefix) = target(namespace, prefix)?;
    let foreign = || RequestError::invalid("page_token", "is not from a page of this listing");
    let after = if page_token.is_empty() {
        None
    } else {
        let (namespace, name) = match page_token.split_once('/') {
            Some(parts) if *all_namespaces => parts,
            None if *all_namespaces => return Err(foreign()),
            _ => (namespace.as_str(), page_token.as_str()),
        };
        // A prefix is a valid page token too, even if no lock has that name.
        Some(LockName::parse(namespace, name).map_err(|_| foreign())?)
    };
    if after.as_ref().is_some_and(|after| !after.name().starts_with(&prefix)) {
        return Err(foreign());
    }
    let namespace = (!all_namespaces).then_some(namespace);
    Ok(Page { namespace, prefix, after, limit: 0 })
}

/// Position after a lock: its name, so that the position stays valid if locks are added
/// or removed between two pages.
fn page_token(page: &Page, last: &LockName) -> String {
    match page.namespace {
        Some(_) => last.name().to_owned(),
        None => format!("{}/{}", last.namespace(), last.name()),
    }
}

/// Stream of the current states and the later changes.
pub(super) struct Watching {
    /// Rest of the current page.
    states: VecDeque<LockView>,
    /// Later pages.
    pages: Option<Pages>,
    watch: Watch,
}

/// All states of a prefix, one page at a time.
struct Pages {
    driver: Driver,
    page: Page,
    next: Pin<Box<dyn Future<Output = Result<Vec<LockView>, lease::Error>> + Send>>,
}

impl Pages {
    fn new(driver: Driver, namespace: Namespace, prefix: String) -> Self {
        let next = Box::pin(std::future::ready(Ok(Vec::new())));
        let limit = PAGE.1 as usize;
        let page = Page { namespace: Some(namespace), prefix, after: None, limit };
        let mut pages = Self { driver, page, next };
        pages.fetch(None);
        pages
    }

    fn fetch(&mut self, after: Option<LockName>) {
        self.page.after = after;
        let (driver, page) = (self.driver.clone(), self.page.clone());
        self.next = Box::pin(async move { driver.list(&page).await });
    }
}

impl Stream for Watching {
    type Item = Result<pb::WatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.states.is_empty()
            && let Some(pages) = &mut self.pages
        {
            let page = match ready!(pages.next.as_mut().poll(cx)) {
                Ok(page) => page,
                Err(error) => {
                    self.pages = None;
                    return Poll::Ready(Some(Err(store_status(error))));
                }
            };
            match page.last().filter(|_| page.len() == PAGE.1 as usize) {
                Some(last) => pages.fetch(Some(last.name.clone())),
                None => self.pages = None,
            }
            self.states = page.into();
        }
        let (view, initial) = match self.states.pop_front() {
            Some(view) => (view, true),
            None => match ready!(self.watch.poll_changed(cx)) {
                Some(Ok(view)) => (view, false),
                Some(Err(problem)) => return Poll::Ready(Some(Err(status(problem)))),
                None => return Poll::Ready(None),
            },
        };
        let lock = Some(encode::lock_info(&view));
        Poll::Ready(Some(Ok(pb::WatchResponse { lock, initial })))
    }
}
