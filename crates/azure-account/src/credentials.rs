//! Sources of Entra ID access tokens, and the choice among them.

use std::ffi::OsString;

use crate::{InvalidSetting, SecretText};

/// Credential that the daemon uses for the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// First of the credentials below whose settings are complete.
    Auto,
    /// Credential in the connection string.
    ConnectionString,
    /// Account key.
    AccountKey,
    /// Shared access signature.
    Sas,
    /// Token file of Kubernetes.
    WorkloadIdentity,
    /// Secret of a registered application.
    ClientSecret,
    /// Identity that Azure assigns to the machine.
    ManagedIdentity,
    /// User of an `az login` in the Azure CLI.
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

    /// Returns the name in the configuration.
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

    /// Parses a name; `None` if it is unknown.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|credential| credential.name() == text)
    }
}

/// Identity in the environment variables that Kubernetes and Azure's tools set.
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
    /// `IDENTITY_ENDPOINT`, set by App Service and similar hosts
    pub endpoint: Option<String>,
}

impl Identity {
    /// Reads the environment. An empty variable counts as unset.
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

/// Source of access tokens and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialSource {
    /// Token file of Kubernetes.
    WorkloadIdentity {
        /// Tenant of the identity.
        tenant_id: String,
        /// Client ID of the identity.
        client_id: String,
        /// Path of the token file.
        token_file: String,
    },
    /// Secret of a registered application.
    ClientSecret {
        /// Tenant of the application.
        tenant_id: String,
        /// Client ID of the application.
        client_id: String,
        /// Its secret.
        secret: SecretText,
    },
    /// Identity that Azure assigns to the machine.
    ManagedIdentity {
        /// Client ID, if the machine has several identities.
        client_id: Option<String>,
        /// True if the environment names the endpoint. Otherwise only machines in
        /// Azure have one.
        announced: bool,
    },
    /// User of an `az login` in the Azure CLI.
    AzureCli,
}

impl CredentialSource {
    /// Returns the sources to try, in order. For `auto`: workload identity if the
    /// environment is complete for it; else a client secret if the environment is
    /// complete for that; else managed identity, then the Azure CLI.
    pub(crate) fn all(
        credential: Credential,
        identity: &Identity,
    ) -> Result<Vec<Self>, InvalidSetting> {
        Ok(match credential {
            Credential::WorkloadIdentity => {
                vec![Self::workload_identity(identity).map_err(|missing| {
                    requires(
                        &missing,
                        "In Kubernetes, label the pod azure.workload.identity/use: \"true\" and \
                         annotate its service account with the client ID",
                    )
                })?]
            }
            Credential::ClientSecret => {
                vec![Self::client_secret(identity).map_err(|missing| {
                    requires(&missing, "Their values are those of an application in Entra ID")
                })?]
            }
            Credential::ManagedIdentity => vec![Self::managed_identity(identity)],
            Credential::AzureCli => vec![Self::AzureCli],
            _ => Self::workload_identity(identity)
                .or_else(|_| Self::client_secret(identity))
                .map_or_else(
                    |_| vec![Self::managed_identity(identity), Self::AzureCli],
                    |source| vec![source],
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
            other => Err(missing(&[
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
            other => Err(missing(&[
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

    /// Returns the human-readable name.
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

fn missing(variables: &[(&'static str, bool)]) -> Vec<&'static str> {
    variables.iter().filter(|(_, is_set)| !is_set).map(|(variable, _)| *variable).collect()
}

fn requires(missing: &[&str], hint: &str) -> InvalidSetting {
    let (noun, verb) = match missing.len() {
        1 => ("variable", "is"),
        _ => ("variables", "are"),
    };
    let names = missing.join(" and ");
    InvalidSetting::new(
        "azure_credential",
        format!("requires the environment {noun} {names}, which {verb} not set. {hint}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_credential_depends_on_environment() {
        let mut identity = Identity { client_id: Some("c".to_owned()), ..Identity::default() };
        let names = |identity: &Identity| {
            let sources = CredentialSource::all(Credential::Auto, identity).unwrap();
            sources.iter().map(CredentialSource::name).collect::<Vec<_>>()
        };
        assert_eq!(names(&identity), ["managed identity", "Azure CLI"]);
        identity.tenant_id = Some("t".to_owned());
        identity.client_secret = Some(SecretText::new("mysecret"));
        assert_eq!(names(&identity), ["client secret"]);
        identity.token_file = Some("/run/token".to_owned());
        assert_eq!(names(&identity), ["workload identity"]);
        let forced = CredentialSource::all(Credential::ManagedIdentity, &identity).unwrap();
        let client_id = Some("c".to_owned());
        assert_eq!(forced, [CredentialSource::ManagedIdentity { client_id, announced: false }]);
    }
}
