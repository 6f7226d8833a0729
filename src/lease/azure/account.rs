//! The account and its container: one client, one connection pool.

use std::{fmt, sync::Arc};

use azure_core::{
    credentials::TokenCredential,
    http::{ClientOptions, RetryOptions, UserAgentOptions},
};
use azure_storage_blob::{BlobContainerClient, BlobContainerClientOptions};

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
        let Address { mut url, access } = Address::of(azure)?;
        let transport = transport();
        let mut options = ClientOptions {
            // Every call has a deadline of its own, and is repeated by whoever
            // knows that deadline.
            retry: RetryOptions::none(),
            transport: Some(transport.clone()),
            user_agent: UserAgentOptions { application_id: Some("leasehold".to_owned()) },
            ..ClientOptions::default()
        };
        url.path_segments_mut()
            .map_err(|()| Error::Client("the account's address takes no path".to_owned()))?
            .pop_if_empty()
            .push(&azure.container);
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
            BlobContainerClientOptions { client_options: options, version: VERSION.to_owned() };
        let container = BlobContainerClient::new(url, credential, Some(options))
            .map_err(|error| Error::Client(error.to_string()))?;
        Ok(Self { container, access })
    }

    /// The container that has the locks.
    #[must_use]
    pub fn container(&self) -> &BlobContainerClient {
        &self.container
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
