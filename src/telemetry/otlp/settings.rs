//! Settings of the exporters, from the standard variables of OpenTelemetry.
//!
//! An unset variable and an empty one are the same. A value that the specification
//! allows an implementation to ignore is reported as a warning. An endpoint that can't
//! be used is an error.

use std::time::Duration;

use super::super::sampler::Sampling;

/// Variables with a number of milliseconds or a count. The SDK reads most of them, and
/// ignores an invalid value.
const NUMBERS: [&str; 14] = [
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT",
    "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_EXPORT_TIMEOUT",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BLRP_SCHEDULE_DELAY",
    "OTEL_BLRP_EXPORT_TIMEOUT",
    "OTEL_BLRP_MAX_QUEUE_SIZE",
    "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_METRIC_EXPORT_INTERVAL",
    "OTEL_METRIC_EXPORT_TIMEOUT",
];

/// Variables with headers, which may be secrets: no message contains their values.
const HEADERS: [&str; 4] = [
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    "OTEL_EXPORTER_OTLP_LOGS_HEADERS",
];

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_METRIC_INTERVAL: Duration = Duration::from_secs(60);

/// Kind of telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    /// Returns the part of the names of variables.
    const fn name(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
            Self::Logs => "LOGS",
        }
    }
}

/// Protocol of an exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP, encoded as protobuf.
    Http,
}

/// Settings of one exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exporter {
    /// Protocol.
    pub protocol: Protocol,
    /// Complete endpoint: for HTTP, with the path of the signal.
    pub endpoint: String,
    /// Timeout of an export.
    pub timeout: Duration,
}

/// Settings of all exporters.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Exporter of traces, unless they are off.
    pub traces: Option<Exporter>,
    /// Exporter of metrics, unless they are off.
    pub metrics: Option<Exporter>,
    /// Exporter of logs, unless they are off.
    pub logs: Option<Exporter>,
    /// Share of requests to trace.
    pub sampling: Sampling,
    /// Interval of exports of metrics.
    pub metric_interval: Duration,
    /// Human-readable notes on values that were ignored.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Reads the variables of this process. Returns `None` if nothing is exported.
    ///
    /// # Errors
    /// If an endpoint is invalid. The message names the variable, not its value.
    pub fn from_env() -> Result<Option<Self>, String> {
        Self::read(&|name| std::env::var(name).ok())
    }

    fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let mut reader = Reader { variable, warnings: Vec::new() };
        if reader.is_disabled() {
            return Ok(None);
        }
        let traces = reader.exporter(Signal::Traces)?;
        let metrics = reader.exporter(Signal::Metrics)?;
        let logs = reader.exporter(Signal::Logs)?;
        if traces.is_none() && metrics.is_none() && logs.is_none() {
            return Ok(None);
        }
        let sampling = reader.sampling();
        let interval = reader.millis(&["OTEL_METRIC_EXPORT_INTERVAL"]);
        reader.check_unused();
        let metric_interval = interval.filter(|interval| !interval.is_zero());
        Ok(Some(Self {
            traces,
            metrics,
            logs,
            sampling,
            metric_interval: metric_interval.unwrap_or(DEFAULT_METRIC_INTERVAL),
            warnings: reader.warnings,
        }))
    }
}

struct Reader<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
}

impl Reader<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// Returns the value of the first variable that is set, and its name.
    fn first(&self, names: &[&str]) -> Option<(String, String)> {
        names.iter().find_map(|name| Some(((*name).to_owned(), self.get(name)?)))
    }

    /// Returns the value of a variable of a signal, or else that of the common one.
    fn for_signal(&self, signal: Signal, suffix: &str) -> Option<(String, String)> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{suffix}", signal.name());
        self.first(&[&own, &format!("OTEL_EXPORTER_OTLP_{suffix}")])
    }

    fn is_disabled(&mut self) -> bool {
        match self.get("OTEL_SDK_DISABLED").map(|value| value.to_ascii_lowercase()).as_deref() {
            Some("true") => true,
            None | Some("false") => false,
            Some(_) => {
                self.ignore("OTEL_SDK_DISABLED", "use true or false");
                false
            }
        }
    }

    /// Returns the exporter of a signal: if one is chosen, or if an endpoint is set.
    fn exporter(&mut self, signal: Signal) -> Result<Option<Exporter>, String> {
        let name = format!("OTEL_{}_EXPORTER", signal.name());
        let endpoint = self.for_signal(signal, "ENDPOINT");
        let is_on = match self.get(&name).as_deref() {
            Some("otlp") => true,
            Some("none") => false,
            Some(_) => {
                self.ignore(&name, "use otlp or none");
                endpoint.is_some()
            }
            None => endpoint.is_some(),
        };
        if !is_on {
            return Ok(None);
        }
        let protocol = self.protocol(signal);
        let endpoint = complete(endpoint, signal, protocol)?;
        let own = format!("OTEL_EXPORTER_OTLP_{}_TIMEOUT", signal.name());
        let timeout = self.millis(&[&own, "OTEL_EXPORTER_OTLP_TIMEOUT"]);
        Ok(Some(Exporter { protocol, endpoint, timeout: timeout.unwrap_or(DEFAULT_TIMEOUT) }))
    }

    fn protocol(&mut self, signal: Signal) -> Protocol {
        match self.for_signal(signal, "PROTOCOL") {
            Some((_, value)) if value == "grpc" => Protocol::Grpc,
            Some((_, value)) if value == "http/protobuf" => Protocol::Http,
            Some((name, _)) => {
                self.ignore(&name, "use grpc or http/protobuf");
                Protocol::Http
            }
            None => Protocol::Http,
        }
    }

    fn sampling(&mut self) -> Sampling {
        const NAME: &str = "OTEL_TRACES_SAMPLER";
        let name = self.get(NAME).unwrap_or_default();
        let (is_parent_based, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name.as_str()),
        };
        let ratio = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => self.ratio(),
            "" => return Sampling::DEFAULT,
            _ => {
                self.ignore(NAME, "use always_on, always_off, traceidratio or parentbased_…");
                return Sampling::DEFAULT;
            }
        };
        Sampling { ratio, is_parent_based }
    }

    fn ratio(&mut self) -> f64 {
        const NAME: &str = "OTEL_TRACES_SAMPLER_ARG";
        let Some(text) = self.get(NAME) else { return 1.0 };
        match text.parse() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => ratio,
            _ => {
                self.ignore(NAME, "use a number from 0 to 1");
                1.0
            }
        }
    }

    fn millis(&self, names: &[&str]) -> Option<Duration> {
        let (_, value) = self.first(names)?;
        value.parse().ok().map(Duration::from_millis)
    }

    /// Reports invalid values of variables that only the SDK reads.
    fn check_unused(&mut self) {
        for name in NUMBERS {
            if self.get(name).is_some_and(|value| value.parse::<u64>().is_err()) {
                self.ignore(name, "use a whole number");
            }
        }
        for name in HEADERS {
            let has_name =
                |pair: &str| pair.split_once('=').is_some_and(|(name, _)| !name.is_empty());
            if self.get(name).is_some_and(|pairs| !pairs.split(',').all(has_name)) {
                self.ignore(name, "use KEY=VALUE,KEY=VALUE; pairs without a key are left out");
            }
        }
    }

    fn ignore(&mut self, name: &str, fix: &str) {
        self.warnings.push(format!("{name} is invalid and ignored: {fix}"));
    }
}

/// Returns the complete endpoint. Only a common endpoint gets the path of the signal.
fn complete(
    endpoint: Option<(String, String)>,
    signal: Signal,
    protocol: Protocol,
) -> Result<String, String> {
    let (name, endpoint) = endpoint.unwrap_or_else(|| {
        let port = if protocol == Protocol::Grpc { 4317 } else { 4318 };
        ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://localhost:{port}"))
    });
    let is_valid = hyper::Uri::try_from(&endpoint).is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
    });
    if !is_valid {
        return Err(format!("{name} is invalid: use http://HOST:PORT or https://HOST:PORT"));
    }
    if protocol == Protocol::Grpc || name != "OTEL_EXPORTER_OTLP_ENDPOINT" {
        return Ok(endpoint);
    }
    let path = signal.name().to_ascii_lowercase();
    Ok(format!("{}/v1/{path}", endpoint.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        Settings::read(&|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn settings(variables: &[(&str, &str)]) -> Settings {
        read(variables).unwrap().unwrap()
    }

    #[test]
    fn export_is_off_without_endpoint() {
        const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), Ok(None));
        assert_eq!(read(&[("OTEL_SERVICE_NAME", "x"), ("OTEL_TRACES_SAMPLER", "loud")]), Ok(None));
        assert_eq!(read(&[ENDPOINT, ("OTEL_SDK_DISABLED", "True")]), Ok(None));
        let off = ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"];
        let off = off.map(|name| (name, "none"));
        assert_eq!(read(&[&[ENDPOINT][..], &off].concat()), Ok(None));
    }

    #[test]
    fn common_endpoint_gets_path_over_http_only() {
        let common = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/otlp/");
        let logs = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "https://logs/in");
        let grpc = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc");
        let settings = settings(&[common, logs, grpc]);
        let (traces, metrics) = (settings.traces.unwrap(), settings.metrics.unwrap());
        assert_eq!(traces.endpoint, "http://c:4318/otlp/v1/traces");
        assert_eq!(traces.protocol, Protocol::Http);
        assert_eq!(metrics.endpoint, "http://c:4318/otlp/");
        assert_eq!(metrics.protocol, Protocol::Grpc);
        assert_eq!(settings.logs.unwrap().endpoint, "https://logs/in");
        assert!(settings.warnings.is_empty());
    }

    #[test]
    fn chosen_exporter_has_default_endpoint() {
        let settings =
            settings(&[("OTEL_TRACES_EXPORTER", "otlp"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "250")]);
        let traces = settings.traces.unwrap();
        assert_eq!(traces.endpoint, "http://localhost:4318/v1/traces");
        assert_eq!(traces.timeout, Duration::from_millis(250));
        assert_eq!((settings.metrics, settings.logs), (None, None));
    }

    #[test]
    fn invalid_endpoint_is_an_error_without_its_value() {
        for invalid in
            ["mysecret:4318", "ftp://mysecret", "http://", "http://mysecret b", "/mysecret"]
        {
            let error = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", invalid)]).unwrap_err();
            assert!(error.starts_with("OTEL_EXPORTER_OTLP_ENDPOINT is invalid"), "{error}");
            assert!(!error.contains("mysecret"), "{error}");
        }
    }

    #[test]
    fn invalid_values_are_ignored_with_warning() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        for (name, value) in [
            ("OTEL_SDK_DISABLED", "maybe"),
            ("OTEL_LOGS_EXPORTER", "console"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_TRACES_SAMPLER", "loud"),
            ("OTEL_BSP_SCHEDULE_DELAY", "5s"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "mysecret"),
        ] {
            let settings = settings(&[endpoint, (name, value)]);
            let [warning] = &settings.warnings[..] else { panic!("{:?}", settings.warnings) };
            assert!(warning.starts_with(name) && !warning.contains("mysecret"), "{warning}");
            assert_eq!(settings.sampling, Sampling::DEFAULT);
            assert!(settings.traces.is_some() && settings.logs.is_some());
        }
    }

    #[test]
    fn sampler_is_read() {
        let sampling = |sampler, ratio| {
            let settings = settings(&[
                ("OTEL_TRACES_EXPORTER", "otlp"),
                ("OTEL_TRACES_SAMPLER", sampler),
                ("OTEL_TRACES_SAMPLER_ARG", ratio),
            ]);
            (settings.sampling.is_parent_based, settings.sampling.ratio)
        };
        assert_eq!(sampling("parentbased_traceidratio", "0.25"), (true, 0.25));
        assert_eq!(sampling("traceidratio", "2"), (false, 1.0));
        assert_eq!(sampling("always_off", "0.25"), (false, 0.0));
        assert_eq!(sampling("parentbased_always_on", ""), (true, 1.0));
    }
}
