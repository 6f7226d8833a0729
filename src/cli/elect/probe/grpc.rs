//! Probe by the gRPC health protocol.

use std::str::FromStr;

use tonic::transport::Endpoint;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::Probe;
use crate::cli::exit::root_cause;

/// Server, and the service to check; the whole server if that is empty.
#[derive(Debug, Clone)]
pub(in super::super) struct GrpcProbe {
    endpoint: Endpoint,
    service: String,
}

impl FromStr for GrpcProbe {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "must be [http://]HOST:PORT[/SERVICE]";
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let (authority, service) = rest.split_once('/').unwrap_or((rest, ""));
        let port = authority.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) {
            return Err(EXPECTED.to_owned());
        }
        let endpoint = Endpoint::from_shared(format!("http://{authority}"));
        let endpoint = endpoint.map_err(|error| format!("{EXPECTED}: {error}"))?;
        Ok(Self { endpoint, service: service.to_owned() })
    }
}

impl Probe for GrpcProbe {
    const KIND: &'static str = "gRPC";

    /// Checks on a new connection, because a failure to connect is a failed probe.
    async fn check(&self) -> Result<(), String> {
        let channel = self.endpoint.connect().await.map_err(|error| root_cause(&error))?;
        let request = HealthCheckRequest { service: self.service.clone() };
        let response = HealthClient::new(channel).check(request).await;
        let response =
            response.map_err(|status| format!("{:?}: {}", status.code(), status.message()))?;
        match response.into_inner().status() {
            ServingStatus::Serving => Ok(()),
            other => Err(other.as_str_name().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_port_and_optional_service() {
        for (text, uri, service) in [
            ("localhost:50051", "http://localhost:50051/", ""),
            ("http://localhost:50051/", "http://localhost:50051/", ""),
            ("10.0.0.7:1/shop.v1.Orders", "http://10.0.0.7:1/", "shop.v1.Orders"),
            ("[::1]:1/a", "http://[::1]:1/", "a"),
        ] {
            let probe: GrpcProbe = text.parse().unwrap();
            assert_eq!(
                (probe.endpoint.uri().to_string(), probe.service.as_str()),
                (uri.to_owned(), service)
            );
        }
        for wrong in ["", "localhost", "unix:/run/x", "https://localhost:1", "a:70000", "a b:1"] {
            assert!(wrong.parse::<GrpcProbe>().is_err(), "{wrong:?}");
        }
    }
}
