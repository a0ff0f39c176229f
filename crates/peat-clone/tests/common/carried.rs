//! An entry that carries the changes of several writers.

use async_trait::async_trait;
use bytes::Bytes;
use peat_clone::{Params, Rank};
use peat_ledger::{Draft, DraftUnit, NewContent, Op, Ref, Segment, TxKind, format};
use peat_objects::{MemoryStore, Range, Store};
use peat_types::{ChangeId, CloneId, EntryId, InstanceId, Result, Seq, TxId};

use super::{Machine, unit};

pub fn log_key(seq: Seq) -> String {
    format!("log/{}.{seq}", seq.inverted())
}

/// Pages straight from the objects.
struct Pages(MemoryStore);

#[async_trait]
impl format::PageSource for Pages {
    async fn page(&self, at: &Ref) -> Result<Bytes> {
        let Segment::Log(seq) = at.segment else { unreachable!("pages lie in the log") };
        let range = Range::Part { offset: at.off, len: u64::from(at.len) };
        Ok(self.0.get(&log_key(seq), range).await?.expect("there").bytes)
    }
}

/// What a helper leaves: one entry with `count` changes, each of its own unit with one item.
pub async fn carried(store: &MemoryStore, by: &Machine, count: usize) {
    let head = by.clone.kept().await.unwrap().head();
    let bytes = store.get(&log_key(head), Range::All).await.unwrap().unwrap().bytes;
    let state = format::decode_entry(head, &bytes).unwrap().state;
    let (params, pages) = (Params::default(), Pages(store.clone()));
    let mut sections = Vec::new();
    for at in 0..count {
        let put = Op::Put {
            path: format!("c{at}").parse().unwrap(),
            rank: Rank::Current,
            old: None,
            executable: false,
            content: NewContent::Bytes("carried".into()),
        };
        let draft = Draft {
            tx: TxId::random(&by.env),
            change: ChangeId::random(&by.env),
            kind: TxKind::Change,
            author: "x@y".to_owned(),
            message: format!("change {at}"),
            time: by.env.now(),
            guard: None,
            units: vec![DraftUnit { unit: unit(&format!("model/c{at}")), expected: None, ops: vec![put] }],
        };
        let mut pack_id = || unreachable!("small");
        sections.push(format::plan(&draft, &state, &params, &pages, &mut pack_id).await.unwrap());
    }
    let (clone, instance) = (CloneId::random(&by.env), InstanceId::random(&by.env));
    let writer = format::Writer { clone, instance, time: by.env.now() };
    let built = format::build_entry(&state, &sections, EntryId::random(&by.env), writer, &params, &pages).await;
    store.create(&log_key(head.next()), built.unwrap().0).await.unwrap();
}
