//! Access tokens from Entra ID. A separate task fetches them ahead of time, so
//! that no storage call waits while the last access token is valid.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use azure_core::{
    Error,
    credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions},
    error::ErrorKind,
    http::{ClientOptions, Context, Method, Request, RetryOptions, Transport},
    time::{Duration as Span, OffsetDateTime},
};
use azure_identity::{
    AzureCliCredential, ClientAssertionCredentialOptions, ClientSecretCredential,
    ClientSecretCredentialOptions, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};
use leasehold_time::{Moment, clock};
use tokio::sync::watch;

use crate::CredentialSource;

/// Remaining lifetime below which the next access token is fetched. The SDK's
/// caches return the old one until then.
const REFRESH_BEFORE: Span = Span::minutes(5);

/// Minimum remaining lifetime that an access token needs to be used.
const MIN_LIFETIME: Span = Span::minutes(1);

/// Timeout of one source.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(15);

/// Minimum interval between fetches ahead of time.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout of the request that detects a machine's metadata service.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const METADATA_SERVICE: &str = "http://169.254.169.254/metadata/identity/oauth2/token";

/// Credential source that the SDK rejected.
#[derive(Debug, thiserror::Error)]
#[error("invalid credential ({credential}): {why}")]
pub struct InvalidCredential {
    credential: &'static str,
    why: String,
}

/// Credential that gets access tokens from the first of several sources that
/// works.
pub struct AccessTokens(Arc<Shared>);

struct Shared {
    sources: Vec<Source>,
    /// Index of the first source that worked; the others are no longer tried.
    chosen: OnceLock<usize>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    token: Option<AccessToken>,
    fetch: Option<watch::Receiver<Option<Fetched>>>,
    /// Start of the latest fetch.
    fetch_started: Option<Moment>,
}

type Fetched = Result<AccessToken, String>;

struct Source {
    name: &'static str,
    credential: Arc<dyn TokenCredential>,
    /// Set if the source's metadata service is probed before it is used.
    probe: Option<Transport>,
    timeout: Duration,
}

impl AccessTokens {
    /// Creates the credentials. Sends nothing.
    ///
    /// # Errors
    /// If the SDK rejects one of the sources.
    pub fn new(
        sources: Vec<CredentialSource>,
        transport: &Transport,
    ) -> Result<Self, InvalidCredential> {
        let alone = sources.len() == 1;
        let source = |from: CredentialSource| {
            let probed = matches!(from, CredentialSource::ManagedIdentity { announced: false, .. })
                && !alone;
            let name = from.name();
            let credential = sdk_credential(from, transport)
                .map_err(|error| InvalidCredential { credential: name, why: one_line(&error) })?;
            let probe = probed.then(|| transport.clone());
            Ok(Source { name, credential, probe, timeout: SOURCE_TIMEOUT })
        };
        Ok(Self::of(sources.into_iter().map(source).collect::<Result<_, _>>()?))
    }

    fn of(sources: Vec<Source>) -> Self {
        let state = Mutex::new(State::default());
        Self(Arc::new(Shared { sources, chosen: OnceLock::new(), state }))
    }

    /// Returns the name of the source in use, or of all candidates before one has
    /// worked.
    #[must_use]
    pub fn name(&self) -> String {
        let names: Vec<_> = self.0.candidates().map(|(_, source)| source.name).collect();
        names.join(" or ")
    }

    /// Returns the fetch in flight, or starts one. It continues even if every
    /// waiter is dropped.
    fn fetch(&self, state: &mut State, scopes: &[&str]) -> watch::Receiver<Option<Fetched>> {
        if let Some(fetch) = &state.fetch
            && fetch.borrow().is_none()
            && fetch.has_changed().is_ok()
        {
            return fetch.clone();
        }
        let (sender, receiver) = watch::channel(None);
        state.fetch = Some(receiver.clone());
        state.fetch_started = Some(Moment::now());
        let shared = Arc::clone(&self.0);
        let scopes: Vec<String> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        tokio::spawn(async move {
            let fetched = shared.request(&scopes).await;
            if let Ok(token) = &fetched {
                shared.state().token = Some(token.clone());
            }
            sender.send_replace(Some(fetched));
        });
        receiver
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn candidates(&self) -> impl Iterator<Item = (usize, &Source)> {
        let chosen = self.chosen.get();
        let is_candidate = move |number: &usize| chosen.is_none_or(|chosen| chosen == number);
        self.sources.iter().enumerate().filter(move |(number, _)| is_candidate(number))
    }

    async fn request(&self, scopes: &[String]) -> Fetched {
        let mut failures = Vec::new();
        for (number, source) in self.candidates() {
            match source.request(scopes).await {
                Ok(token) => {
                    self.chosen.get_or_init(|| number);
                    return Ok(token);
                }
                Err(why) => failures.push(format!("{}: {why}", source.name)),
            }
        }
        Err(format!("no access token from Entra ID ({})", failures.join("; ")))
    }
}

impl Source {
    async fn request(&self, scopes: &[String]) -> Fetched {
        if let Some(transport) = &self.probe {
            probe(transport).await?;
        }
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        tokio::select! {
            token = self.credential.get_token(&scopes, None) => {
                token.map_err(|error| one_line(&error))
            }
            () = leasehold_runtime::sleep(self.timeout) => {
                Err(format!("no response within {:?}", self.timeout))
            }
        }
    }
}

/// Checks that the machine has a metadata service. Any response proves it; the
/// service refuses this request because a header is missing.
async fn probe(transport: &Transport) -> Result<(), String> {
    let absent = || "not available on this machine".to_owned();
    let mut request = Request::new(METADATA_SERVICE.parse().map_err(|_| absent())?, Method::Get);
    let context = Context::new();
    tokio::select! {
        answer = transport.send(&context, &mut request) => answer.map(drop).map_err(|_| absent()),
        () = leasehold_runtime::sleep(PROBE_TIMEOUT) => Err(absent()),
    }
}

#[async_trait::async_trait]
impl TokenCredential for AccessTokens {
    async fn get_token(
        &self,
        scopes: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let mut fetch = {
            let mut state = self.0.state();
            if let Some(token) = state.token.clone() {
                let lifetime = token.expires_on - OffsetDateTime::from(clock::wall());
                let may_refresh = |started: Moment| (started + REFRESH_INTERVAL).has_passed();
                if lifetime <= REFRESH_BEFORE && state.fetch_started.is_none_or(may_refresh) {
                    drop(self.fetch(&mut state, scopes));
                }
                if lifetime > MIN_LIFETIME {
                    return Ok(token);
                }
            }
            self.fetch(&mut state, scopes)
        };
        let fetched = fetch.wait_for(Option::is_some).await.map(|fetched| fetched.clone());
        match fetched {
            Ok(Some(Ok(token))) => Ok(token),
            Ok(Some(Err(why))) => Err(Error::with_message(ErrorKind::Credential, why)),
            Ok(None) | Err(_) => {
                Err(Error::with_message(ErrorKind::Credential, "the token request was canceled"))
            }
        }
    }
}

impl fmt::Debug for AccessTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccessTokens({})", self.name())
    }
}

/// Creates the SDK's credential for a source.
fn sdk_credential(
    source: CredentialSource,
    transport: &Transport,
) -> azure_core::Result<Arc<dyn TokenCredential>> {
    let client_options = ClientOptions {
        // The caller that needs the token retries.
        retry: RetryOptions::none(),
        transport: Some(transport.clone()),
        ..ClientOptions::default()
    };
    Ok(match source {
        CredentialSource::WorkloadIdentity { tenant_id, client_id, token_file } => {
            WorkloadIdentityCredential::new(Some(WorkloadIdentityCredentialOptions {
                credential_options: ClientAssertionCredentialOptions { client_options },
                client_id: Some(client_id),
                tenant_id: Some(tenant_id),
                token_file_path: Some(token_file.into()),
            }))?
        }
        CredentialSource::ClientSecret { tenant_id, client_id, secret } => {
            ClientSecretCredential::new(
                &tenant_id,
                client_id,
                Secret::new(secret.expose().to_owned()),
                Some(ClientSecretCredentialOptions { client_options }),
            )?
        }
        CredentialSource::ManagedIdentity { client_id, .. } => {
            ManagedIdentityCredential::new(Some(ManagedIdentityCredentialOptions {
                user_assigned_id: client_id.map(UserAssignedId::ClientId),
                client_options,
            }))?
        }
        CredentialSource::AzureCli => AzureCliCredential::new(None)?,
    })
}

/// Returns the text of an error on one line, without the text that the SDK adds.
fn one_line(error: &Error) -> String {
    let text = error.to_string();
    let text = text.split("\nTo troubleshoot").next().unwrap_or_default();
    let text = text.split_once("authentication failed.").map_or(text, |(_, why)| why);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(300).collect()
}

#[cfg(test)]
mod tests;
