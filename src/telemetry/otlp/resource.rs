//! Resource: attributes of this process that all its telemetry carries.

use opentelemetry::KeyValue;
use opentelemetry_sdk::{
    Resource,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
};

use leasehold_time::Entropy;

/// Name of the service without configuration.
const SERVICE_NAME: &str = "leasehold";

/// Variables with the place of this process in a Kubernetes cluster, as its manifests
/// set them.
const KUBERNETES: [(&str, &str); 3] = [
    ("POD_NAME", "k8s.pod.name"),
    ("NODE_NAME", "k8s.node.name"),
    ("POD_NAMESPACE", "k8s.namespace.name"),
];

/// Returns the resource. The variables OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME
/// override its attributes.
pub(super) fn this_process(entropy: &mut Entropy) -> Resource {
    let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let mut attributes = vec![
        KeyValue::new("service.name", SERVICE_NAME),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", random_uuid(entropy)),
        KeyValue::new("process.pid", i64::from(std::process::id())),
    ];
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    attributes.extend(host.clone().map(|host| KeyValue::new("host.name", host)));
    if variable("POD_NAME").is_none() && variable("KUBERNETES_SERVICE_HOST").is_some() {
        // A pod's host name is its name.
        attributes.extend(host.map(|host| KeyValue::new("k8s.pod.name", host)));
    }
    for (name, key) in KUBERNETES {
        attributes.extend(variable(name).map(|value| KeyValue::new(key, value)));
    }
    let builder = Resource::builder_empty()
        .with_attributes(attributes)
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    match variable("OTEL_SERVICE_NAME") {
        Some(name) => builder.with_service_name(name).build(),
        None => builder.build(),
    }
}

/// Returns a random UUID (version 4).
fn random_uuid(entropy: &mut Entropy) -> String {
    let bits = entropy.bits();
    let (version, variant) = (0x4000 | bits >> 64 & 0x0fff, 0x8000 | bits >> 48 & 0x3fff);
    let (time, end) = (bits >> 96, bits & 0xffff_ffff_ffff);
    format!("{time:08x}-{:04x}-{version:04x}-{variant:04x}-{end:012x}", bits >> 80 & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_has_a_random_uuid() {
        let mut entropy = Entropy::seeded(1);
        let (one, other) = (random_uuid(&mut entropy), random_uuid(&mut entropy));
        assert_ne!(one, other);
        assert_eq!(one.len(), 36);
        assert_eq!(&one[14..15], "4");
        assert!(matches!(&one[19..20], "8" | "9" | "a" | "b"), "{one}");
    }
}
