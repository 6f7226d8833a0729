//! The account and its container: one client, one connection pool.

use std::{fmt, sync::Arc};

use azure_core::{
    credentials::TokenCredential,
    http::{Transport, policies::Policy},
};
use azure_storage_blob::{BlobContainerClient, BlobServiceClient, BlobServiceClientOptions};
use leasehold_azure_account::{
    API_VERSION, Address, AuthMethod, Form, InvalidSetting, SCOPE, SharedKey,
    access_tokens::{AccessTokens, InvalidCredential},
    client_options, transport,
};

use crate::Settings;

/// Reason why the account can't be called at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is incomplete or invalid.
    #[error(transparent)]
    Configuration(#[from] InvalidSetting),
    /// The credential is unusable.
    #[error(transparent)]
    Credential(#[from] InvalidCredential),
    /// The SDK's client refused its parameters.
    #[error("can't set up the storage client: {0}")]
    Client(String),
}

/// Storage account, and its container with the locks.
pub struct Account {
    service: BlobServiceClient,
    container: BlobContainerClient,
    auth: AuthMethod<Arc<AccessTokens>>,
}

impl Account {
    /// Sets up the client, without a call.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        Self::over(transport(), settings)
    }

    /// Sets up a client that uses this transport.
    pub fn over(transport: Transport, settings: &Settings) -> Result<Self, Error> {
        let Address { mut url, auth } = Address::of(&settings.account)?;
        let mut client_options = client_options(transport.clone());
        let mut credential: Option<Arc<dyn TokenCredential>> = None;
        let auth = match auth {
            AuthMethod::Key { account, key } => {
                let policy = SharedKey::new(account.clone(), key.expose(), Form::Other);
                client_options.per_try_policies.push(Arc::new(policy) as Arc<dyn Policy>);
                AuthMethod::Key { account, key }
            }
            AuthMethod::Sas(sas) => {
                url.set_query(Some(sas.expose()));
                AuthMethod::Sas(sas)
            }
            AuthMethod::Token(sources) => {
                let tokens = Arc::new(AccessTokens::new(sources, &transport)?);
                credential = Some(Arc::clone(&tokens) as Arc<dyn TokenCredential>);
                AuthMethod::Token(tokens)
            }
        };
        let options = BlobServiceClientOptions { client_options, version: API_VERSION.to_owned() };
        let service = BlobServiceClient::new(url, credential, Some(options))
            .map_err(|error| Error::Client(error.to_string()))?;
        let container = service.blob_container_client(&settings.container);
        Ok(Self { service, container, auth })
    }

    /// Container with the locks.
    #[must_use]
    pub fn container(&self) -> &BlobContainerClient {
        &self.container
    }

    /// The account's blob service.
    pub(crate) fn service(&self) -> &BlobServiceClient {
        &self.service
    }

    /// Fetches an access token if calls need one. A slow login is then not mistaken for
    /// a slow account.
    pub(crate) async fn sign_in(&self) -> azure_core::Result<()> {
        if let AuthMethod::Token(tokens) = &self.auth {
            tokens.get_token(&[SCOPE], None).await?;
        }
        Ok(())
    }

    /// Human-readable location of the container.
    #[must_use]
    pub fn display(&self) -> String {
        let mut url = self.container.url().clone();
        url.set_query(None);
        url.to_string()
    }

    /// Human-readable name of the credential. If an access token can come from several
    /// sources, the source is known only after one has succeeded.
    #[must_use]
    pub fn credential_name(&self) -> String {
        match &self.auth {
            AuthMethod::Key { .. } => "account key".to_owned(),
            AuthMethod::Sas(_) => "shared access signature".to_owned(),
            AuthMethod::Token(tokens) => tokens.name(),
        }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("container", &self.display())
            .field("credential", &self.credential_name())
            .finish()
    }
}
