//! What the standard variables of OpenTelemetry ask for.

use std::collections::HashMap;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::Protocol;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::Sampler;
use peat_types::Env;
use percent_encoding::percent_decode_str;

/// Where a collector on this machine listens.
const LOCAL: &str = "http://localhost:4318";
/// Below the address that serves all signals.
const TRACES: &str = "v1/traces";
/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How traces are exported.
pub(super) struct Exporting {
    pub endpoint: String,
    pub headers: HashMap<String, String>,
    pub protocol: Protocol,
    pub timeout: Duration,
    pub sampler: Sampler,
    pub resource: Resource,
}

impl Exporting {
    /// What `env` asks for, if it asks for anything. `complain` hears what is not understood: it is passed over, or, where
    /// that would send traces to where they were not meant to go, nothing is exported.
    pub fn wanted(env: &Env, complain: &mut dyn FnMut(String)) -> Option<Self> {
        let is = |name, value: &str| env.var(name).is_some_and(|set| set.trim().eq_ignore_ascii_case(value));
        let endpoint = endpoint(env);
        if is("OTEL_SDK_DISABLED", "true") || !exports(env, endpoint.is_some(), complain) {
            return None;
        }
        let protocol = protocol(env, complain)?;
        Some(Self {
            endpoint: endpoint.unwrap_or_else(|| below(LOCAL)),
            headers: headers(env),
            protocol,
            timeout: timeout(env, complain),
            sampler: sampler(env, complain),
            resource: resource(env, complain),
        })
    }
}

/// The value for traces, else that for all signals.
fn of_traces<'a>(env: &'a Env, what: &str) -> Option<&'a str> {
    let own = env.var(&format!("OTEL_EXPORTER_OTLP_TRACES_{what}"));
    own.or_else(|| env.var(&format!("OTEL_EXPORTER_OTLP_{what}"))).map(str::trim)
}

fn endpoint(env: &Env) -> Option<String> {
    let own = env.var("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").map(|address| address.trim().to_owned());
    own.or_else(|| env.var("OTEL_EXPORTER_OTLP_ENDPOINT").map(|address| below(address.trim())))
}

fn below(address: &str) -> String {
    format!("{}/{TRACES}", address.trim_end_matches('/'))
}

/// Whether there is an exporter that is known here. Unlike elsewhere, nothing is sent to a default address by itself.
fn exports(env: &Env, addressed: bool, complain: &mut dyn FnMut(String)) -> bool {
    let Some(named) = env.var("OTEL_TRACES_EXPORTER") else { return addressed };
    let mut otlp = false;
    for name in named.split(',').map(str::trim) {
        match name {
            "otlp" => otlp = true,
            "none" | "" => {}
            other => complain(format!("OTEL_TRACES_EXPORTER={other} is not known here: write otlp or none")),
        }
    }
    otlp
}

fn protocol(env: &Env, complain: &mut dyn FnMut(String)) -> Option<Protocol> {
    match of_traces(env, "PROTOCOL") {
        None | Some("http/protobuf") => Some(Protocol::HttpBinary),
        Some("http/json") => Some(Protocol::HttpJson),
        Some(other) => {
            complain(format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL={other} is not spoken here: write http/protobuf or http/json, and the port \
                 for it (mostly 4318) in OTEL_EXPORTER_OTLP_ENDPOINT"
            ));
            None
        }
    }
}

fn timeout(env: &Env, complain: &mut dyn FnMut(String)) -> Duration {
    let Some(text) = of_traces(env, "TIMEOUT") else { return TIMEOUT };
    text.parse().map(Duration::from_millis).unwrap_or_else(|_| {
        complain(format!("OTEL_EXPORTER_OTLP_TIMEOUT={text} is no number of milliseconds"));
        TIMEOUT
    })
}

/// `name=value` separated by commas, both percent-encoded where they must be. What is no pair is left out.
fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let decode = |text: &str| percent_decode_str(text.trim()).decode_utf8().ok().map(std::borrow::Cow::into_owned);
    text.split(',').filter_map(move |pair| {
        let (name, value) = pair.split_once('=')?;
        Some((decode(name).filter(|name| !name.is_empty())?, decode(value)?))
    })
}

fn headers(env: &Env) -> HashMap<String, String> {
    // (Secrets stand in them, so nothing is said about those that are wrong.)
    of_traces(env, "HEADERS").map(|text| pairs(text).collect()).unwrap_or_default()
}

fn sampler(env: &Env, complain: &mut dyn FnMut(String)) -> Sampler {
    let mut ratio = || {
        let Some(text) = env.var("OTEL_TRACES_SAMPLER_ARG") else { return 1.0 };
        text.trim().parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).unwrap_or_else(|| {
            complain(format!("OTEL_TRACES_SAMPLER_ARG={text} is no number between 0 and 1"));
            1.0
        })
    };
    let parent = |root| Sampler::ParentBased(Box::new(root));
    match env.var("OTEL_TRACES_SAMPLER").map(str::trim) {
        None | Some("parentbased_always_on") => parent(Sampler::AlwaysOn),
        Some("always_on") => Sampler::AlwaysOn,
        Some("always_off") => Sampler::AlwaysOff,
        Some("traceidratio") => Sampler::TraceIdRatioBased(ratio()),
        Some("parentbased_always_off") => parent(Sampler::AlwaysOff),
        Some("parentbased_traceidratio") => parent(Sampler::TraceIdRatioBased(ratio())),
        Some(other) => {
            complain(format!("OTEL_TRACES_SAMPLER={other} is not known here"));
            parent(Sampler::AlwaysOn)
        }
    }
}

fn resource(env: &Env, complain: &mut dyn FnMut(String)) -> Resource {
    let text = env.var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let given: Vec<_> = pairs(text).map(|(name, value)| KeyValue::new(name, value)).collect();
    if given.len() != text.split(',').filter(|pair| !pair.trim().is_empty()).count() {
        complain("OTEL_RESOURCE_ATTRIBUTES is not name=value,name=value throughout".to_owned());
    }
    let builder = Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_service_name("peat")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(given);
    match env.var("OTEL_SERVICE_NAME") {
        Some(name) => builder.with_service_name(name.to_owned()).build(),
        None => builder.build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(vars: &[(&str, &str)]) -> (Option<Exporting>, Vec<String>) {
        let env = Env::system(vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut said = Vec::new();
        let wanted = Exporting::wanted(&env, &mut |line| said.push(line));
        (wanted, said)
    }

    fn address(vars: &[(&str, &str)]) -> Option<String> {
        wanted(vars).0.map(|wanted| wanted.endpoint)
    }

    const ALL: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/");

    #[test]
    fn nothing_is_exported_unless_an_address_or_the_exporter_is_named() {
        assert_eq!(address(&[]), None);
        assert_eq!(address(&[("OTEL_SERVICE_NAME", "x")]), None);
        assert_eq!(address(&[ALL]).as_deref(), Some("http://c:4318/v1/traces"));
        assert_eq!(address(&[("OTEL_TRACES_EXPORTER", "otlp")]).as_deref(), Some("http://localhost:4318/v1/traces"));
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/as/it/is");
        assert_eq!(address(&[ALL, own]).as_deref(), Some("http://t/as/it/is"));
        for off in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")] {
            let (wanted, said) = wanted(&[ALL, off]);
            assert!(wanted.is_none() && said.is_empty(), "{off:?}");
        }
    }

    #[test]
    fn what_is_not_understood_is_said_and_never_sent_elsewhere() {
        for (name, value, exported) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", false),
            ("OTEL_TRACES_EXPORTER", "zipkin", false),
            ("OTEL_TRACES_EXPORTER", "otlp,console", true),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", true),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote", true),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b,c", true),
        ] {
            let (wanted, said) = wanted(&[ALL, (name, value)]);
            assert_eq!((wanted.is_some(), said.len()), (exported, 1), "{name}={value}: {said:?}");
            assert!(said[0].contains(name), "{said:?}");
        }
        let (found, said) = wanted(&[ALL, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")]);
        assert!(matches!(found.unwrap().sampler, Sampler::TraceIdRatioBased(ratio) if ratio == 1.0) && said.len() == 1);
    }

    #[test]
    fn headers_and_attributes_are_decoded_and_names_have_an_order() {
        let (wanted, said) = wanted(&[
            ALL,
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20x%3D%3D, x-scope = a "),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=attribute,deployment.environment.name=a%2Cb"),
            ("OTEL_SERVICE_NAME", "name"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
        ]);
        let wanted = wanted.unwrap();
        assert_eq!(wanted.headers["authorization"], "Basic x==");
        assert_eq!(wanted.headers["x-scope"], "a");
        let value = |name: &'static str| wanted.resource.get(&name.into()).map(|value| value.to_string());
        assert_eq!(value("service.name").as_deref(), Some("name"));
        assert_eq!(value("deployment.environment.name").as_deref(), Some("a,b"));
        assert_eq!((wanted.timeout, said.len()), (Duration::from_millis(250), 0));
    }
}
