use std::collections::BTreeMap;

use bytes::Bytes;
use peat_clone::{Brought, FileRow, Item, Lease, PlanContent};
use peat_types::{ChangeId, CloneId, Env, Hash, InstanceId, RunNonce, Seq};

use super::*;

const ID: &str = "5b0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11";

/// A unit in memory, to which plans can be applied.
#[derive(Default)]
struct Fake {
    seq: u64,
    files: BTreeMap<ItemPath, (Rank, Bytes)>,
}

fn unit() -> Unit {
    Unit::model(ID).unwrap()
}

impl Fake {
    fn item_of(&self, path: &ItemPath) -> Option<Item> {
        let (rank, bytes) = self.files.get(path)?;
        let row = FileRow {
            executable: false,
            size: bytes.len() as u64,
            hash: Hash::of(bytes),
            content: peat_ledger::Content::Tiny(bytes.clone()),
        };
        Some(Item { unit: unit(), path: path.clone(), rank: *rank, row })
    }

    fn apply(&mut self, plan: Plan, contents: &[Brought]) {
        self.seq += 1;
        for op in plan.ops {
            match op {
                PlanOp::Put { path, rank, content, .. } => {
                    let bytes = match content {
                        PlanContent::Bytes(bytes) => bytes,
                        PlanContent::Journalled(i) => contents[i].read().unwrap(),
                        PlanContent::Stored(_) => panic!("nothing here is stored already"),
                    };
                    self.files.insert(path, (rank, bytes));
                }
                PlanOp::Delete { path, .. } => drop(self.files.remove(&path)),
                PlanOp::Rank { path, rank, .. } => {
                    if let Some(file) = self.files.get_mut(&path) {
                        file.0 = rank;
                    }
                }
            }
        }
    }

    fn output(&self, at: usize) -> Output {
        let (path, (_, bytes)) = self
            .files
            .iter()
            .filter(|(path, _)| path.as_str().starts_with("outputs/") && path.as_str().ends_with("yaml"))
            .nth(at)
            .unwrap();
        record(bytes, path).unwrap()
    }
}

#[async_trait]
impl View for Fake {
    fn units(&self) -> &[Unit] {
        &[]
    }

    fn seq(&self, _: &Unit) -> Option<Seq> {
        (self.seq > 0).then_some(Seq(self.seq))
    }

    fn items(&self, _: &Unit, prefix: &str) -> Result<Vec<Item>> {
        Ok(self
            .files
            .keys()
            .filter(|path| path.as_str().starts_with(prefix))
            .filter_map(|path| self.item_of(path))
            .collect())
    }

    fn item(&self, _: &Unit, path: &ItemPath) -> Result<Option<Item>> {
        Ok(self.item_of(path))
    }

    async fn read(&self, _: &Unit, path: &ItemPath) -> Result<Option<Bytes>> {
        Ok(self.files.get(path).map(|(_, bytes)| bytes.clone()))
    }
}

fn change(kind: &str, payload: Value, contents: Vec<Bytes>) -> Change {
    Change {
        id: ChangeId::random(&Env::system([])),
        kind: kind.to_owned(),
        payload,
        units: vec![unit()],
        contents: contents.into_iter().map(Brought::from).collect(),
        message: String::new(),
        author: String::new(),
        time: Timestamp::from_millis(0),
        unleased: false,
    }
}

fn run(id: &str, at: i64, status: &str, owner: &str) -> Change {
    let write = json!({
        "freshId": format!("data-of-{id}"), "name": "result", "contentType": "application/json", "lifetime": "infinite",
        "garbageCollection": 10, "streaming": false, "tags": {"type": "resource"},
        "owner": {"ownerType": "model-method", "ownerRef": owner}, "createdAt": Timestamp::from_millis(at), "size": 2,
        "checksum": "", "content": 0,
    });
    let output = json!({
        "id": id, "definitionId": ID, "methodName": "go", "status": status, "startedAt": Timestamp::from_millis(at),
        "provenance": {}, "later": {"kept": true},
    });
    let data = if status == "running" { json!([]) } else { json!([write]) };
    let kind = if status == "running" { START } else { END };
    change(kind, json!({"type": "t", "output": output, "data": data}), vec![Bytes::from_static(b"{}")])
}

async fn commit(fake: &mut Fake, change: &Change) -> Result<Value, Refusal> {
    let plan = DomainPlanner::default().plan(change, &*fake).await?;
    let answer = plan.answer.clone();
    fake.apply(plan, &change.contents);
    Ok(answer)
}

fn refusal(result: Result<Value, Refusal>) -> Error {
    match result {
        Err(Refusal::Refused(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_version_follows_the_newest_of_the_view_and_keeps_its_id() {
    let mut fake = Fake::default();
    let first = commit(&mut fake, &run("a", 1, "succeeded", ID)).await.unwrap();
    // The same change planned on a later state gets the next number: appends commute.
    let again = commit(&mut fake, &run("b", 2, "failed", ID)).await.unwrap();
    assert_eq!((&first["data"][0]["version"], &again["data"][0]["version"]), (&json!(1), &json!(2)));
    assert_eq!(again["data"][0]["id"], "data-of-a");
    let ranks: Vec<_> = fake.files.iter().filter(|(p, _)| p.as_str().ends_with("/raw")).map(|(_, f)| f.0).collect();
    assert_eq!(ranks, [Rank::History(2), Rank::Current]);
}

#[tokio::test]
async fn data_of_another_owner_is_not_written() {
    let mut fake = Fake::default();
    commit(&mut fake, &run("a", 1, "succeeded", ID)).await.unwrap();
    let error = refusal(commit(&mut fake, &run("b", 2, "succeeded", "somebody else")).await);
    assert_eq!(error.code(), "owned_by_another");
}

#[tokio::test]
async fn runs_of_the_same_millisecond_keep_their_own_record() {
    let mut fake = Fake::default();
    commit(&mut fake, &run("aaaaaaaa-1", 1, "running", ID)).await.unwrap();
    commit(&mut fake, &run("bbbbbbbb-2", 1, "succeeded", ID)).await.unwrap();
    let end = commit(&mut fake, &run("aaaaaaaa-1", 1, "succeeded", ID)).await.unwrap();
    assert!(
        end["output"].as_str().unwrap().ends_with("000Z.yaml")
            || end["output"].as_str().unwrap().ends_with("001Z.yaml")
    );
    let mut ids = [fake.output(0).id, fake.output(1).id];
    ids.sort();
    assert_eq!(ids, ["aaaaaaaa-1", "bbbbbbbb-2"]);
    assert_eq!(fake.output(0).rest["later"], json!({"kept": true}));
}

#[tokio::test]
async fn what_a_dead_run_left_is_marked() {
    let mut fake = Fake::default();
    commit(&mut fake, &run("a", 1, "succeeded", ID)).await.unwrap();
    commit(&mut fake, &run("b", 2, "running", ID)).await.unwrap();
    let env = Env::system([]);
    let lease = Lease {
        generation: 1,
        held: true,
        nonce: RunNonce::random(&env),
        clone: CloneId::random(&env),
        instance: InstanceId::random(&env),
        base: Seq(0),
        user: "ann".into(),
        host: "there".into(),
        since: Timestamp::from_millis(0),
        ttl_ms: 1,
    };
    let plan =
        DomainPlanner::default().interrupt(&Interrupted { unit: unit(), lease: lease.clone() }, &fake).await.unwrap();
    fake.apply(plan, &[]);
    let statuses = [fake.output(0).status, fake.output(1).status];
    assert_eq!(statuses, [RunStatus::Succeeded, RunStatus::Interrupted]);
    assert_eq!(fake.output(1).rest["later"], json!({"kept": true}));

    // A model whose lease is held is not deleted; the record of a free one stays.
    let path: ItemPath = "leases/x".parse().unwrap();
    fake.files.insert(path.clone(), (Rank::Current, serde_json::to_vec(&lease).unwrap().into()));
    let delete = change(DELETE, json!({}), Vec::new());
    assert_eq!(refusal(commit(&mut fake, &delete).await).kind(), Kind::Contended);
    let free = Lease { held: false, ..lease };
    fake.files.insert(path.clone(), (Rank::Current, serde_json::to_vec(&free).unwrap().into()));
    commit(&mut fake, &delete).await.unwrap();
    assert_eq!(fake.files.keys().collect::<Vec<_>>(), [&path]);
}

#[tokio::test]
async fn what_is_not_understood_is_refused_and_kept() {
    let mut fake = Fake::default();
    let error = refusal(commit(&mut fake, &change("data.later", json!({}), Vec::new())).await);
    assert_eq!(error.code(), "unsupported_version");
    assert_eq!(refusal(commit(&mut fake, &change(END, json!({"no": 1}), Vec::new())).await).kind(), Kind::Damaged);
}

#[tokio::test]
async fn whatever_is_laid_in_or_removed_by_hand_the_newest_version_is_the_current_one() {
    let mut fake = Fake::default();
    let path = |version: u64| format!("data/t/{ID}/result/{version}/raw").parse::<ItemPath>().unwrap();
    let hand = |added: &[u64], removed: &[u64]| {
        let content = |n: u64| Bytes::from(format!("{n}"));
        let files = (0..).zip(added).map(|(i, n)| AddedFile {
            unit: unit(),
            path: path(*n),
            content: i,
            hash: Hash::of(&content(*n)),
            base: None,
            size: 1,
            checksum: None,
        });
        let deletes =
            removed.iter().map(|n| RemovedFile { unit: unit(), path: path(*n), base: Some(Hash::of(&content(*n))) });
        let payload = HandChange { files: files.collect(), deletes: deletes.collect() };
        change(ADD, serde_json::to_value(payload).unwrap(), added.iter().map(|n| content(*n)).collect())
    };
    let planner = DomainPlanner::default();
    for (added, removed, left) in [
        (&[1, 2][..], &[][..], &[1, 2][..]),
        (&[4], &[], &[1, 2, 4]),
        (&[3], &[], &[1, 2, 3, 4]),
        (&[], &[4, 2], &[1, 3]),
        (&[5], &[3], &[1, 5]),
        (&[], &[5, 1], &[]),
    ] {
        let change = hand(added, removed);
        let plan = planner.plan(&change, &fake).await.unwrap();
        fake.apply(plan, &change.contents);
        let found: Vec<(ItemPath, bool)> =
            fake.files.iter().map(|(path, (rank, _))| (path.clone(), *rank == Rank::Current)).collect();
        let newest = left.last();
        assert_eq!(
            found,
            left.iter().map(|n| (path(*n), Some(n) == newest)).collect::<Vec<_>>(),
            "{added:?} {removed:?}"
        );
    }
    // What was written between reading and journalling is not taken for what was described.
    let mut torn = hand(&[7], &[]);
    torn.contents = vec![Bytes::from_static(b"else").into()];
    assert!(matches!(planner.plan(&torn, &fake).await, Err(Refusal::Refused(e)) if e.kind() == Kind::Conflict));
}
