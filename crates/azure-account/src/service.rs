//! One service of an account: signs and sends requests, with a timeout and
//! without retries.

use std::{fmt, sync::Arc, time::Duration};

use azure_core::{
    Bytes,
    http::{
        Context, Pipeline, PipelineSendOptions, Request, Transport, Url,
        headers::Headers,
        policies::{Policy, auth::BearerTokenAuthorizationPolicy},
    },
};

use crate::{
    API_VERSION, AuthMethod, Fault, Form, SCOPE, SecretText, SharedKey, TokenCredential,
    client_options,
};

/// Service of an account.
#[derive(Clone)]
pub struct Service {
    url: Url,
    sas: Option<SecretText>,
    pipeline: Pipeline,
    call_timeout: Duration,
}

/// Response of a service, with any status.
#[derive(Debug)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: Headers,
    /// Body.
    pub body: Bytes,
}

impl Service {
    pub(crate) fn new(
        url: Url,
        auth: &AuthMethod<Arc<dyn TokenCredential>>,
        form: Form,
        transport: Transport,
        call_timeout: Duration,
    ) -> Self {
        let (policies, sas): (Vec<Arc<dyn Policy>>, _) = match auth {
            AuthMethod::Key { account, key } => {
                (vec![Arc::new(SharedKey::new(account.clone(), key.expose(), form))], None)
            }
            AuthMethod::Token(credential) => {
                let credential = Arc::clone(credential);
                (vec![Arc::new(BearerTokenAuthorizationPolicy::new(credential, [SCOPE]))], None)
            }
            AuthMethod::Sas(sas) => (Vec::new(), Some(sas.clone())),
        };
        let (name, version) = (option_env!("CARGO_PKG_NAME"), option_env!("CARGO_PKG_VERSION"));
        let options = client_options(transport);
        let pipeline = Pipeline::new(name, version, options, Vec::new(), policies, None);
        Self { url, sas, pipeline, call_timeout }
    }

    /// Returns the URL of a path, which must be escaped. Without the signature.
    #[must_use]
    pub fn url(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/{path}", self.url.path().trim_end_matches('/')));
        url
    }

    /// Signs a request and sends it once.
    ///
    /// # Errors
    /// If no response is received within the timeout.
    pub async fn send(&self, mut request: Request) -> Result<Response, Fault> {
        request.insert_header("x-ms-version", API_VERSION);
        if let Some(sas) = &self.sas {
            let query = request.url().query().map(|query| format!("{query}&")).unwrap_or_default();
            request.url_mut().set_query(Some(&format!("{query}{}", sas.expose())));
        }
        let context = Context::new();
        let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        let sent = self.pipeline.send(&context, &mut request, Some(options));
        let response = tokio::select! {
            response = sent => response?,
            () = leasehold_runtime::sleep(self.call_timeout) => {
                let timeout = self.call_timeout;
                let why = format!("no response from the storage account within {timeout:?}");
                return Err(Fault::Unclear { why });
            }
        };
        let (status, headers, body) = response.deconstruct();
        Ok(Response { status: status.into(), headers, body: body.into() })
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}
