//! Ways to get a token of Entra ID, and which of them is taken.

use std::sync::Arc;

use azure_core::{
    credentials::{Secret, TokenCredential},
    http::{ClientOptions, RetryOptions, Transport},
};
use azure_identity::{
    AzureCliCredential, ClientAssertionCredentialOptions, ClientSecretCredential,
    ClientSecretCredentialOptions, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};

use super::address::Problem;
use crate::config::{Credential, Identity, SecretText};

/// One way, with all that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    WorkloadIdentity {
        tenant_id: String,
        client_id: String,
        token_file: String,
    },
    ClientSecret {
        tenant_id: String,
        client_id: String,
        secret: SecretText,
    },
    /// `announced` if the environment says where it is to be had. Otherwise
    /// only machines of Azure have it.
    ManagedIdentity {
        client_id: Option<String>,
        announced: bool,
    },
    AzureCli,
}

impl Way {
    /// The ways to be tried, in order. For `auto`: workload identity if the
    /// environment has all of it; else a client secret if the environment has
    /// all of that; else a managed identity, then the Azure CLI.
    pub(super) fn all(credential: Credential, identity: &Identity) -> Result<Vec<Self>, Problem> {
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

    /// For people.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::WorkloadIdentity { .. } => "workload identity",
            Self::ClientSecret { .. } => "client secret",
            Self::ManagedIdentity { .. } => "managed identity",
            Self::AzureCli => "Azure CLI",
        }
    }

    /// What gets tokens this way.
    pub(super) fn credential(
        &self,
        transport: &Transport,
    ) -> azure_core::Result<Arc<dyn TokenCredential>> {
        let client_options = ClientOptions {
            // Whoever needs the token asks again.
            retry: RetryOptions::none(),
            transport: Some(transport.clone()),
            ..ClientOptions::default()
        };
        Ok(match self.clone() {
            Self::WorkloadIdentity { tenant_id, client_id, token_file } => {
                WorkloadIdentityCredential::new(Some(WorkloadIdentityCredentialOptions {
                    credential_options: ClientAssertionCredentialOptions { client_options },
                    client_id: Some(client_id),
                    tenant_id: Some(tenant_id),
                    token_file_path: Some(token_file.into()),
                }))?
            }
            Self::ClientSecret { tenant_id, client_id, secret } => ClientSecretCredential::new(
                &tenant_id,
                client_id,
                Secret::new(secret.expose().to_owned()),
                Some(ClientSecretCredentialOptions { client_options }),
            )?,
            Self::ManagedIdentity { client_id, .. } => {
                ManagedIdentityCredential::new(Some(ManagedIdentityCredentialOptions {
                    user_assigned_id: client_id.map(UserAssignedId::ClientId),
                    client_options,
                }))?
            }
            Self::AzureCli => AzureCliCredential::new(None)?,
        })
    }
}

fn lacking(variables: &[(&'static str, bool)]) -> Vec<&'static str> {
    variables.iter().filter(|(_, given)| !given).map(|(variable, _)| *variable).collect()
}

fn needs(lacking: &[&str], hint: &str) -> Problem {
    let (noun, verb) = match lacking.len() {
        1 => ("variable", "is"),
        _ => ("variables", "are"),
    };
    let names = lacking.join(" and ");
    Problem::new(
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
            let ways = Way::all(Credential::Auto, identity).unwrap();
            ways.iter().map(Way::name).collect::<Vec<_>>()
        };
        assert_eq!(names(&identity), ["managed identity", "Azure CLI"]);
        identity.tenant_id = Some("t".to_owned());
        identity.client_secret = Some(SecretText::new("hush"));
        assert_eq!(names(&identity), ["client secret"]);
        identity.token_file = Some("/run/token".to_owned());
        assert_eq!(names(&identity), ["workload identity"]);
        let forced = Way::all(Credential::ManagedIdentity, &identity).unwrap();
        let client_id = Some("c".to_owned());
        assert_eq!(forced, [Way::ManagedIdentity { client_id, announced: false }]);
    }
}
