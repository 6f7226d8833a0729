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

/// The account can't be called at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration does not say enough.
    #[error(transparent)]
    Configuration(#[from] InvalidSetting),
    /// The credential can't be used.
    #[error(transparent)]
    Credential(#[from] InvalidCredential),
    /// The client refused what it was given.
    #[error("the storage client can't be set up: {0}")]
    Client(String),
}

/// A storage account, and the container in it that has the locks.
pub struct Account {
    service: BlobServiceClient,
    container: BlobContainerClient,
    auth: AuthMethod<Arc<AccessTokens>>,
}

impl Account {
    /// Sets up the client. Nothing is sent yet.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        Self::over(transport(), settings)
    }

    /// The same, for calls that go this way.
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

    /// The container that has the locks.
    #[must_use]
    pub fn container(&self) -> &BlobContainerClient {
        &self.container
    }

    /// The account's blob service.
    pub(crate) fn service(&self) -> &BlobServiceClient {
        &self.service
    }

    /// Gets a token, if that is what calls are accompanied by: so that a
    /// credential that is slow to give one is not taken for a slow account.
    pub(crate) async fn sign_in(&self) -> azure_core::Result<()> {
        if let AuthMethod::Token(tokens) = &self.auth {
            tokens.get_token(&[SCOPE], None).await?;
        }
        Ok(())
    }

    /// Where the container is, for people.
    #[must_use]
    pub fn display(&self) -> String {
        let mut url = self.container.url().clone();
        url.set_query(None);
        url.to_string()
    }

    /// What gives access to the account, for people. One of several ways to get
    /// a token is known only when one has worked.
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
