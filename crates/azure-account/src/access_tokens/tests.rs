//! Sources that do what is asked of them, in place of Entra ID.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use super::*;

/// Gives a token for each permit, and fails if there is to be none.
#[derive(Debug)]
struct Scripted {
    lasts: Option<Span>,
    permits: Semaphore,
    asked: AtomicUsize,
}

#[async_trait::async_trait]
impl TokenCredential for Scripted {
    async fn get_token(
        &self,
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.permits.acquire().await.unwrap().forget();
        let Some(lasts) = self.lasts else {
            let text = "XCredential authentication failed. not\n today\nTo troubleshoot, visit us";
            return Err(Error::with_message(ErrorKind::Credential, text));
        };
        Ok(AccessToken::new(number.to_string(), OffsetDateTime::from(clock::wall()) + lasts))
    }
}

fn scripted(lasts: Option<Span>, permits: usize) -> Arc<Scripted> {
    Arc::new(Scripted { lasts, permits: Semaphore::new(permits), asked: AtomicUsize::new(0) })
}

fn source(name: &'static str, credential: &Arc<Scripted>, limit: Duration) -> Source {
    let credential = Arc::clone(credential) as Arc<dyn TokenCredential>;
    Source { name, credential, probe: None, limit }
}

fn asked(credential: &Scripted) -> usize {
    credential.asked.load(Ordering::SeqCst)
}

async fn token(tokens: &AccessTokens) -> Result<String, String> {
    let token = tokens.get_token(&["scope"], None).await;
    token.map(|token| token.token.secret().to_owned()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_first_that_works_is_remembered() {
    let failing = scripted(None, 9);
    // So short that it is asked each time.
    let working = scripted(Some(Span::seconds(1)), 9);
    let tokens = AccessTokens::of(vec![source("a", &failing, TRY), source("b", &working, TRY)]);
    assert_eq!(tokens.name(), "a or b");
    assert_eq!(token(&tokens).await.unwrap(), "1");
    assert_eq!(token(&tokens).await.unwrap(), "2");
    assert_eq!(tokens.name(), "b");
    assert_eq!(asked(&failing), 1);
}

#[tokio::test]
async fn what_each_said_is_told_in_one_line() {
    let failing = scripted(None, 9);
    let silent = scripted(None, 0);
    let limit = Duration::from_millis(5);
    let tokens = AccessTokens::of(vec![source("a", &failing, TRY), source("b", &silent, limit)]);
    assert_eq!(
        token(&tokens).await.unwrap_err(),
        "no token from Entra ID (a: not today; b: no answer within 5ms)"
    );
    assert_eq!(tokens.name(), "a or b");
}

#[tokio::test]
async fn a_token_is_kept_and_one_request_serves_all() {
    let working = scripted(Some(Span::hours(1)), 0);
    let tokens = AccessTokens::of(vec![source("a", &working, TRY)]);
    let all = async { tokio::join!(token(&tokens), token(&tokens), token(&tokens)) };
    let (first, ()) = tokio::join!(all, async { working.permits.add_permits(9) });
    assert_eq!(first, (Ok("1".to_owned()), Ok("1".to_owned()), Ok("1".to_owned())));
    assert_eq!(token(&tokens).await.unwrap(), "1");
    assert_eq!(asked(&working), 1);
}

#[tokio::test]
async fn a_request_goes_on_if_nobody_waits_for_it() {
    let working = scripted(Some(Span::hours(1)), 0);
    let tokens = AccessTokens::of(vec![source("a", &working, TRY)]);
    tokio::select! {
        biased;
        _ = token(&tokens) => panic!("there is none yet"),
        () = std::future::ready(()) => {}
    }
    working.permits.add_permits(1);
    assert_eq!(token(&tokens).await.unwrap(), "1");
    assert_eq!(asked(&working), 1);
}

#[tokio::test]
async fn nobody_waits_for_the_next_token_while_the_last_is_good() {
    let working = scripted(Some(Span::minutes(3)), 1);
    let tokens = AccessTokens::of(vec![source("a", &working, TRY)]);
    assert_eq!(token(&tokens).await.unwrap(), "1");
    // As if it had been fetched long ago.
    tokens.0.state().begun = None;
    assert_eq!(token(&tokens).await.unwrap(), "1");
    assert_eq!(token(&tokens).await.unwrap(), "1");
    let mut fetch = tokens.0.state().fetch.clone().unwrap();
    working.permits.add_permits(9);
    fetch.wait_for(Option::is_some).await.unwrap();
    assert_eq!(token(&tokens).await.unwrap(), "2");
    assert_eq!(asked(&working), 2);
}
