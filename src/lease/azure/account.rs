//! The account and its container: one client, one connection pool.

use std::{fmt, sync::Arc};

use azure_core::{
    credentials::TokenCredential,
    http::{ClientOptions, RetryOptions, Transport, UserAgentOptions},
};
use azure_storage_blob::{BlobContainerClient, BlobServiceClient, BlobServiceClientOptions};

use super::{
    address::{Access, Address, Problem},
    shared_key::SharedKey,
    tokens::Tokens,
    transport::transport,
};
use crate::config::Azure;

/// The version of the storage protocol. Older than the SDK's own, so that
/// emulators know it too.
const VERSION: &str = "2025-11-05";

/// What tokens are for.
const SCOPE: &str = "https://storage.azure.com/.default";

/// The account can't be called at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration does not say enough.
    #[error(transparent)]
    Configuration(#[from] Problem),
    /// The credential can't be used.
    #[error("{credential} can't be used: {why}")]
    Credential {
        /// Which one.
        credential: &'static str,
        /// Why not.
        why: String,
    },
    /// The client refused what it was given.
    #[error("the storage client can't be set up: {0}")]
    Client(String),
}

/// A storage account, and the container in it that has the locks.
pub struct Account {
    service: BlobServiceClient,
    container: BlobContainerClient,
    access: Means,
}

/// What requests are accompanied by.
enum Means {
    Key,
    Sas,
    Tokens(Arc<Tokens>),
}

impl Account {
    /// Sets up the client. Nothing is sent yet.
    pub fn new(azure: &Azure) -> Result<Self, Error> {
        Self::over(transport(), azure)
    }

    /// The same, for calls that go this way.
    pub fn over(transport: Transport, azure: &Azure) -> Result<Self, Error> {
        let Address { mut url, access } = Address::of(azure)?;
        let mut options = ClientOptions {
            // Every call has a deadline of its own, and is repeated by whoever
            // knows that deadline.
            retry: RetryOptions::none(),
            transport: Some(transport.clone()),
            user_agent: UserAgentOptions { application_id: Some("leasehold".to_owned()) },
            ..ClientOptions::default()
        };
        let mut credential: Option<Arc<dyn TokenCredential>> = None;
        let access = match access {
            Access::Key { account, key } => {
                let policy = SharedKey::new(account, key.expose());
                options.per_try_policies.push(Arc::new(policy));
                Means::Key
            }
            Access::Sas(sas) => {
                url.set_query(Some(sas.expose()));
                Means::Sas
            }
            Access::Token(ways) => {
                let tokens = Arc::new(Tokens::new(ways, &transport)?);
                credential = Some(Arc::clone(&tokens) as Arc<dyn TokenCredential>);
                Means::Tokens(tokens)
            }
        };
        let options =
            BlobServiceClientOptions { client_options: options, version: VERSION.to_owned() };
        let service = BlobServiceClient::new(url, credential, Some(options))
            .map_err(|error| Error::Client(error.to_string()))?;
        let container = service.blob_container_client(&azure.container);
        Ok(Self { service, container, access })
    }

    /// The container that has the locks.
    #[must_use]
    pub fn container(&self) -> &BlobContainerClient {
        &self.container
    }

    /// The account's blob service.
    pub(super) fn service(&self) -> &BlobServiceClient {
        &self.service
    }

    /// Gets a token, if that is what calls are accompanied by: so that a
    /// credential that is slow to give one is not taken for a slow account.
    pub(super) async fn sign_in(&self) -> azure_core::Result<()> {
        if let Means::Tokens(tokens) = &self.access {
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
        match &self.access {
            Means::Key => "account key".to_owned(),
            Means::Sas => "shared access signature".to_owned(),
            Means::Tokens(tokens) => tokens.name(),
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
