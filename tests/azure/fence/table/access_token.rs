//! Tokens of Entra ID, as far as Azurite knows them: by https only, and it looks
//! at what a token says but not at who signed it.

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

/// Gives out one token.
#[derive(Debug)]
struct Given(String);

#[async_trait::async_trait]
impl TokenCredential for Given {
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

/// A token that nobody signed.
fn token(issuer: &str) -> Arc<Given> {
    let now = OffsetDateTime::from(leasehold_time::clock::wall()).unix_timestamp();
    let claims = json!({
        "aud": "https://storage.azure.com",
        "iss": issuer,
        "iat": now - 60,
        "nbf": now - 60,
        "exp": now + 3600,
    });
    let parts = [r#"{"alg":"RS256","typ":"JWT"}"#, &claims.to_string(), "nobody"];
    Arc::new(Given(parts.map(encode_url_safe).join(".")))
}

/// A certificate for 127.0.0.1, in files, and an HTTP client that trusts it.
fn certificate(dir: &Path) -> Transport {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    fs::write(dir.join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let trusted = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
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
    let by = |credential: Arc<Given>| {
        let account = Account::with_token(ACCOUNT, credential).unwrap();
        account.table_endpoint(&url).unwrap().transport(transport.clone())
    };
    let account = by(token("https://sts.windows.net/tenant/"));
    Table::new(&account, "bytoken").unwrap().create().await.unwrap();
    access::uses(&account, "bytoken").await;

    let stranger = by(token("https://elsewhere.example/"));
    let table = Table::new(&stranger, "bytoken").unwrap();
    let error = table.get::<Stock>("p", "r").await.unwrap_err();
    let Error::Invalid { message, .. } = &error else { panic!("{error:?}") };
    assert!(message.contains("(403 AuthenticationFailed)"), "{message}");
    assert!(message.contains("does not belong to the account"), "{message}");

    // A client that does not trust the certificate says so, and sends nothing.
    let credential = token("https://sts.windows.net/tenant/");
    let wary = Account::with_token(ACCOUNT, credential).unwrap().table_endpoint(&url).unwrap();
    let error = Table::new(&wary, "bytoken").unwrap().get::<Stock>("p", "r").await.unwrap_err();
    assert!(error.to_string().contains("The TLS handshake failed"), "{error}");
}

#[tokio::test]
async fn access_token_is_not_sent_over_plain_http() {
    let account = Account::with_token(ACCOUNT, token("https://sts.windows.net/tenant/")).unwrap();
    let problem = account.table_endpoint("http://127.0.0.1:1/devstoreaccount1").unwrap_err();
    assert!(problem.to_string().contains("must begin with https://"), "{problem}");
}
