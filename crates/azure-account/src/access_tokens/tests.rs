//! Tests with scripted sources in place of Entra ID.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use super::*;

/// Source that answers one request per permit: with an access token of this
/// lifetime, or with an error if there is none.
#[derive(Debug)]
struct Scripted {
    lifetime: Option<Span>,
    permits: Semaphore,
    requests: AtomicUsize,
}

#[async_trait::async_trait]
impl TokenCredential for Scripted {
    async fn get_token(
        &self,
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        self.permits.acquire().await.unwrap().forget();
        let Some(lifetime) = self.lifetime else {
            let text = "XCredential authentication failed. not\n today\nTo troubleshoot, visit us";
            return Err(Error::with_message(ErrorKind::Credential, text));
        };
        Ok(AccessToken::new(number.to_string(), OffsetDateTime::from(clock::wall()) + lifetime))
    }
}

fn scripted(lifetime: Option<Span>, permits: usize) -> Arc<Scripted> {
    let (permits, requests) = (Semaphore::new(permits), AtomicUsize::new(0));
    Arc::new(Scripted { lifetime, permits, requests })
}

fn source(name: &'static str, credential: &Arc<Scripted>, timeout: Duration) -> Source {
    let credential = Arc::clone(credential) as Arc<dyn TokenCredential>;
    Source { name, credential, probe: None, timeout }
}

fn requests(credential: &Scripted) -> usize {
    credential.requests.load(Ordering::SeqCst)
}

async fn token(tokens: &AccessTokens) -> Result<String, String> {
    let token = tokens.get_token(&["scope"], None).await;
    token.map(|token| token.token.secret().to_owned()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn first_working_source_is_kept() {
    let failing = scripted(None, 9);
    // The lifetime is so short that each call requests an access token.
    let working = scripted(Some(Span::seconds(1)), 9);
    let tokens = AccessTokens::of(vec![
        source("a", &failing, SOURCE_TIMEOUT),
        source("b", &working, SOURCE_TIMEOUT),
    ]);
    assert_eq!(tokens.name(), "a or b");
    assert_eq!(token(&tokens).await.unwrap(), "1");
    assert_eq!(token(&tokens).await.unwrap(), "2");
    assert_eq!(tokens.name(), "b");
    assert_eq!(requests(&failing), 1);
}

#[tokio::test]
async fn error_lists_cause_of_each_source_on_one_line() {
    let failing = scripted(None, 9);
    let silent = scripted(None, 0);
    let timeout = Duration::from_millis(5);
    let tokens = AccessTokens::of(vec![
        source("a", &failing, SOURCE_TIMEOUT),
        source("b", &silent, timeout),
    ]);
    assert_eq!(
        token(&tokens).await.unwrap_err(),
        "no access token from Entra ID (a: not today; b: no response within 5ms)"
    );
    assert_eq!(tokens.name(), "a or b");
}

#[tokio::test]
async fn access_token_is_cached_and_concurrent_calls_share_request() {
    let working = scripted(Some(Span::hours(1)), 0);
    let tokens = AccessTokens::of(vec![source("a", &working, SOURCE_TIMEOUT)]);
    let all = async { tokio::join!(token(&tokens), token(&tokens), token(&tokens)) };
    let (first, ()) = tokio::join!(all, async { working.permits.add_permits(9) });
    assert_eq!(first, (Ok("1".to_owned()), Ok("1".to_owned()), Ok("1".to_owned())));
    assert_eq!(token(&tokens).await.unwrap(), "1");
    assert_eq!(requests(&working), 1);
}

#[tokio::test]
async fn request_continues_after_waiter_is_dropped() {
    let working = scripted(Some(Span::hours(1)), 0);
    let tokens = AccessTokens::of(vec![source("a", &working, SOURCE_TIMEOUT)]);
    tokio::select! {
        biased;
        _ = token(&tokens) => panic!("no permit yet"),
        () = std::future::ready(()) => {}
    }
    working.permits.add_permits(1);
    assert_eq!(token(&tokens).await.unwrap(), "1");
    assert_eq!(requests(&working), 1);
}

#[tokio::test]
async fn refresh_does_not_delay_calls_while_access_token_is_valid() {
    let working = scripted(Some(Span::minutes(3)), 1);
    let tokens = AccessTokens::of(vec![source("a", &working, SOURCE_TIMEOUT)]);
    assert_eq!(token(&tokens).await.unwrap(), "1");
    // Allows the next refresh.
    tokens.0.state().fetch_started = None;
    assert_eq!(token(&tokens).await.unwrap(), "1");
    assert_eq!(token(&tokens).await.unwrap(), "1");
    let mut fetch = tokens.0.state().fetch.clone().unwrap();
    working.permits.add_permits(9);
    fetch.wait_for(Option::is_some).await.unwrap();
    assert_eq!(token(&tokens).await.unwrap(), "2");
    assert_eq!(requests(&working), 2);
}
