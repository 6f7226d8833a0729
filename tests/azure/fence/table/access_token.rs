//! Entra ID access tokens, as far as Azurite supports them: over HTTPS only. It checks
//! the claims of a token, but not its signature.

use std::{fs, path::Path, sync::Arc, time::Duration};

use azure_core::{
    base64::encode_url_safe,
    credentials::{AccessToken, TokenRequestOptions},
    time::OffsetDateTime,
};
use leasehold_fence::{
    azure::{Account, TokenCredential, Transport},
    table::{Error, Table},
};
use leasehold_test_support::azurite::{ACCOUNT, Azurite};
use serde_json::json;
use tempfile::TempDir;

use super::{Stock, access};

/// Credential that returns a fixed access token.
#[derive(Debug)]
struct FixedToken(String);

#[async_trait::async_trait]
impl TokenCredential for FixedToken {
    async fn get_token(
        &self,
        scopes: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        assert_eq!(scopes, ["https://storage.azure.com/.default"]);
        let hour = Duration::from_secs(3600);
        Ok(AccessToken::new(self.0.clone(), (leasehold_time::clock::wall() + hour).into()))
    }
}

/// Creates an access token with an invalid signature.
fn token(issuer: &str) -> Arc<FixedToken> {
    let now = OffsetDateTime::from(leasehold_time::clock::wall()).unix_timestamp();
    let claims = json!({
        "aud": "https://storage.azure.com",
        "iss": issuer,
        "iat": now - 60,
        "nbf": now - 60,
        "exp": now + 3600,
    });
    let parts = [r#"{"alg":"RS256","typ":"JWT"}"#, &claims.to_string(), "unsigned"];
    Arc::new(FixedToken(parts.map(encode_url_safe).join(".")))
}

/// Writes a certificate for 127.0.0.1 to files. Returns an HTTP client that trusts it.
fn certificate(dir: &Path) -> Transport {
    let certificate = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    fs::write(dir.join("cert.pem"), certificate.cert.pem()).unwrap();
    fs::write(dir.join("key.pem"), certificate.signing_key.serialize_pem()).unwrap();
    let trusted = reqwest::Certificate::from_pem(certificate.cert.pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([trusted]).build().unwrap();
    Transport::new(Arc::new(client))
}

#[tokio::test]
async fn access_token_authenticates() {
    let dir = TempDir::new().unwrap();
    let transport = certificate(dir.path());
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let port = Azurite::shared().start_https_tables(&cert, &key);
    let url = format!("https://127.0.0.1:{port}/{ACCOUNT}");
    let by = |credential: Arc<FixedToken>| {
        let account = Account::with_token(ACCOUNT, credential).unwrap();
        account.table_endpoint(&url).unwrap().transport(transport.clone())
    };
    let account = by(token("https://sts.windows.net/tenant/"));
    Table::new(&account, "bytoken").unwrap().create().await.unwrap();
    access::uses(&account, "bytoken").await;

    let other_tenant = by(token("https://elsewhere.example/"));
    let table = Table::new(&other_tenant, "bytoken").unwrap();
    let error = table.get::<Stock>("p", "r").await.unwrap_err();
    let Error::Invalid { message, .. } = &error else { panic!("{error:?}") };
    assert!(message.contains("(403 AuthenticationFailed)"), "{message}");
    assert!(message.contains("does not belong to the account"), "{message}");

    // A client that does not trust the certificate returns an error and sends nothing.
    let credential = token("https://sts.windows.net/tenant/");
    let untrusting =
        Account::with_token(ACCOUNT, credential).unwrap().table_endpoint(&url).unwrap();
    let error =
        Table::new(&untrusting, "bytoken").unwrap().get::<Stock>("p", "r").await.unwrap_err();
    assert!(error.to_string().contains("The TLS handshake failed"), "{error}");
}

#[tokio::test]
async fn access_token_is_not_sent_over_plain_http() {
    let account = Account::with_token(ACCOUNT, token("https://sts.windows.net/tenant/")).unwrap();
    let problem = account.table_endpoint("http://127.0.0.1:1/devstoreaccount1").unwrap_err();
    assert!(problem.to_string().contains("must begin with https://"), "{problem}");
}
