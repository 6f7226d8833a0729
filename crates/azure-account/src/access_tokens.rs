//! Access tokens from Entra ID: fetched by a task of their own, and ahead of
//! time, so that no call to the storage waits while the last token is valid.

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

/// The next token is fetched when the present one has less than this left. The
/// SDK's caches give out the old one until then.
const AHEAD: Span = Span::minutes(5);

/// A token with less than this left is not used any more.
const LAST: Span = Span::minutes(1);

/// How long one source is given.
const TRY: Duration = Duration::from_secs(15);

/// How soon it is tried again to fetch ahead of time.
const AGAIN: Duration = Duration::from_secs(10);

/// How quickly the metadata service of a machine answers, if there is one.
const PROBE: Duration = Duration::from_secs(1);
const METADATA_SERVICE: &str = "http://169.254.169.254/metadata/identity/oauth2/token";

/// Credential source that the SDK refuses.
#[derive(Debug, thiserror::Error)]
#[error("{credential} can't be used: {why}")]
pub struct InvalidCredential {
    credential: &'static str,
    why: String,
}

/// Gets access tokens from the first of several sources that works.
pub struct AccessTokens(Arc<Shared>);

struct Shared {
    sources: Vec<Source>,
    /// The first that worked. No other is asked any more.
    chosen: OnceLock<usize>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    token: Option<AccessToken>,
    fetch: Option<watch::Receiver<Option<Fetched>>>,
    begun: Option<Moment>,
}

type Fetched = Result<AccessToken, String>;

struct Source {
    name: &'static str,
    credential: Arc<dyn TokenCredential>,
    /// Looked for first, if others come after it.
    probe: Option<Transport>,
    limit: Duration,
}

impl AccessTokens {
    /// Creates the credentials. Nothing is sent yet.
    ///
    /// # Errors
    /// If the SDK refuses one of the sources.
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
            Ok(Source { name, credential, probe, limit: TRY })
        };
        Ok(Self::of(sources.into_iter().map(source).collect::<Result<_, _>>()?))
    }

    fn of(sources: Vec<Source>) -> Self {
        let state = Mutex::new(State::default());
        Self(Arc::new(Shared { sources, chosen: OnceLock::new(), state }))
    }

    /// Name of the source that is used, or of all that will be tried.
    #[must_use]
    pub fn name(&self) -> String {
        let names: Vec<_> = self.0.candidates().map(|(_, source)| source.name).collect();
        names.join(" or ")
    }

    /// The request for a token that is under way, or a new one. It goes on also
    /// if whoever waits for it gives up.
    fn fetch(&self, state: &mut State, scopes: &[&str]) -> watch::Receiver<Option<Fetched>> {
        if let Some(fetch) = &state.fetch
            && fetch.borrow().is_none()
            && fetch.has_changed().is_ok()
        {
            return fetch.clone();
        }
        let (sender, receiver) = watch::channel(None);
        state.fetch = Some(receiver.clone());
        state.begun = Some(Moment::now());
        let shared = Arc::clone(&self.0);
        let scopes: Vec<String> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        tokio::spawn(async move {
            let fetched = shared.ask(&scopes).await;
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
        let may = move |number: &usize| chosen.is_none_or(|chosen| chosen == number);
        self.sources.iter().enumerate().filter(move |(number, _)| may(number))
    }

    async fn ask(&self, scopes: &[String]) -> Fetched {
        let mut said = Vec::new();
        for (number, source) in self.candidates() {
            match source.ask(scopes).await {
                Ok(token) => {
                    self.chosen.get_or_init(|| number);
                    return Ok(token);
                }
                Err(why) => said.push(format!("{}: {why}", source.name)),
            }
        }
        Err(format!("no token from Entra ID ({})", said.join("; ")))
    }
}

impl Source {
    async fn ask(&self, scopes: &[String]) -> Fetched {
        if let Some(transport) = &self.probe {
            probe(transport).await?;
        }
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        tokio::select! {
            token = self.credential.get_token(&scopes, None) => {
                token.map_err(|error| one_line(&error))
            }
            () = leasehold_runtime::sleep(self.limit) => {
                Err(format!("no answer within {:?}", self.limit))
            }
        }
    }
}

/// Whether there is a metadata service. It refuses a request without a certain
/// header, which is answer enough.
async fn probe(transport: &Transport) -> Result<(), String> {
    let absent = || "this machine has none".to_owned();
    let mut request = Request::new(METADATA_SERVICE.parse().map_err(|_| absent())?, Method::Get);
    let context = Context::new();
    tokio::select! {
        answer = transport.send(&context, &mut request) => answer.map(drop).map_err(|_| absent()),
        () = leasehold_runtime::sleep(PROBE) => Err(absent()),
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
                let left = token.expires_on - OffsetDateTime::from(clock::wall());
                if left <= AHEAD && state.begun.is_none_or(|begun| (begun + AGAIN).has_passed()) {
                    drop(self.fetch(&mut state, scopes));
                }
                if left > LAST {
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
                Err(Error::with_message(ErrorKind::Credential, "the request for a token ended"))
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

/// Text of an error on one line, without the SDK's frame around it.
fn one_line(error: &Error) -> String {
    let text = error.to_string();
    let text = text.split("\nTo troubleshoot").next().unwrap_or_default();
    let text = text.split_once("authentication failed.").map_or(text, |(_, why)| why);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(300).collect()
}

#[cfg(test)]
mod tests;
