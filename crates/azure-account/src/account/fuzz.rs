//! Accounts as users may describe them.

use azure_core::http::{AsyncRawResponse, HttpClient, Request};
use leasehold_fuzz::Fuzz;

use super::*;

/// Stands for a secret wherever it is put.
const HUSH: &str = "aHVzaGh1c2g";

const WORDS: &[&str] = &[
    HUSH,
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

/// For accounts that are not used: to make a real one takes long.
#[derive(Debug)]
struct Nobody;

#[async_trait::async_trait]
impl HttpClient for Nobody {
    async fn execute_request(&self, _: &Request) -> azure_core::Result<AsyncRawResponse> {
        unreachable!("nothing is sent")
    }
}

/// What is shown of an account.
fn shown((name, endpoints, auth): Description) -> String {
    let transport = Transport::new(Arc::new(Nobody));
    let account = Account { name, endpoints, auth, transport, call_limit: CALL_LIMIT };
    let shown = format!("{account:?}");
    assert!(!shown.contains(HUSH), "{shown}");
    let services = [
        account.service(ServiceKind::Table),
        account.service(ServiceKind::Blob),
        account.service(ServiceKind::Queue),
    ];
    for service in services.iter().flatten() {
        let url = service.url("x");
        assert!(url.query().is_none() && url.password().is_none(), "{url}");
        assert!(!format!("{service:?}").contains(HUSH), "{service:?}");
    }
    let credential = matches!(account.auth, AuthMethod::Key { .. });
    format!("{credential} {:?}", services.map(|service| service.is_ok()))
}

#[test]
fn whatever_is_given_as_an_account_no_secret_is_shown() {
    Fuzz::new("client-account").words(WORDS).run(|input| {
        let text = String::from_utf8_lossy(input);
        let url = parse_service_url(&text).map(|(url, sas)| {
            assert_eq!((url.query(), url.fragment(), url.password()), (None, None, None));
            // What was read reads back.
            assert_eq!(parse_service_url(url.as_str()), Ok((url.clone(), None)), "{url}");
            sas.is_some().to_string()
        });
        let told = [
            Account::read(&text).map(shown).map_err(|problem| problem.to_string()),
            url,
            parse_sas(&text).map(|sas| format!("{sas:?}")),
            check_key(&text).map(|()| "a key".to_owned()),
        ];
        told.map(|outcome| {
            let said = outcome.unwrap_or_else(|problem| problem);
            assert!(!said.contains(HUSH), "{said}");
            said
        })
        .join("|")
    });
}
