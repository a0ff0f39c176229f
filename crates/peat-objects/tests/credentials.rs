//! Credentials from everywhere the AWS tools look, each from a scripted giver and through the real chain.
//!
//! The chain reads variables and files by itself, so each test runs this very program again as a child with variables of
//! its own, and tells it line by line what to do.
#![allow(clippy::panic, clippy::unwrap_used, clippy::print_stdout)] // the lints know tests, but not their helpers

#[path = "credentials/services.rs"]
mod services;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use http::Method;
use peat_objects::{OpenOptions, Range, open};
use peat_testkit::aws::{AwsServer, Giver, Refusal};
use peat_testkit::s3::{ACCESS_KEY, Canned, Fault, S3Server, SECRET_KEY};
use peat_types::{Clock, Env, Timestamp};
use tempfile::TempDir;

use services::{OLD_SSO_CONFIG, SSO_CONFIG, container};

const CHILD: &str = "PEAT_TEST_CHILD";
const PROFILE: &str = "PEAT_TEST_PROFILE";

/// The machine's clock, which the test may put forward: by less than a quarter of an hour, or the server objects.
#[derive(Default)]
struct Jumping(AtomicI64);

impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(Env::system([]).now().as_millis() + self.0.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        let jumped = u64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0);
        Env::system([]).monotonic() + Duration::from_millis(jumped)
    }

    #[allow(clippy::disallowed_methods)] // a clock of its own
    fn sleep(&self, duration: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// Does what the lines on standard input say, and answers each with a line that begins with `> `.
#[tokio::test]
#[allow(clippy::disallowed_methods)] // the child is told by variables
async fn child() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let clock = Arc::new(Jumping::default());
    let env = Env::seeded(clock.clone(), 1, std::env::vars());
    let options = OpenOptions { profile: std::env::var(PROFILE).ok(), retries: 0, ..OpenOptions::default() };
    let store = match open(&url.parse().unwrap(), &options, &env) {
        Ok(store) => store,
        Err(error) => return println!("> {error:?}"),
    };
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (word, number) = line.split_once(' ').unwrap_or((&line, "1"));
        let number: i64 = number.parse().unwrap();
        match word {
            "get" => {
                let gets = (0..number).map(|_| store.get("default/ns.json", Range::All));
                let replies = futures::future::join_all(gets).await;
                match replies.into_iter().find_map(Result::err) {
                    None => println!("> ok"),
                    Some(error) => println!("> {error:?}"),
                }
            }
            "jump" => {
                clock.0.fetch_add(number * 1000, Ordering::Relaxed);
                println!("> ok");
            }
            _ => panic!("{line}"),
        }
    }
}

/// A machine with a home folder, a bucket and givers of credentials.
struct Machine {
    home: TempDir,
    server: S3Server,
    aws: AwsServer,
    vars: Vec<(&'static str, String)>,
}

impl Machine {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let (server, aws) = (S3Server::start().unwrap(), AwsServer::start().unwrap());
        let at = |name: &str| home.path().join(name).display().to_string();
        let vars = vec![
            (CHILD, server.url()),
            ("HOME", at("")),
            ("PATH", "/usr/bin:/bin".to_owned()),
            ("AWS_CONFIG_FILE", at("config")),
            ("AWS_SHARED_CREDENTIALS_FILE", at("credentials")),
            ("AWS_ENDPOINT_URL_S3", server.endpoint()),
            ("AWS_ENDPOINT_URL_STS", aws.endpoint()),
            ("AWS_ENDPOINT_URL_SSO", aws.endpoint()),
            ("AWS_ENDPOINT_URL_SSO_OIDC", aws.endpoint()),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", aws.endpoint()),
            ("AWS_REGION", "us-east-1".to_owned()),
            // Nobody is there. Givers of credentials on this machine are asked directly, the server is exempt.
            ("NO_PROXY", "127.0.0.1".to_owned()),
        ];
        Self { home, server, aws, vars }
    }

    fn with(self, name: &'static str, value: &str) -> Self {
        let mut this = self.without(name);
        this.vars.push((name, value.to_owned()));
        this
    }

    fn without(mut self, name: &str) -> Self {
        self.vars.retain(|(other, _)| *other != name);
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn start(&self) -> Running {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env_clear()
            .envs(self.vars.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Running { process, stdin, stdout: BufReader::new(stdout) }
    }

    /// One request of a child of its own.
    fn get(&self) -> String {
        self.start().tell("get")
    }

    /// The session token of the last request to the store.
    fn token(&self) -> Option<String> {
        self.server.log().last().unwrap().header("x-amz-security-token").map(str::to_owned)
    }
}

struct Running {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Lets the child do something and waits for its answer.
    fn tell(&mut self, line: &str) -> String {
        writeln!(self.stdin, "{line}").unwrap();
        loop {
            let mut answer = String::new();
            assert!(self.stdout.read_line(&mut answer).unwrap() > 0, "the child ended");
            if let Some(answer) = answer.strip_prefix("> ") {
                return answer.trim_end().to_owned();
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const OPERATION: &str = "get s3://bucket/peat/default/ns.json: ";

/// The whole error: kind, code, the line and the hint.
#[track_caller]
fn assert_fails(answer: &str, code: &str, line: &str, hint: &str) {
    assert!(answer.starts_with(&format!("{code} {OPERATION}{line}")), "{answer}\nis not: {code} {OPERATION}{line}");
    assert!(answer.contains(&format!("(hint: {hint}")), "'{hint}' is not in: {answer}");
    assert_eq!(answer.matches("credentials could not be loaded").count(), 0, "{answer}");
    for secret in [SECRET_KEY, "access-token-of-sso", "refresh-token-of-sso", "secret-of-container"] {
        assert!(!answer.contains(secret), "{answer}");
    }
}

fn static_profile(name: &str, key: &str) -> String {
    format!("[{name}]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET_KEY}\n")
}

#[test]
fn keys_in_variables_go_before_the_profile_that_a_variable_names() {
    let machine = Machine::new().with("AWS_ACCESS_KEY_ID", ACCESS_KEY).with("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    let machine = machine.with("AWS_PROFILE", "work");
    machine.write("credentials", &static_profile("work", "unknown"));
    assert_eq!(machine.get(), "ok");
}

#[test]
fn a_profile_that_was_asked_for_goes_before_keys_in_variables() {
    let machine = Machine::new().with("AWS_ACCESS_KEY_ID", "unknown").with("AWS_SECRET_ACCESS_KEY", "wrong");
    let machine = machine.with(PROFILE, "work");
    machine.write("credentials", &static_profile("work", ACCESS_KEY));
    assert_eq!(machine.get(), "ok");
    assert!(machine.aws.log().is_empty());
}

#[test]
fn a_profile_that_does_not_exist_is_named() {
    let machine = Machine::new().with("AWS_PROFILE", "wrok");
    machine.write("credentials", &static_profile("work", ACCESS_KEY));
    let answer = machine.get();
    assert_fails(&answer, "Denied[no_credentials]", "there is no profile 'wrok' (hint", "correct AWS_PROFILE");
    assert!(machine.aws.log().is_empty(), "the machine's own role is not taken in its place");

    // So it is on a machine that has no profiles at all.
    let machine = Machine::new().with("AWS_PROFILE", "wrok");
    let answer = machine.get();
    assert_fails(&answer, "Denied[no_credentials]", "there is no profile 'wrok' (hint", "correct AWS_PROFILE");
    assert!(machine.aws.log().is_empty(), "the machine's own role is not taken in its place");
}

#[test]
fn a_profile_whose_login_was_never_made_says_how_to_make_it() {
    for config in [SSO_CONFIG, OLD_SSO_CONFIG] {
        let machine = Machine::new().with("AWS_PROFILE", "work");
        machine.write("config", config);
        let line = "the profile 'work' has no login that can be used";
        let hint = "log in again: aws sso login --profile work";
        assert_fails(&machine.get(), "Denied[credentials_expired]", line, hint);
    }
}

#[test]
fn a_profile_takes_the_role_that_it_names() {
    let machine = Machine::new().with("AWS_PROFILE", "work");
    machine.write("credentials", &static_profile("base", ACCESS_KEY));
    machine.write("config", "[profile work]\nrole_arn = arn:aws:iam::1:role/peat\nsource_profile = base\n");
    assert_eq!(machine.get(), "ok");
    assert_eq!(machine.token().unwrap(), "AssumeRole-1");
    assert!(machine.aws.log()[0].body.contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fpeat"));

    let denied = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not authorized to perform: sts:AssumeRole</Message></Error><RequestId>r-1</RequestId></ErrorResponse>";
    machine.aws.refuse(Giver::AssumeRole, Some(Refusal::Status(403, denied.to_owned())));
    let answer = machine.get();
    assert_fails(&answer, "Denied[denied]", "the role of the profile 'work' may not be assumed", "check its role_arn");
    assert!(answer.contains("not authorized to perform: sts:AssumeRole"), "{answer}");

    machine.write("config", "[profile work]\nrole_arn = arn:aws:iam::1:role/peat\nsource_profile = bsae\n");
    let answer = machine.get();
    let line = "the profile 'work' refers to the profile 'bsae', which does not exist (hint";
    assert_fails(&answer, "Denied[no_credentials]", line, "correct 'work' in ~/.aws/config");
}

#[test]
fn a_program_of_the_profile_that_fails_is_told() {
    let machine = Machine::new().with("AWS_PROFILE", "work");
    machine.write("config", "[profile work]\ncredential_process = sh -c 'echo the vault is locked >&2; exit 3'\n");
    let answer = machine.get();
    assert_fails(&answer, "Denied[no_credentials]", "the profile 'work' gave no credentials", "'aws sts get-caller");
}

#[test]
fn a_program_of_the_profile_is_run_once_and_again_when_its_keys_end() {
    let machine = Machine::new().with("AWS_PROFILE", "work");
    let (runs, script) = (machine.path("runs"), machine.path("keys.sh"));
    let keys = format!(r#""Version":1,"AccessKeyId":"{ACCESS_KEY}","SecretAccessKey":"{SECRET_KEY}""#);
    let runs = runs.display();
    machine.write(
        "keys.sh",
        &format!(
            "echo run >>'{runs}'\nN=$(grep -c run '{runs}')\necho '{{{keys},\"SessionToken\":\"Program-'$N'\"}}'\n"
        ),
    );
    machine.write("config", &format!("[profile work]\ncredential_process = sh {}\n", script.display()));
    let mut running = machine.start();
    assert_eq!(running.tell("get 4"), "ok");
    assert_eq!(machine.token().unwrap(), "Program-1");
    let ended = Fault::Reply(Canned::error(400, "ExpiredToken", "The provided token has expired."));
    machine.server.script(Method::GET, "", 1, ended);
    assert_eq!(running.tell("get"), "ok");
    assert_eq!(machine.token().unwrap(), "Program-2");
}

#[test]
fn keys_that_were_changed_in_a_file_are_noticed() {
    let machine = Machine::new().with("AWS_PROFILE", "work");
    machine.write("credentials", &static_profile("work", "unknown"));
    let mut running = machine.start();
    let line = "status 403 NotSignedUp";
    assert_fails(&running.tell("get"), "Denied[wrong_key]", line, "");
    machine.write("credentials", &static_profile("work", ACCESS_KEY));
    assert_eq!(running.tell("get"), "ok");
}

#[test]
fn a_profile_names_server_and_region() {
    let at = |machine: &Machine, text: &str| text.replace("ENDPOINT", &machine.server.endpoint());
    for config in [
        "[profile work]\nendpoint_url = ENDPOINT\nregion = eu-west-9\n",
        "[profile work]\nendpoint_url = http://127.0.0.1:1\nservices = mine\nregion = eu-west-9\n[services mine]\ns3 =\n  endpoint_url = ENDPOINT\n",
    ] {
        let machine = Machine::new().with("AWS_PROFILE", "work").without("AWS_ENDPOINT_URL_S3").without("AWS_REGION");
        machine.write("credentials", &static_profile("work", ACCESS_KEY));
        machine.write("config", &at(&machine, config));
        assert_eq!(machine.get(), "ok", "{config}");
        assert!(machine.server.log()[0].header("authorization").unwrap().contains("/eu-west-9/s3/"));
        assert!(machine.aws.log().is_empty());
    }
}

#[test]
fn many_requests_load_once() {
    let machine = container();
    machine.aws.set_pause(Duration::from_millis(50));
    let mut running = machine.start();
    assert_eq!(running.tell("get 32"), "ok");
    assert_eq!(machine.aws.count(Giver::Container), 1);
}

#[test]
fn credentials_are_renewed_before_they_end() {
    let machine = container();
    machine.aws.set_life(800);
    let mut running = machine.start();
    assert_eq!(running.tell("get"), "ok");
    running.tell("jump 450");
    assert_eq!(running.tell("get"), "ok");
    assert_eq!(machine.aws.count(Giver::Container), 1, "more than five minutes are left");
    running.tell("jump 100");
    machine.aws.set_life(3600);
    assert_eq!(running.tell("get 8"), "ok");
    assert_eq!(machine.aws.count(Giver::Container), 2, "fewer than five minutes were left");
}

#[test]
fn credentials_that_never_hold_long_are_not_loaded_for_every_request() {
    let machine = container();
    machine.aws.set_life(120);
    let mut running = machine.start();
    for _ in 0..4 {
        assert_eq!(running.tell("get"), "ok");
    }
    assert_eq!(machine.aws.count(Giver::Container), 1);
    running.tell("jump 61");
    assert_eq!(running.tell("get"), "ok");
    assert_eq!(machine.aws.count(Giver::Container), 2);
}

#[test]
fn a_failing_renewal_keeps_what_still_holds() {
    let machine = container();
    machine.aws.set_life(800);
    let mut running = machine.start();
    assert_eq!(running.tell("get"), "ok");
    machine.aws.refuse(Giver::Container, Some(Refusal::Status(400, "busy".to_owned())));
    running.tell("jump 600");
    for _ in 0..4 {
        assert_eq!(running.tell("get 4"), "ok");
    }
    assert_eq!(machine.aws.count(Giver::Container), 2, "tried once, then left alone for a while");
    running.tell("jump 250");
    let line = "the container service gave no credentials";
    assert_fails(&running.tell("get"), "Denied[no_credentials]", line, "check the role");
    machine.aws.refuse(Giver::Container, None);
    machine.aws.set_life(3600);
    assert_eq!(running.tell("get"), "ok");
}

#[test]
fn credentials_that_the_store_calls_ended_are_renewed_once_for_all() {
    let machine = container();
    let mut running = machine.start();
    assert_eq!(running.tell("get"), "ok");
    let ended = Fault::Reply(Canned::error(400, "ExpiredToken", "The provided token has expired."));
    machine.server.script_times(Method::GET, "", 1, 8, ended.clone());
    assert_eq!(running.tell("get 8"), "ok");
    assert_eq!(machine.aws.count(Giver::Container), 2);
    assert_eq!(machine.token().unwrap(), "Container-2");
    // The second refusal of a request is final.
    machine.server.script_times(Method::GET, "", 1, 2, ended);
    let line = "status 400 ExpiredToken: The provided token has expired. (request request-";
    assert_fails(&running.tell("get"), "Denied[credentials_expired]", line, "");
    assert_eq!(machine.aws.count(Giver::Container), 3);
}

#[test]
fn a_giver_that_cannot_be_reached_is_not_a_missing_right() {
    let machine = container().with("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/container");
    let line = "the server that gives out the credentials of the container cannot be reached";
    assert_fails(&machine.get(), "Offline[unreachable]", line, "check the network");
}

#[test]
fn paths_of_the_tests_are_their_own() {
    // A test that read the files of whoever runs it could pass or fail by accident.
    let machine = Machine::new();
    for name in ["HOME", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"] {
        let (_, value) = machine.vars.iter().find(|(other, _)| *other == name).unwrap();
        assert!(Path::new(value).starts_with(machine.home.path()));
    }
}
