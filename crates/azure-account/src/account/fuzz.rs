//! Fuzz target for the descriptions of accounts.

use azure_core::http::{AsyncRawResponse, HttpClient, Request};
use leasehold_fuzz::Fuzz;

use super::*;

/// Secret, regardless of its place in the input.
const SECRET: &str = "aHVzaGh1c2g";

const WORDS: &[&str] = &[
    SECRET,
    "AccountName=acme;",
    "AccountKey=",
    "AccountKey=aHVzaGh1c2g=;",
    "BlobEndpoint=",
    "QueueEndpoint=",
    "TableEndpoint=",
    "SharedAccessSignature=",
    "EndpointSuffix=",
    "DefaultEndpointsProtocol=",
    "UseDevelopmentStorage=true",
    "DevelopmentStorageProxyUri=",
    "https://",
    "http://127.0.0.1:10000/",
    ".blob.core.windows.net",
    ".table.core.windows.net/",
    "sv=1&sig=",
    "?",
    "#",
    "@",
    ";",
];

/// HTTP client of accounts that are not used; a real one is slow to create.
#[derive(Debug)]
struct UnusedClient;

#[async_trait::async_trait]
impl HttpClient for UnusedClient {
    async fn execute_request(&self, _: &Request) -> azure_core::Result<AsyncRawResponse> {
        unreachable!("nothing is sent")
    }
}

/// Checks that no output contains the secret. Returns the kind of the account.
fn check((name, endpoints, auth): Description) -> String {
    let transport = Transport::new(Arc::new(UnusedClient));
    let account = Account { name, endpoints, auth, transport, call_timeout: CALL_TIMEOUT };
    let text = format!("{account:?}");
    assert!(!text.contains(SECRET), "{text}");
    let services = [
        account.service(ServiceKind::Table),
        account.service(ServiceKind::Blob),
        account.service(ServiceKind::Queue),
    ];
    for service in services.iter().flatten() {
        let url = service.url("x");
        assert!(url.query().is_none() && url.password().is_none(), "{url}");
        assert!(!format!("{service:?}").contains(SECRET), "{service:?}");
    }
    let credential = matches!(account.auth, AuthMethod::Key { .. });
    format!("{credential} {:?}", services.map(|service| service.is_ok()))
}

#[test]
fn account_descriptions_never_leak_secrets() {
    Fuzz::new("client-account").words(WORDS).run(|input| {
        let text = String::from_utf8_lossy(input);
        let url = parse_service_url(&text).map(|(url, sas)| {
            assert_eq!((url.query(), url.fragment(), url.password()), (None, None, None));
            // A parsed URL parses to itself.
            assert_eq!(parse_service_url(url.as_str()), Ok((url.clone(), None)), "{url}");
            sas.is_some().to_string()
        });
        let outcomes = [
            Account::read(&text).map(check).map_err(|problem| problem.to_string()),
            url,
            parse_sas(&text).map(|sas| format!("{sas:?}")),
            check_key(&text).map(|()| "a key".to_owned()),
        ];
        outcomes
            .map(|outcome| {
                let text = outcome.unwrap_or_else(|problem| problem);
                assert!(!text.contains(SECRET), "{text}");
                text
            })
            .join("|")
    });
}
