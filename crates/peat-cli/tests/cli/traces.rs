//! Traces as a collector gets them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use peat_testkit::cloud::{CloudServer, Service};
use peat_testkit::collector::{Collector, Mood, Span};
use peat_testkit::s3::{Canned, Fault, S3Server, SECRET_KEY};

use crate::runs::{interrupt, wait_for};
use crate::sandbox::{Ran, Sandbox};
use crate::spans::{manual, table_of};

/// Longer than the end of a command waits for a collector, with what a busy machine adds to it.
const BOUNDED: Duration = Duration::from_secs(9);

fn with_model(run: &str, collector: &Collector) -> Sandbox {
    let mut sandbox = Sandbox::with_model(run);
    sandbox.set("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint());
    sandbox
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
}

/// One trace, with one beginning that is not within it, and nobody without a parent.
fn one_tree(spans: &[Span]) -> &Span {
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
    let traces: BTreeSet<&str> = spans.iter().map(|span| span.trace.as_str()).collect();
    assert_eq!((ids.len(), traces.len()), (spans.len(), 1), "{spans:#?}");
    let roots: Vec<&Span> = spans.iter().filter(|span| !ids.contains(span.parent.as_str())).collect();
    assert_eq!(roots.len(), 1, "{roots:#?}");
    roots[0]
}

#[test]
fn a_run_is_one_tree_in_the_words_of_the_conventions() {
    let (server, collector) = (S3Server::start().unwrap(), Collector::start().unwrap());
    let mut ann = with_model("true", &collector);
    server.vars().iter().for_each(|(name, value)| ann.set(name, value));
    ann.run(["datastore", "setup", &server.url(), "--namespace", "infra"]).ok();
    collector.take();
    ann.set("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test");
    server.script(http::Method::GET, "", 1, Fault::Reply(Canned::error(503, "SlowDown", "Slow down")));
    let synced = ann.peat("datastore sync --json --stats").ok().json();
    let spans = collector.take();
    let root = one_tree(&spans);
    assert_eq!((root.name.as_str(), root.parent.as_str(), root.failed), ("peat datastore sync", "", false));
    assert_eq!((root.get("process.exit.code"), root.get("process.executable.name")), ("0", "peat"));
    assert_eq!(root.resource["service.name"], "peat");
    assert_eq!(root.resource["deployment.environment.name"], "test");
    assert_eq!(root.resource["telemetry.sdk.language"], "rust");

    let ran = ann.peat("model method run m execute --json --stats").ok().json();
    let run = collector.take();
    let root = one_tree(&run);
    let operation = named(&run, "run");
    assert_eq!((&operation.parent, operation.get("peat.model.name")), (&root.id, "m"));
    assert_eq!(operation.get("peat.seq"), ran["seq"].to_string());
    assert_eq!(operation.get("peat.run.status"), "succeeded");

    // A request each, no more and no less.
    for (stats, spans) in [(&synced, &spans), (&ran, &run)] {
        let requests: Vec<&Span> = spans.iter().filter(|span| span.client).collect();
        assert_eq!(requests.len() as u64, stats["stats"]["requests"].as_u64().unwrap(), "{requests:#?}");
        for request in requests {
            assert_eq!(request.get("server.address"), "127.0.0.1");
            assert!(server.endpoint().ends_with(request.get("server.port")), "{request:#?}");
            for number in ["server.port", "http.response.status_code", "http.response.body.size"] {
                assert!(request.numbers.iter().any(|name| name == number), "{number} in {request:#?}");
            }
            assert!(!request.get("url.path").is_empty() && !request.whole.contains("X-Amz"), "{request:#?}");
        }
    }
    let created = named(&run, "CREATE");
    assert_eq!((created.get("http.request.method"), created.get("http.response.status_code")), ("PUT", "200"));
    assert!(created.get("aws.s3.key").ends_with(created.get("peat.object.key")), "{created:#?}");
    assert!(server.url().starts_with(&format!("s3://{}", created.get("aws.s3.bucket"))), "{created:#?}");
    // What is not there yet was asked for; what the server was too busy for was asked again.
    let again: Vec<&Span> = spans.iter().filter(|span| !span.get("http.request.resend_count").is_empty()).collect();
    let failed: Vec<&Span> = spans.iter().filter(|span| span.failed).collect();
    assert_eq!((again.len(), failed.len()), (1, 1), "{spans:#?}");
    assert_eq!((again[0].get("http.request.resend_count"), failed[0].get("error.type")), ("1", "503"));
    assert!(run.iter().chain(&spans).any(|span| span.get("http.response.status_code") == "404" && !span.failed));

    // What the manual lists, and nothing that the exporter adds.
    let manual = manual();
    for span in run.iter().chain(&spans) {
        let table = &manual[&table_of(&span.name, span.attributes.contains_key("url.path"))];
        let unknown = span.attributes.keys().find(|name| !table.contains(*name) && *name != "error.type");
        assert!(unknown.is_none(), "{unknown:?} of {span:#?}");
    }
}

#[test]
fn no_secret_and_no_input_is_in_a_trace() {
    const SIGNATURE: &str = "c2lnbmF0dXJlLW9mLWEtc2Fz";
    let (server, collector) = (S3Server::start().unwrap(), Collector::start().unwrap());
    let mut ann = with_model("echo hi", &collector);
    server.vars().iter().for_each(|(name, value)| ann.set(name, value));
    ann.set("AWS_SESSION_TOKEN", "token-of-session");
    ann.set("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20key-of-collector");
    ann.run(["datastore", "setup", &server.url(), "--namespace", "infra"]).ok();
    let args = ["model", "method", "run", "m", "execute", "--tag", "why=value-of-tag", "--input"];
    ann.run(args.into_iter().chain(["run=echo value-of-input; echo last-line >&2; exit 3"])).status(1);
    ann.peat("data get m result").ok();
    ann.peat("log").ok();
    assert!(collector.requests().iter().all(|sent| sent.headers["authorization"] == "Bearer key-of-collector"));
    let azure = CloudServer::start(Service::Azure).unwrap();
    let mut bob = with_model("echo hi", &collector);
    bob.set("AZURE_STORAGE_SAS_TOKEN", format!("?sv=2023-11-03&sp=rcwdl&sig={SIGNATURE}"));
    bob.run(["datastore", "setup", &azure.url(), "--endpoint", &azure.endpoint(), "--namespace", "infra"]);
    assert!(azure.log().iter().any(|request| format!("{request:?}").contains(SIGNATURE)), "it is in the query");

    let spans = collector.spans();
    assert!(spans.len() > 30 && spans.iter().any(|span| span.get("peat.store.kind") == "az"), "{}", spans.len());
    for span in &spans {
        let all = format!("{span:?}");
        for secret in [
            SECRET_KEY,
            "token-of-session",
            "key-of-collector",
            "value-of-input",
            "value-of-tag",
            "last-line",
            "echo hi",
            SIGNATURE,
            "sig=",
            "Signature",
        ] {
            assert!(!all.contains(secret), "{secret} in {span:#?}");
        }
    }
}

/// The same command without a collector, and with one that is of no use: all that differs is one warning.
fn only_warned(sandbox: &Sandbox, words: &str, vars: &[(&str, &str)]) -> String {
    let alone = Ran::of(&sandbox.command(words.split(' ')).output().unwrap());
    let begun = Instant::now();
    let ran = Ran::of(&sandbox.command(words.split(' ')).envs(vars.iter().copied()).output().unwrap());
    assert!(begun.elapsed() < BOUNDED, "{:?}", begun.elapsed());
    assert_eq!((ran.status, &ran.out), (alone.status, &alone.out), "{vars:?}");
    let (warnings, rest): (Vec<&str>, Vec<&str>) = ran
        .err
        .lines()
        .partition(|line| line.starts_with("warning: traces: ") || line.starts_with("{\"warning\":\"traces: "));
    assert_eq!((warnings.len(), rest.join("\n")), (1, alone.err.trim_end().to_owned()), "{vars:?}: {ran:?}");
    assert!(
        ran.err.is_empty() || alone.status == 0 || !ran.err.trim_end().ends_with(warnings[0]),
        "the error comes last"
    );
    warnings[0].to_owned()
}

#[test]
fn a_collector_that_is_of_no_use_changes_nothing_but_a_warning() {
    let (sandbox, collector) = (Sandbox::with_model("exit 3"), Collector::start().unwrap());
    sandbox.peat("model method run m execute --input run=true").ok();
    let endpoint = collector.endpoint();
    let at = ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str());
    let commands = ["data get m result", "data get nobody result --json", "model search"];
    for words in commands {
        let down = only_warned(&sandbox, words, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user@127.0.0.1:1/?secret")]);
        assert!(down.contains("not the address of a server") || down.contains("http://127.0.0.1:1"), "{down}");
        assert!(!down.contains("secret") && !down.contains("user"), "{down}");
        let down = only_warned(&sandbox, words, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")]);
        assert!(down.contains("http://127.0.0.1:1: ") && down.contains("refused"), "{down}");
        collector.set_mood(Mood::Refusing(401));
        assert!(only_warned(&sandbox, words, &[at]).contains("status 401"));
        collector.set_mood(Mood::Willing);
        assert!(
            only_warned(&sandbox, words, &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &endpoint)]).contains("status 404")
        );
        assert!(only_warned(&sandbox, words, &[at, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).contains("http/protobuf"));
    }
    for wrong in ["collector:4318", "ftp://collector", "http://", "nonsense"] {
        let said = only_warned(&sandbox, commands[2], &[("OTEL_EXPORTER_OTLP_ENDPOINT", wrong)]);
        assert!(said.contains("not the address of a server"), "{said}");
    }
    collector.set_mood(Mood::Silent);
    assert!(only_warned(&sandbox, commands[0], &[at]).contains("no answer within 2 s"));
    let soon = [at, ("OTEL_EXPORTER_OTLP_TIMEOUT", "50")];
    assert!(only_warned(&sandbox, commands[1], &soon).contains("no answer within 0.05 s"));
}

#[test]
fn who_interrupts_does_not_wait_for_the_collector() {
    let collector = Collector::start().unwrap();
    collector.set_mood(Mood::Silent);
    let mut sandbox = with_model("touch started; sleep 61.31", &collector);
    // What is exported on the way would connect as well.
    sandbox.set("OTEL_BSP_SCHEDULE_DELAY", "3600000");
    let run = sandbox.command(["model", "method", "run", "m", "execute"]).spawn().unwrap();
    wait_for(&sandbox, "repo/started");
    let before = collector.connections();
    interrupt(&run);
    let ended = run.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert_eq!(collector.connections(), before);
    assert!(!String::from_utf8_lossy(&ended.stderr).contains("traces: "), "{ended:?}");
}

#[test]
fn nobody_is_connected_to_without_an_address_or_when_it_is_turned_off() {
    let collector = Collector::start().unwrap();
    let endpoint = collector.endpoint();
    let sandbox = Sandbox::with_model("true");
    for vars in [
        vec![("OTEL_SERVICE_NAME", "x"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"), ("TRACEPARENT", PARENT)],
        vec![("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_SDK_DISABLED", "true")],
        vec![("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_TRACES_EXPORTER", "none")],
        vec![("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_TRACES_SAMPLER", "always_off")],
        vec![("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("TRACEPARENT", UNSAMPLED)],
    ] {
        let ran =
            sandbox.command(["model", "method", "run", "m", "execute", "--json"]).envs(vars.clone()).output().unwrap();
        let ran = Ran::of(&ran).ok();
        assert_eq!((collector.connections(), ran.err.as_str()), (0, ""), "{vars:?}");
    }
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

#[test]
fn a_trace_comes_in_and_goes_on_into_the_program_and_what_it_calls() {
    let collector = Collector::start().unwrap();
    let mut sandbox = with_model(
        &format!("echo $TRACEPARENT $TRACESTATE > told; {} data list m", env!("CARGO_BIN_EXE_peat")),
        &collector,
    );
    sandbox.set("TRACEPARENT", PARENT);
    sandbox.set("TRACESTATE", "vendor=1");
    sandbox.peat("model method run m execute").ok();
    let spans = collector.take();
    let root = one_tree(&spans);
    assert_eq!((root.trace.as_str(), root.parent.as_str()), (TRACE, "b7ad6b7169203331"));
    let (run, nested) = (named(&spans, "run"), named(&spans, "peat data list"));
    assert_eq!(nested.parent, run.id);
    let told = std::fs::read_to_string(sandbox.path("repo/told")).unwrap();
    assert_eq!(told.trim(), format!("00-{TRACE}-{}-01 vendor=1", run.id));
    // Whoever is told otherwise by the model is.
    let args = ["model", "method", "run", "m", "execute", "--input", r#"env={"TRACEPARENT":"mine"}"#];
    sandbox.run(args).ok();
    assert!(std::fs::read_to_string(sandbox.path("repo/told")).unwrap().starts_with("mine "));
    collector.take();
    // What is no trace begins one.
    sandbox.set("TRACEPARENT", "00-0-0-01");
    sandbox.peat("status").ok();
    let spans = collector.take();
    let root = one_tree(&spans);
    assert!(root.parent.is_empty() && root.trace != TRACE, "{root:#?}");
}

#[test]
fn both_forms_are_spoken_and_the_exporter_does_not_trace_itself() {
    let collector = Collector::start().unwrap();
    let mut sandbox = with_model("true", &collector);
    sandbox.peat("status").ok();
    sandbox.set("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
    sandbox.set("OTEL_SERVICE_NAME", "pipeline");
    let ran = sandbox.peat("status -vvv").ok();
    let kinds: Vec<_> = collector.requests().iter().map(|sent| sent.headers["content-type"].clone()).collect();
    assert_eq!(kinds, ["application/x-protobuf", "application/json"]);
    let (first, second): (Vec<Span>, Vec<Span>) =
        collector.take().into_iter().partition(|span| span.resource["service.name"] == "peat");
    assert_eq!(one_tree(&first).name, "peat status");
    assert_eq!(one_tree(&second).resource["service.name"], "pipeline");
    let names = |spans: &[Span]| spans.iter().map(|span| span.name.clone()).collect::<BTreeSet<_>>();
    assert_eq!(names(&first), names(&second));
    // Neither in a trace nor in the most talkative log.
    let port = collector.endpoint().rsplit(':').next().unwrap().to_owned();
    assert!(first.iter().chain(&second).all(|span| !span.client && span.get("server.port") != port));
    assert!(!ran.err.contains(&format!(":{port}")), "{}", ran.err);
}
