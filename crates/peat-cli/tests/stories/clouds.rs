//! The day of a team whose bucket is at another service.

use peat_testkit::cloud::Service;

use crate::machine::{Machine, Shop, error};

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
