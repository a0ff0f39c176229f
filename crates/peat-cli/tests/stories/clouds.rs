//! The day of a team whose bucket is at another service.

use std::os::unix::fs::PermissionsExt as _;

use peat_testkit::cloud::{CloudServer, Service};

use crate::machine::{Machine, Shop, error, json};

#[test]
fn two_machines_share_a_bucket_of_google_and_one_of_azure() {
    for service in [Service::Gcs, Service::Azure] {
        let shop = Shop::of(service);
        let ann = Machine::new("ann", &shop);
        ann.peat("init");
        ann.peat("model create command/shell hello");
        ann.share(&shop);
        let ben = ann.cloned("ben", &shop);
        ann.run("hello", "echo hi");
        ben.run("hello", "echo there");
        let fresh = ann.peat("data get hello result --fresh");
        assert_eq!((&fresh["content"]["stdout"], &fresh["version"]), (&"there".into(), &2.into()), "{service:?}");
        let verified = ben.peat("ledger verify");
        assert_eq!(verified["problems"].as_array().map_or(0, Vec::len), 0, "{verified}");
    }
}

#[test]
fn settings_that_a_store_does_not_have_are_refused() {
    for service in [Service::Gcs, Service::Azure] {
        let shop = Shop::of(service);
        let ann = Machine::new("ann", &shop);
        ann.peat("init");
        for (option, name) in [("--region=x", "region"), ("--profile=x", "profile"), ("--path-style", "path style")] {
            let args = ["datastore", "setup", shop.url(), "--namespace", "infra", "--json", option];
            let error = error(&ann.command(args).output().unwrap(), 1);
            assert_eq!(error["code"], "validation_failed");
            assert!(error["error"].to_string().contains(&format!("have no {name}")), "{error}");
        }
    }
}

/// Who is logged in to `az` on a machine needs no variables.
#[test]
fn a_login_of_azure_is_used() {
    let server = CloudServer::start(Service::Azure).unwrap();
    let ann = Machine::new("ann", &Shop::of(Service::Azure));
    let home = ann.repo().with_file_name("home");
    std::fs::create_dir_all(home.join(".azure")).unwrap();
    std::fs::write(home.join(".azure/azureProfile.json"), "{}").unwrap();
    let program = home.join("az");
    let answer = r#"{"accessToken":"of-ann","expiresOn":"2099-01-01 00:00:00.000000","tokenType":"Bearer"}"#;
    std::fs::write(&program, format!("#!/bin/sh\necho '{answer}'\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    ann.peat("init");
    let endpoint = server.endpoint();
    let args = ["datastore", "setup", "az://bucket/peat", "--endpoint", &endpoint, "--namespace", "infra", "--json"];
    let setup = |path: String| {
        let mut command = ann.command(args);
        command.env_remove("AZURE_STORAGE_CONNECTION_STRING").env("PATH", path).output().unwrap()
    };
    let missing = error(&setup("/usr/bin:/bin".to_owned()), 1);
    assert_eq!(missing["code"], "no_credentials", "{missing}");
    assert!(missing["error"].to_string().contains("'az' is not installed"), "{missing}");
    assert!(server.log().is_empty());

    let made = json(&setup(format!("{}:/usr/bin:/bin", home.display())));
    assert_eq!(made["type"], "az", "{made}");
    assert!(server.log().iter().all(|request| request.header("authorization") == Some("Bearer of-ann")));
}
