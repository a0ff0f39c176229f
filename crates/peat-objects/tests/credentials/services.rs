//! Services that give credentials: single sign-on, web identity, containers, instances.

use peat_testkit::aws::{Giver, Refusal};

use super::{Machine, assert_fails};

pub(super) const SSO_CONFIG: &str = "[profile work]\nsso_session = corp\nsso_account_id = 1\nsso_role_name = dev\n[sso-session corp]\nsso_region = us-east-1\nsso_start_url = https://corp.awsapps.com/start\nsso_registration_scopes = sso:account:access\n";
pub(super) const OLD_SSO_CONFIG: &str = "[profile work]\nsso_start_url = https://corp.awsapps.com/start\nsso_region = us-east-1\nsso_account_id = 1\nsso_role_name = dev\n";

/// The file in which the AWS CLI keeps a login: named by the SHA-1 of the session's name or of the start URL.
fn login(machine: &Machine, of: &str, expires: &str, more: &str) {
    // `printf corp | sha1sum`, `printf https://corp.awsapps.com/start | sha1sum`
    let name = match of {
        "corp" => "ee0bfd2552fbd840c02cc48b6e823320543c450f",
        _ => "a51746d4aa793ae07b25e90c3a5db96fc7832bd7",
    };
    let text = format!(r#"{{"accessToken":"access-token-of-sso","expiresAt":"{expires}"{more}}}"#);
    machine.write(&format!(".aws/sso/cache/{name}.json"), &text);
}

#[test]
fn single_sign_on_and_a_login_while_a_command_runs() {
    let machine = Machine::new().with("AWS_PROFILE", "work");
    machine.write("config", SSO_CONFIG);
    let mut running = machine.start();
    let login_again = "log in again: aws sso login --profile work";
    let line = "the profile 'work' has no login that can be used";
    assert_fails(&running.tell("get"), "Denied[credentials_expired]", line, login_again);
    login(&machine, "corp", "2020-01-01T00:00:00Z", "");
    let line = "the login of the profile 'work' has ended";
    assert_fails(&running.tell("get"), "Denied[credentials_expired]", line, login_again);
    assert!(machine.aws.log().is_empty());
    // The human logs in, in another terminal.
    machine.aws.set_life(800);
    login(&machine, "corp", "2100-01-01T00:00:00Z", "");
    assert_eq!(running.tell("get"), "ok");
    assert_eq!(machine.token().unwrap(), "Sso-1");
    let log = machine.aws.log();
    assert_eq!(log[0].header("x-amz-sso_bearer_token").unwrap(), "access-token-of-sso");
    assert!(log[0].line.contains("role_name=dev") && log[0].line.contains("account_id=1"), "{:?}", log[0]);
    // Later the login has ended; the keys of the role hold a little longer, and there is no new login yet.
    login(&machine, "corp", "2020-01-01T00:00:00Z", "");
    running.tell("jump 790");
    assert_eq!(running.tell("get"), "ok", "the keys hold for some seconds yet");
    running.tell("jump 60");
    assert_fails(&running.tell("get"), "Denied[credentials_expired]", line, login_again);
    login(&machine, "corp", "2100-01-01T00:00:00Z", "");
    machine.aws.set_life(3600);
    assert_eq!(running.tell("get"), "ok");
    assert_eq!(machine.token().unwrap(), "Sso-2");
}

#[test]
fn a_login_that_can_be_refreshed_is() {
    let machine = Machine::new().with("AWS_PROFILE", "work");
    machine.write("config", SSO_CONFIG);
    let more = r#","refreshToken":"refresh-token-of-sso","clientId":"c","clientSecret":"s","registrationExpiresAt":"2100-01-01T00:00:00Z""#;
    login(&machine, "corp", "2020-01-01T00:00:00Z", more);
    assert_eq!(machine.get(), "ok");
    assert_eq!((machine.aws.count(Giver::SsoToken), machine.aws.count(Giver::Sso)), (1, 1));
    let asked = machine.aws.log().into_iter().find(|asked| asked.giver == Giver::Sso).unwrap();
    assert_eq!(asked.header("x-amz-sso_bearer_token").unwrap(), "SsoToken-1");
    // The fresh token is kept for the other tools too.
    assert_eq!(machine.get(), "ok");
    assert_eq!(machine.aws.count(Giver::SsoToken), 1);
}

#[test]
fn single_sign_on_of_the_old_form() {
    let machine = Machine::new().with("AWS_PROFILE", "work");
    machine.write("config", OLD_SSO_CONFIG);
    login(&machine, "url", "2100-01-01T00:00:00Z", "");
    assert_eq!(machine.get(), "ok");
    assert_eq!(machine.token().unwrap(), "Sso-1");
    // Old tools wrote times like this.
    login(&machine, "url", "2100-01-01T00:00:00UTC", "");
    let hint = "log in again: aws sso login --profile work; when that does not help, the AWS CLI that wrote the login is too old";
    assert_fails(
        &machine.get(),
        "Denied[credentials_expired]",
        "the profile 'work' has no login that can be used",
        hint,
    );
    // The other side ended the session.
    login(&machine, "url", "2100-01-01T00:00:00Z", "");
    let gone = r#"{"message":"Session token not found or invalid","__type":"com.amazonaws.switchboard.portal#UnauthorizedException"}"#;
    machine.aws.refuse(Giver::Sso, Some(Refusal::Status(401, gone.to_owned())));
    let hint = "log in again: aws sso login --profile work";
    assert_fails(&machine.get(), "Denied[credentials_expired]", "the login of the profile 'work' has ended", hint);
    let forbidden = r#"{"message":"No access","__type":"com.amazonaws.switchboard.portal#ForbiddenException"}"#;
    machine.aws.refuse(Giver::Sso, Some(Refusal::Status(403, forbidden.to_owned())));
    let line = "the login of the profile 'work' may not use its account and role";
    assert_fails(&machine.get(), "Denied[denied]", line, "check sso_account_id and sso_role_name");
}

#[test]
fn web_identity() {
    let machine = Machine::new().with("AWS_ROLE_ARN", "arn:aws:iam::1:role/pod");
    let file = machine.path("token").display().to_string();
    let machine = machine.with("AWS_WEB_IDENTITY_TOKEN_FILE", &file);
    let hint = "check AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN";
    let line = "the web identity gave no credentials";
    assert_fails(&machine.get(), "Denied[no_credentials]", line, hint);
    machine.write("token", "jwt-of-pod");
    assert_eq!(machine.get(), "ok");
    assert_eq!(machine.token().unwrap(), "WebIdentity-1");
    assert!(machine.aws.log()[0].body.contains("WebIdentityToken=jwt-of-pod"));
    let expired = "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredTokenException</Code><Message>Token expired</Message></Error></ErrorResponse>";
    machine.aws.refuse(Giver::WebIdentity, Some(Refusal::Status(400, expired.to_owned())));
    let answer = machine.get();
    assert_fails(&answer, "Denied[no_credentials]", line, hint);
    assert!(answer.contains("Token expired") && !answer.contains("jwt-of-pod"), "{answer}");
}

pub(super) fn container() -> Machine {
    let machine = Machine::new();
    let (token, url) = (machine.path("token").display().to_string(), format!("{}/container", machine.aws.endpoint()));
    machine.write("token", "secret-of-container");
    // A proxy, at which nobody is, is not used for services of this machine.
    machine
        .with("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url)
        .with("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &token)
        .with("HTTP_PROXY", "http://127.0.0.1:1")
}

#[test]
fn container_credentials() {
    let machine = container();
    assert_eq!(machine.get(), "ok");
    assert_eq!(machine.token().unwrap(), "Container-1");
    assert_eq!(machine.aws.log()[0].header("authorization").unwrap(), "secret-of-container");
    machine.aws.refuse(
        Giver::Container,
        Some(Refusal::Status(403, r#"{"code":"AccessDenied","message":"no role"}"#.to_owned())),
    );
    let answer = machine.get();
    assert_fails(
        &answer,
        "Denied[no_credentials]",
        "the container service gave no credentials",
        "check the role of the task",
    );
}

#[test]
fn instance_metadata() {
    let machine = Machine::new();
    assert_eq!(machine.get(), "ok");
    assert_eq!(machine.token().unwrap(), "Instance-2", "the first question is for the name of the role");
    let log = machine.aws.log();
    assert_eq!(log[0].giver, Giver::InstanceToken);
    assert!(
        log[1..].iter().all(|asked| asked.header("x-aws-ec2-metadata-token") == Some("metadata-session")),
        "{log:?}"
    );

    let machine = Machine::new().with("AWS_EC2_METADATA_DISABLED", "true");
    assert_fails(&machine.get(), "Denied[no_credentials]", "no credentials found (hint", "set AWS_ACCESS_KEY_ID");
    assert!(machine.aws.log().is_empty());
}

#[test]
fn a_metadata_service_that_does_not_answer_is_asked_once() {
    let machine = Machine::new();
    machine.aws.refuse(Giver::InstanceToken, Some(Refusal::Silence));
    let mut running = machine.start();
    for request in ["get 8", "get"] {
        assert_fails(
            &running.tell(request),
            "Denied[no_credentials]",
            "no credentials found (hint",
            "set AWS_ACCESS_KEY_ID",
        );
    }
    assert_eq!(machine.aws.count(Giver::InstanceToken), 1);
    // Some time later it is there: an instance that just started.
    machine.aws.refuse(Giver::InstanceToken, None);
    running.tell("jump 61");
    assert_eq!(running.tell("get"), "ok");
}
