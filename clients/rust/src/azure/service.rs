//! One service of an account: what a request is accompanied by, and how long
//! it may take. Nothing is repeated here.

use std::{fmt, sync::Arc, time::Duration};

use azure_core::{
    Bytes,
    http::{
        ClientOptions, Context, Pipeline, PipelineSendOptions, Request, RetryOptions, Transport,
        Url, UserAgentOptions, headers::Headers, policies::Policy,
    },
};

use super::{Fault, secret::SecretText};

/// The version of the storage protocol: one that emulators know too.
const VERSION: &str = "2025-11-05";

/// What requests are accompanied by.
pub(super) enum Access {
    /// Something that adds a header.
    Policy(Arc<dyn Policy>),
    /// A shared access signature, in the query.
    Query(SecretText),
}

/// A service that can be called.
#[derive(Clone)]
pub(crate) struct Service {
    url: Url,
    sas: Option<SecretText>,
    pipeline: Pipeline,
    call_limit: Duration,
}

/// What the service said, whatever the status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
}

impl Service {
    pub(super) fn new(
        url: Url,
        access: Access,
        transport: Transport,
        call_limit: Duration,
    ) -> Self {
        let options = ClientOptions {
            // Whoever knows whether a call may be repeated does that.
            retry: RetryOptions::none(),
            transport: Some(transport),
            user_agent: UserAgentOptions { application_id: Some("leasehold".to_owned()) },
            ..ClientOptions::default()
        };
        let (policies, sas) = match access {
            Access::Policy(policy) => (vec![policy], None),
            Access::Query(sas) => (Vec::new(), Some(sas)),
        };
        let (name, version) = (option_env!("CARGO_PKG_NAME"), option_env!("CARGO_PKG_VERSION"));
        let pipeline = Pipeline::new(name, version, options, Vec::new(), policies, None);
        Self { url, sas, pipeline, call_limit }
    }

    /// The address of what is at a path, which is escaped already. Without the
    /// signature.
    pub(crate) fn url(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/{path}", self.url.path().trim_end_matches('/')));
        url
    }

    /// Sends a request, signed.
    pub(crate) async fn send(&self, mut request: Request) -> Result<Answer, Fault> {
        request.insert_header("x-ms-version", VERSION);
        if let Some(sas) = &self.sas {
            let query = request.url().query().map(|query| format!("{query}&")).unwrap_or_default();
            request.url_mut().set_query(Some(&format!("{query}{}", sas.expose())));
        }
        let context = Context::new();
        let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        let sent = self.pipeline.send(&context, &mut request, Some(options));
        let answer = tokio::select! {
            answer = sent => answer?,
            () = leasehold_runtime::sleep(self.call_limit) => {
                let why = format!("no answer from the storage account within {:?}", self.call_limit);
                return Err(Fault::Unclear { why });
            }
        };
        let (status, headers, body) = answer.deconstruct();
        Ok(Answer { status: status.into(), headers, body: body.into() })
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}
