//! Sources of access tokens from Entra ID, and the choice among them.

use std::ffi::OsString;

use crate::{InvalidSetting, SecretText};

/// Credential that the daemon uses for the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// By the first of the others, in the order below, for which all is given.
    Auto,
    /// By what is in the connection string.
    ConnectionString,
    /// By the account's key.
    AccountKey,
    /// By a shared access signature.
    Sas,
    /// By a token that Kubernetes puts into a file.
    WorkloadIdentity,
    /// By the secret of a registered application.
    ClientSecret,
    /// By the identity that Azure gives to the machine.
    ManagedIdentity,
    /// By whoever is logged in to the Azure CLI.
    AzureCli,
}

impl Credential {
    const ALL: [Self; 8] = [
        Self::Auto,
        Self::ConnectionString,
        Self::AccountKey,
        Self::Sas,
        Self::WorkloadIdentity,
        Self::ClientSecret,
        Self::ManagedIdentity,
        Self::AzureCli,
    ];

    /// As it is written in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::ConnectionString => "connection-string",
            Self::AccountKey => "account-key",
            Self::Sas => "sas",
            Self::WorkloadIdentity => "workload-identity",
            Self::ClientSecret => "client-secret",
            Self::ManagedIdentity => "managed-identity",
            Self::AzureCli => "azure-cli",
        }
    }

    /// Parses a name; none if there is no such credential.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|credential| credential.name() == text)
    }
}

/// What Azure's own variables say, which Kubernetes and Azure's tools set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// `AZURE_TENANT_ID`
    pub tenant_id: Option<String>,
    /// `AZURE_CLIENT_ID`
    pub client_id: Option<String>,
    /// `AZURE_CLIENT_SECRET`
    pub client_secret: Option<SecretText>,
    /// `AZURE_FEDERATED_TOKEN_FILE`
    pub token_file: Option<String>,
    /// `IDENTITY_ENDPOINT`, which App Service and the like set
    pub endpoint: Option<String>,
}

impl Identity {
    /// Reads the environment. An empty variable counts as not set.
    pub fn from_environment(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let read = |variable| lookup(variable)?.into_string().ok().filter(|text| !text.is_empty());
        Self {
            tenant_id: read("AZURE_TENANT_ID"),
            client_id: read("AZURE_CLIENT_ID"),
            client_secret: read("AZURE_CLIENT_SECRET").map(SecretText::new),
            token_file: read("AZURE_FEDERATED_TOKEN_FILE"),
            endpoint: read("IDENTITY_ENDPOINT"),
        }
    }
}

/// Source of access tokens, with all that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialSource {
    /// Token of Kubernetes in a file.
    WorkloadIdentity {
        /// Tenant of the identity.
        tenant_id: String,
        /// Identity.
        client_id: String,
        /// File that has the token.
        token_file: String,
    },
    /// Secret of a registered application.
    ClientSecret {
        /// Tenant of the application.
        tenant_id: String,
        /// Application.
        client_id: String,
        /// Its secret.
        secret: SecretText,
    },
    /// Identity that Azure gives to the machine.
    ManagedIdentity {
        /// Identity, if the machine has several.
        client_id: Option<String>,
        /// Set if the environment names its endpoint. Otherwise only machines
        /// of Azure have one.
        announced: bool,
    },
    /// Login of the Azure CLI.
    AzureCli,
}

impl CredentialSource {
    /// Sources to be tried, in order. For `auto`: workload identity if the
    /// environment has all of it; else a client secret if the environment has
    /// all of that; else a managed identity, then the Azure CLI.
    pub(crate) fn all(
        credential: Credential,
        identity: &Identity,
    ) -> Result<Vec<Self>, InvalidSetting> {
        Ok(match credential {
            Credential::WorkloadIdentity => {
                vec![Self::workload_identity(identity).map_err(|lacking| {
                    needs(
                        &lacking,
                        "In Kubernetes, label the pod azure.workload.identity/use: \"true\" and \
                         annotate its service account with the client's id",
                    )
                })?]
            }
            Credential::ClientSecret => {
                vec![Self::client_secret(identity).map_err(|lacking| {
                    needs(&lacking, "They belong to an application registered in Entra ID")
                })?]
            }
            Credential::ManagedIdentity => vec![Self::managed_identity(identity)],
            Credential::AzureCli => vec![Self::AzureCli],
            _ => Self::workload_identity(identity)
                .or_else(|_| Self::client_secret(identity))
                .map_or_else(
                    |_| vec![Self::managed_identity(identity), Self::AzureCli],
                    |way| vec![way],
                ),
        })
    }

    fn workload_identity(identity: &Identity) -> Result<Self, Vec<&'static str>> {
        match identity.clone() {
            Identity {
                tenant_id: Some(tenant_id),
                client_id: Some(client_id),
                token_file: Some(token_file),
                ..
            } => Ok(Self::WorkloadIdentity { tenant_id, client_id, token_file }),
            other => Err(lacking(&[
                ("AZURE_TENANT_ID", other.tenant_id.is_some()),
                ("AZURE_CLIENT_ID", other.client_id.is_some()),
                ("AZURE_FEDERATED_TOKEN_FILE", other.token_file.is_some()),
            ])),
        }
    }

    fn client_secret(identity: &Identity) -> Result<Self, Vec<&'static str>> {
        match identity.clone() {
            Identity {
                tenant_id: Some(tenant_id),
                client_id: Some(client_id),
                client_secret: Some(secret),
                ..
            } => Ok(Self::ClientSecret { tenant_id, client_id, secret }),
            other => Err(lacking(&[
                ("AZURE_TENANT_ID", other.tenant_id.is_some()),
                ("AZURE_CLIENT_ID", other.client_id.is_some()),
                ("AZURE_CLIENT_SECRET", other.client_secret.is_some()),
            ])),
        }
    }

    fn managed_identity(identity: &Identity) -> Self {
        let announced = identity.endpoint.is_some();
        Self::ManagedIdentity { client_id: identity.client_id.clone(), announced }
    }

    /// Human-readable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::WorkloadIdentity { .. } => "workload identity",
            Self::ClientSecret { .. } => "client secret",
            Self::ManagedIdentity { .. } => "managed identity",
            Self::AzureCli => "Azure CLI",
        }
    }
}

fn lacking(variables: &[(&'static str, bool)]) -> Vec<&'static str> {
    variables.iter().filter(|(_, given)| !given).map(|(variable, _)| *variable).collect()
}

fn needs(lacking: &[&str], hint: &str) -> InvalidSetting {
    let (noun, verb) = match lacking.len() {
        1 => ("variable", "is"),
        _ => ("variables", "are"),
    };
    let names = lacking.join(" and ");
    InvalidSetting::new(
        "azure_credential",
        format!("needs the environment {noun} {names}, which {verb} not set. {hint}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides_if_nothing_else_does() {
        let mut identity = Identity { client_id: Some("c".to_owned()), ..Identity::default() };
        let names = |identity: &Identity| {
            let ways = CredentialSource::all(Credential::Auto, identity).unwrap();
            ways.iter().map(CredentialSource::name).collect::<Vec<_>>()
        };
        assert_eq!(names(&identity), ["managed identity", "Azure CLI"]);
        identity.tenant_id = Some("t".to_owned());
        identity.client_secret = Some(SecretText::new("hush"));
        assert_eq!(names(&identity), ["client secret"]);
        identity.token_file = Some("/run/token".to_owned());
        assert_eq!(names(&identity), ["workload identity"]);
        let forced = CredentialSource::all(Credential::ManagedIdentity, &identity).unwrap();
        let client_id = Some("c".to_owned());
        assert_eq!(forced, [CredentialSource::ManagedIdentity { client_id, announced: false }]);
    }
}
