//! `peat doctor --repair` and the store: one machine lost nothing, so nobody did.

use std::path::PathBuf;

use serde_json::Value;

use crate::sandbox::Sandbox;

/// A repo in a shared folder whose data lies in a pack, and the files of the store that are packs.
pub(crate) fn shared() -> (Sandbox, Sandbox) {
    let (ann, bob) = (Sandbox::with_model("seq 30000"), Sandbox::new());
    ann.peat("model method run m execute").ok();
    std::fs::create_dir(ann.path("shared")).unwrap();
    let url = format!("file://{}", ann.path("shared").display());
    ann.run(["datastore", "setup", &url, "--namespace", "infra"]).ok();
    for file in [".peat.yaml", "models/command/shell/m.yaml"] {
        bob.write(&format!("repo/{file}"), &std::fs::read_to_string(ann.repo().join(file)).unwrap());
    }
    (ann, bob)
}

pub(crate) fn packs(ann: &Sandbox) -> Vec<PathBuf> {
    let mut found = Vec::new();
    crate::hints::files(&ann.path("shared/infra/pack"), "", &mut found);
    found
}

fn findings(report: &Value, list: &str, check: &str) -> Vec<Value> {
    let all = report[list].as_array().unwrap();
    all.iter().filter(|finding| finding["check"] == check).cloned().collect()
}

#[test]
fn a_pack_that_was_destroyed_is_put_back_by_the_machine_that_has_the_data() {
    let (ann, bob) = shared();
    let all = packs(&ann);
    assert!(!all.is_empty());
    all.iter().for_each(|pack| std::fs::remove_file(pack).unwrap());

    let lost = bob.peat("datastore sync --pull --json").status(1).error();
    assert_eq!(lost["code"], "content_lost", "{lost}");
    // The cheap look sees that packs are missing; verify names object, item and remedy.
    assert_eq!(ann.peat("doctor --json").status(1).json()["overallStatus"], "fail");
    let verify = ann.peat("ledger verify --json").status(1).json();
    let raw = verify["findings"].as_array().unwrap().iter().find(|f| f["item"] == "m/result/1 (raw)").unwrap().clone();
    assert!(raw["check"].as_str().unwrap().starts_with("pack/"), "{raw}");
    assert!(raw["hint"].as_str().unwrap().contains("'peat doctor --repair'"), "{raw}");

    let unasked = ann.peat("doctor --repair").status(1);
    assert!(unasked.out.contains("would store") && unasked.out.contains("m/result/1"), "{unasked:?}");
    assert!(packs(&ann).is_empty(), "the plan alone changes nothing");
    let nothing = bob.peat("doctor --repair -y --json").status(1).json();
    let none = findings(&nothing, "healthFindings", "lost");
    let offered = nothing["healthFindings"].as_array().unwrap().iter().filter(|found| !found["repair"].is_null());
    assert_eq!(offered.count(), 0, "what was tried in vain is not offered again: {nothing}");
    let said = bob.peat("doctor --repair -y").status(1).out;
    assert_eq!(said.matches("ok  journal").count(), 1, "{said}");
    assert!(none[0]["message"].as_str().unwrap().contains("m/result/1"), "{nothing}");

    let repaired = ann.peat("doctor --repair -y --json").ok().json();
    assert!(repaired["repaired"][0].as_str().unwrap().starts_with("put "), "{repaired}");
    bob.peat("datastore sync --pull").ok();
    assert!(bob.peat("data get m result").ok().out.contains("29999\\n30000"));
    assert!(ann.peat("doctor --repair -y --json").ok().json()["repaired"].is_null(), "nothing is left to be done");
    // Only the past is not whole, and that is said.
    let doctor = bob.peat("doctor --json").ok().json();
    assert!(doctor["warnings"][0]["message"].as_str().unwrap().contains("states before entry"), "{doctor}");
    let again = ann.peat("ledger verify --deep --json").status(1).json();
    for finding in again["findings"].as_array().unwrap() {
        assert!(finding["message"].as_str().unwrap().contains("entry"), "{finding}");
        assert!(finding["hint"].as_str().unwrap().contains("'peat datastore gc --keep 24h'"), "{finding}");
    }
}

#[test]
fn a_flipped_byte_is_found_by_a_deep_look_and_put_right() {
    let (ann, bob) = shared();
    for pack in packs(&ann) {
        let mut bytes = std::fs::read(&pack).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(&pack, bytes).unwrap();
    }
    ann.peat("doctor").ok();
    let deep = ann.peat("doctor --deep --json").status(1).json();
    let contents = findings(&deep, "healthFindings", "contents");
    assert!(contents[0]["message"].as_str().unwrap().contains("(m/"), "{deep}");
    assert_eq!(contents[0]["repair"].as_str().unwrap(), "store 1 content again", "{deep}");
    ann.peat("doctor --deep --repair -y").ok();
    ann.peat("doctor --deep").ok();
    assert!(bob.peat("data get m result --fresh").ok().out.contains("29999\\n30000"));
}

#[test]
fn lists_that_were_destroyed_are_written_again_along_with_the_contents() {
    let (ann, bob) = shared();
    ann.peat("ledger maintain --full").ok();
    ann.peat("datastore sync --pull").ok();
    packs(&ann).iter().for_each(|pack| std::fs::remove_file(pack).unwrap());
    bob.peat("datastore sync --pull --json").status(1);
    let verify = ann.peat("ledger verify --json").status(1).json();
    let torn =
        verify["findings"].as_array().unwrap().iter().filter(|f| f["message"].as_str().unwrap().contains("a part of"));
    for finding in torn {
        assert!(finding["hint"].as_str().unwrap().contains("'peat doctor --repair' builds"), "{finding}");
    }
    let unasked = ann.peat("doctor --repair").status(1);
    assert!(unasked.out.contains("would write the table of 1 model, the list of all models"), "{unasked:?}");
    assert!(packs(&ann).is_empty(), "the plan alone changes nothing");
    let repaired = ann.peat("doctor --repair -y --json").ok().json();
    let done: Vec<&str> = repaired["repaired"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(done[0].starts_with("wrote the table of 1 model, the list of all models"), "{done:?}");
    assert!(done.iter().any(|line| line.starts_with("put ")), "{done:?}");
    assert!(ann.peat("doctor --repair -y --json").ok().json()["repaired"].is_null(), "nothing is left to be done");
    bob.peat("datastore sync --pull").ok();
    assert!(bob.peat("data get m result").ok().out.contains("29999\\n30000"));
    for finding in ann.peat("ledger verify --deep --json").status(1).json()["findings"].as_array().unwrap() {
        assert!(
            finding["hint"].as_str().unwrap().contains("'peat datastore gc --keep 24h'"),
            "only the past: {finding}"
        );
    }
}

#[test]
fn what_does_not_belong_there_and_what_nobody_needs_is_told_apart() {
    let (ann, _) = shared();
    ann.write("shared/infra/notes.txt", "mine");
    let verify = ann.peat("ledger verify --json").status(1).json();
    let foreign = findings(&verify, "findings", "notes.txt");
    assert!(foreign[0]["hint"].as_str().unwrap().contains("remove it"), "{verify}");
    std::fs::remove_file(ann.path("shared/infra/notes.txt")).unwrap();
    let text = ann.peat("ledger verify").ok().out;
    assert!(text.contains("ok: "), "{text}");
}

#[test]
fn what_several_models_lack_in_the_past_is_one_warning() {
    let mut most = 0;
    // One of the packs holds small contents of both models.
    for lost in 0..3 {
        let (ann, _) = shared();
        ann.model("other", "echo hi");
        ann.peat("model method run other execute").ok();
        ann.peat("ledger maintain --force --full").ok();
        ann.peat("pin add then").ok();
        let mut all = packs(&ann);
        all.sort();
        std::fs::remove_file(&all[lost]).unwrap();
        ann.peat("doctor --repair -y").ok();
        let report = ann.peat("doctor --deep --json").ok().json();
        let told = report["warnings"].as_array().unwrap().iter().map(|warning| warning["message"].as_str().unwrap());
        let told: Vec<&str> = told.collect();
        let once: std::collections::BTreeSet<&str> = told.iter().copied().collect();
        assert_eq!(told.len(), once.len(), "{told:#?}");
        most = most.max(told.len());
    }
    assert!(most > 0);
}
