//! `peat demo`.

use crate::sandbox::Sandbox;

#[test]
fn the_demo_shows_the_main_job_and_cleans_up() {
    let mut sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("tmp")).unwrap();
    let tmp = sandbox.path("tmp");
    sandbox.set("TMPDIR", &tmp);
    let json = sandbox.peat("demo --json").ok().json();
    assert_eq!(json["passed"], true, "{json}");
    assert!(json["steps"].as_array().unwrap().len() >= 8, "{json}");
    assert_eq!(std::fs::read_dir(&tmp).unwrap().count(), 0);
    assert!(!sandbox.path("peat-home").exists() && std::fs::read_dir(sandbox.repo()).unwrap().next().is_none());
}

#[test]
fn the_demo_keeps_its_folder_when_asked() {
    let sandbox = Sandbox::new();
    let dir = sandbox.path("kept");
    let ran = sandbox.run(["demo", "--dir", dir.to_str().unwrap()]).ok();
    assert!(ran.out.contains(dir.to_str().unwrap()), "{}", ran.out);
    assert!(dir.join("store").is_dir());
    sandbox.run(["demo", "--dir", dir.to_str().unwrap()]).status(1);
}
