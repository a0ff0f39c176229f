//! Logins: where the credentials of Google and Azure come from, and what is said when they are of no use.

use http::Method;
use peat_objects::{OpenOptions, Range};
use peat_testkit::cloud::{CloudServer, Service};
use peat_testkit::s3::{Canned, Fault};
use peat_types::Kind;

use super::{KEY, assert_says, body, short, start, store};

/// The variables of the server without its own credentials, and more.
fn with(
    server: &CloudServer,
    home: &std::path::Path,
    pairs: &[(&str, String)],
) -> (OpenOptions, Vec<(String, String)>) {
    let mut vars = vec![("HOME".to_owned(), home.display().to_string())];
    vars.extend(pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    (OpenOptions { endpoint: Some(server.endpoint()), ..short() }, vars)
}

#[tokio::test]
async fn the_machine_of_google_gives_tokens() {
    let (server, _) = start(Service::Gcs);
    let home = tempfile::tempdir().unwrap();
    let host = server.endpoint().trim_start_matches("http://").to_owned();
    let (options, vars) = with(&server, home.path(), &[("GCE_METADATA_HOST", host)]);
    let store = store(&server.url(), &options, vars).unwrap();
    let token = |text: &str| {
        let json = format!(r#"{{"access_token":"{text}","expires_in":3599,"token_type":"Bearer"}}"#);
        Fault::Reply(Canned::body(200, "application/json", json))
    };
    server.script(Method::GET, "service-accounts/default/token", 1, token("one"));
    server.script(Method::GET, "service-accounts/default/token", 2, token("two"));
    store.put(KEY, body("x")).await.unwrap();
    store.get(KEY, Range::All).await.unwrap().unwrap();
    // The service does not take it any more: another one is asked for, once.
    server.script(Method::GET, KEY, 1, Fault::Reply(Canned::error(401, "AuthenticationRequired", "no")));
    store.get(KEY, Range::All).await.unwrap().unwrap();
    let sent: Vec<_> =
        server.log().iter().map(|r| (r.method.clone(), r.header("authorization").map(str::to_owned))).collect();
    let bearer = |token: &str| Some(format!("Bearer {token}"));
    assert_eq!(
        sent,
        [
            (Method::GET, None),
            (Method::PUT, bearer("one")),
            (Method::GET, bearer("one")),
            (Method::GET, bearer("one")),
            (Method::GET, None),
            (Method::GET, bearer("two")),
        ]
    );
    assert_eq!(server.log()[0].header("metadata-flavor"), Some("Google"));
}

#[tokio::test]
async fn credentials_of_google_that_cannot_be_used() {
    let (server, _) = start(Service::Gcs);
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("key.json");
    let nobody = [("GCE_METADATA_HOST", "127.0.0.1:1".to_owned())];
    let named = [("GOOGLE_APPLICATION_CREDENTIALS", path.display().to_string())];
    for (text, pairs, kind, message, hint) in [
        (None, &nobody[..], Kind::Denied, "no credentials found", "gcloud auth application-default login"),
        (None, &named[..], Kind::NotFound, "key.json", "GOOGLE_APPLICATION_CREDENTIALS"),
        (Some("hello"), &named[..], Kind::Denied, "holds no credentials", "GOOGLE_APPLICATION_CREDENTIALS"),
        (
            Some(r#"{"type":"external_account"}"#),
            &named[..],
            Kind::Unsupported,
            "of the kind external_account",
            "print-access-token",
        ),
        (Some(r#"{"type":"service_account"}"#), &named[..], Kind::Denied, "could not be loaded", "print-access-token"),
    ] {
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let (options, vars) = with(&server, home.path(), pairs);
        let error = store(&server.url(), &options, vars).unwrap().get(KEY, Range::All).await.unwrap_err();
        assert_says(&error, kind, "no_credentials", message, hint);
        assert!(error.to_string().starts_with(&format!("get gs://bucket/peat/{KEY}: ")), "{error:?}");
    }
    assert!(server.log().is_empty());
}

#[tokio::test]
async fn a_key_file_or_a_token_of_google() {
    let (server, _) = start(Service::Gcs);
    let home = tempfile::tempdir().unwrap();
    // The file of a login, where gcloud writes it. Its key was made for this test.
    let folder = home.path().join(".config/gcloud");
    std::fs::create_dir_all(&folder).unwrap();
    let key = serde_json::json!({
        "type": "service_account",
        "client_email": "peat@example.iam.gserviceaccount.com",
        "private_key_id": "1",
        "private_key": include_str!("../data/test-key.pem"),
    });
    std::fs::write(folder.join("application_default_credentials.json"), key.to_string()).unwrap();
    let (options, vars) = with(&server, home.path(), &[]);
    store(&server.url(), &options, vars).unwrap().put(KEY, body("x")).await.unwrap();
    let sent = server.log()[0].header("authorization").unwrap().to_owned();
    assert!(sent.starts_with("Bearer ey") && sent.split('.').count() == 3, "{sent}");

    let (options, vars) = with(&server, home.path(), &[("CLOUDSDK_AUTH_ACCESS_TOKEN", "given".to_owned())]);
    let store = store(&server.url(), &options, vars).unwrap();
    store.get(KEY, Range::All).await.unwrap().unwrap();
    assert_eq!(server.log()[1].header("authorization"), Some("Bearer given"));
    server.script(Method::GET, KEY, 1, Fault::Reply(Canned::error(401, "AuthenticationRequired", "no")));
    let error = store.get(KEY, Range::All).await.unwrap_err();
    assert_says(&error, Kind::Denied, "credentials_expired", "401", "CLOUDSDK_AUTH_ACCESS_TOKEN");
    assert_eq!(server.log().len(), 3);
}

#[tokio::test]
async fn identities_of_azure() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("token");
    std::fs::write(&file, "federated").unwrap();
    let application = |server: &CloudServer| {
        [
            ("AZURE_CLIENT_ID", "app".to_owned()),
            ("AZURE_TENANT_ID", "tenant".to_owned()),
            ("AZURE_AUTHORITY_HOST", format!("{}/login", server.endpoint())),
        ]
    };
    for (name, path) in
        [("secret", "tenant/oauth2/v2.0/token"), ("file", "tenant/oauth2/v2.0/token"), ("machine", "token")]
    {
        let (server, _) = start(Service::Azure);
        let mut pairs = match name {
            "machine" => vec![("IDENTITY_ENDPOINT", format!("{}/msi/token", server.endpoint()))],
            _ => application(&server).to_vec(),
        };
        match name {
            "secret" => pairs.push(("AZURE_CLIENT_SECRET", "hunter2".to_owned())),
            "file" => pairs.push(("AZURE_FEDERATED_TOKEN_FILE", file.display().to_string())),
            _ => {}
        }
        let json = r#"{"access_token":"tok","expires_in":3599,"expires_on":"4102444800","token_type":"Bearer"}"#;
        let method = if name == "machine" { Method::GET } else { Method::POST };
        server.script(method.clone(), path, 1, Fault::Reply(Canned::body(200, "application/json", json.to_owned())));
        let (options, vars) = with(&server, home.path(), &pairs);
        let store = store(&server.url(), &options, vars).unwrap();
        store.put(KEY, body("x")).await.unwrap();
        store.get(KEY, Range::All).await.unwrap().unwrap();
        store.delete(KEY).await.unwrap();
        let log = server.log();
        assert_eq!((log.len(), log[0].key()), (4, path), "{name}");
        for request in &log[1..] {
            assert_eq!(request.header("authorization"), Some("Bearer tok"), "{name}");
        }
    }
    let (server, _) = start(Service::Azure);
    let mut pairs = application(&server).to_vec();
    pairs.push(("AZURE_CLIENT_SECRET", "hunter2".to_owned()));
    let refusal = r#"{"error":"invalid_client","error_description":"AADSTS7000215: Invalid client secret provided."}"#;
    server.script(Method::POST, "token", 1, Fault::Reply(Canned::body(401, "application/json", refusal.to_owned())));
    let (options, vars) = with(&server, home.path(), &pairs);
    let error = store(&server.url(), &options, vars).unwrap().get(KEY, Range::All).await.unwrap_err();
    assert_says(&error, Kind::Denied, "wrong_key", "credentials were refused", "AZURE_CLIENT_SECRET");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    let mut pairs = application(&server).to_vec();
    pairs.push(("AZURE_FEDERATED_TOKEN_FILE", home.path().join("missing").display().to_string()));
    let (options, vars) = with(&server, home.path(), &pairs);
    let error = store(&server.url(), &options, vars).unwrap().get(KEY, Range::All).await.unwrap_err();
    assert_says(&error, Kind::Denied, "no_credentials", "cannot be read", "correct AZURE_FEDERATED_TOKEN_FILE");
}

#[tokio::test]
async fn a_signature_of_azure_goes_into_the_query() {
    let (server, _) = start(Service::Azure);
    let home = tempfile::tempdir().unwrap();
    let (options, vars) =
        with(&server, home.path(), &[("AZURE_STORAGE_SAS_TOKEN", "?sv=2023&sp=rcwl&sig=a%2Bb%3D".to_owned())]);
    let store = store(&server.url(), &options, vars).unwrap();
    // What is wrong stands in an element of its own.
    let late = "<Error><Code>AuthenticationFailed</Code><Message>Server failed to authenticate.\nRequestId:1\nTime:2</Message>\
        <AuthenticationErrorDetail>Signature not valid in the specified time frame: Start [1] - Expiry [2]</AuthenticationErrorDetail></Error>";
    for method in [Method::GET, Method::DELETE] {
        server.script(method, "", 1, Fault::Reply(Canned::body(403, "application/xml", late.to_owned())));
    }
    let error = store.get(KEY, Range::All).await.unwrap_err();
    let says = "Server failed to authenticate. Signature not valid in the specified time frame: Start [1] - Expiry [2] (request";
    assert_says(&error, Kind::Denied, "credentials_expired", says, "AZURE_STORAGE_SAS_TOKEN");
    let error = store.delete(KEY).await.unwrap_err();
    assert_eq!(error.code(), "credentials_expired");
    let log = server.log();
    assert_eq!(log.len(), 2);
    for request in &log {
        assert!(request.query.contains("sig=a%2Bb%3D"), "{}", request.query);
        assert_eq!(request.header("authorization"), None);
    }
    // A signature is a secret, wherever it stands.
    assert!(!format!("{error:?}{store:?}").contains("a%2Bb"), "{error:?}");
}
