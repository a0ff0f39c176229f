//! A ledger in memory, with nothing of the protocol: commits straight to the next slot.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use peat_types::{
    ChangeId, CloneId, EntryId, Error, InstanceId, ItemPath, LedgerId, PackId, Result, Seq, Timestamp, TxId, Unit,
};

use super::*;
use crate::model::{Draft, DraftUnit, FileRow, NewContent, NsInfo, Op, Params, Rank, Segment, TxKind};

/// Objects by segment; counts the pages read.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) all: HashMap<Segment, Bytes>,
    pub(crate) reads: AtomicU64,
}

#[async_trait]
impl PageSource for Objects {
    async fn page(&self, at: &Ref) -> Result<Bytes> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes(at).ok_or_else(|| Error::damaged(format!("{at:?} is not there")))
    }
}

impl crate::model::PageCache for Objects {
    fn get(&self, at: &Ref) -> Option<Bytes> {
        self.bytes(at)
    }

    fn put(&self, _: &Ref, _: &Bytes) {}
}

impl Objects {
    pub(crate) fn bytes(&self, at: &Ref) -> Option<Bytes> {
        let body = self.all.get(&at.segment)?;
        let start = usize::try_from(at.off).unwrap();
        let end = start + at.len as usize;
        (end <= body.len()).then(|| body.slice(start..end))
    }
}

pub(crate) struct Log {
    pub(crate) info: NsInfo,
    pub(crate) state: State,
    pub(crate) objects: Objects,
    ids: u64,
}

pub(crate) fn info() -> NsInfo {
    NsInfo {
        format: 1,
        ledger: LedgerId::from_bytes([7; 16]),
        namespace: "default".parse().unwrap(),
        owner: "0b9f6d3c-8f2e-4b53-9f0e-1a2b3c4d5e6f".into(),
        origin: Vec::new(),
        created: Timestamp::from_millis(1_784_538_902_100),
        params: Params::default(),
        probe: serde_json::Value::Null,
        rest: serde_json::Map::new(),
    }
}

/// An id that looks random and is not.
pub(crate) fn id(n: u64) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&blake3::hash(&n.to_le_bytes()).as_bytes()[..16]);
    out
}

/// A version 4 UUID.
pub(crate) fn uuid(n: u64) -> String {
    let mut b = id(n);
    b[6] = b[6] & 0x0f | 0x40;
    b[8] = b[8] & 0x3f | 0x80;
    let hex: String = b.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

pub(crate) fn path(text: &str) -> ItemPath {
    text.parse().unwrap()
}

pub(crate) fn put(path_text: &str, rank: Rank, old: Option<Rank>, bytes: impl Into<Vec<u8>>) -> Op {
    let content = NewContent::Bytes(Bytes::from(bytes.into()));
    Op::Put { path: path(path_text), rank, old, executable: false, content }
}

impl Log {
    pub(crate) fn new() -> Self {
        let info = info();
        let (body, state) = genesis(&info).unwrap();
        let mut objects = Objects::default();
        objects.all.insert(Segment::Log(Seq::ZERO), body);
        Self { info, state, objects, ids: 1000 }
    }

    pub(crate) fn next_id(&mut self) -> [u8; 16] {
        self.ids += 1;
        id(self.ids)
    }

    pub(crate) fn writer(&self) -> Writer {
        Writer {
            clone: CloneId::from_bytes(id(1)),
            instance: InstanceId::from_bytes(id(2)),
            time: Timestamp::from_millis(1_784_538_902_100 + self.state.seq.0 as i64),
        }
    }

    /// A draft of `changes`, each expecting the unit as it is now.
    pub(crate) async fn draft(&mut self, kind: TxKind, changes: Vec<(Unit, Vec<Op>)>) -> Draft {
        let changes: BTreeMap<Unit, Vec<Op>> = changes.into_iter().collect();
        let names: Vec<&Unit> = changes.keys().collect();
        let rows = unit_rows(&self.state, &names, &self.objects).await.unwrap();
        Draft {
            tx: TxId::from_bytes(self.next_id()),
            change: ChangeId::from_bytes(self.next_id()),
            kind,
            author: "ada@workstation".into(),
            message: "run execute of x".into(),
            time: Timestamp::from_millis(1_784_538_902_100),
            guard: None,
            units: changes
                .into_iter()
                .zip(rows)
                .map(|((unit, ops), row)| DraftUnit { unit, expected: row.map(|row| row.last_seq), ops })
                .collect(),
        }
    }

    pub(crate) async fn plan(&mut self, draft: &Draft) -> Result<Section> {
        let mut ids = self.ids;
        let mut pack_id = || {
            ids += 1;
            PackId::from_bytes(id(ids))
        };
        let section = plan(draft, &self.state, &self.info.params, &self.objects, &mut pack_id).await;
        self.ids = ids;
        section
    }

    /// Builds the next entry around `sections` and makes it the head.
    pub(crate) async fn build(&mut self, sections: &[Section]) -> Result<Bytes> {
        let entry = EntryId::from_bytes(self.next_id());
        let built = build_entry(&self.state, sections, entry, self.writer(), &self.info.params, &self.objects).await?;
        for (pack, body) in sections.iter().flat_map(|section| section.packs.clone()) {
            self.objects.all.insert(pack.segment(), body);
        }
        self.objects.all.insert(Segment::Log(built.1.seq), built.0.clone());
        self.state = built.1;
        Ok(built.0)
    }

    pub(crate) async fn commit(&mut self, changes: Vec<(Unit, Vec<Op>)>) -> Result<Bytes> {
        let draft = self.draft(TxKind::Change, changes).await;
        let section = self.plan(&draft).await?;
        assert_eq!(check(&section, &self.state, &self.objects).await?, None);
        self.build(&[section]).await
    }

    pub(crate) async fn table(&self, unit: &Unit) -> Vec<(Rank, ItemPath, FileRow)> {
        let rows = unit_rows(&self.state, &[unit], &self.objects).await.unwrap();
        match rows.into_iter().next().flatten() {
            Some(row) => table(&row, &self.objects).await.unwrap(),
            None => Vec::new(),
        }
    }

    /// The content of a row, through its block.
    pub(crate) fn content(&self, row: &FileRow) -> Bytes {
        let open = |at: &Ref| open_block(&self.objects.bytes(at).unwrap()).unwrap();
        match &row.content {
            crate::Content::Tiny(_) => content_in(&Bytes::new(), row).unwrap(),
            crate::Content::At(at) => content_in(&open(&at.block), row).unwrap(),
            crate::Content::Parts(parts) => {
                parts.iter().flat_map(|part| part_in(&open(&part.block), part).unwrap()).collect()
            }
        }
    }
}
