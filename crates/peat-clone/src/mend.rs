//! The clone's side of a repair in the store: what is here may be what is missing there.

use bytes::Bytes;
use peat_ledger::{
    Broken, Content, Copies, FileRow, KnownUnit, Ledger, MendPlan, Mended, Mending, NsInfo, Rank, State, Verified,
};
use peat_objects::Range;
use peat_types::{Error, Hash, Kind, Result};
use serde_json::Value;

use crate::db;
use crate::handle::Inner;
use crate::upkeep::MAINTENANCE;
use crate::{Item, LocalClone, UnitInfo};

impl LocalClone {
    /// What a look at the objects of the ledger by name and size shows: a few requests, however large it is.
    pub async fn inventory(&self) -> Result<Verified> {
        self.0.ledger.inventory().await
    }

    /// What can be put right in the store of what a verification found. Nothing is changed.
    pub async fn plan_mend(&self, found: &Verified) -> Result<MendPlan> {
        self.0.ledger.plan_mend(found, &*self.0).await
    }

    /// Puts right in the store what the plan names. Interrupted anywhere, it may be planned and run again.
    pub async fn mend(&self, plan: &MendPlan) -> Result<Mended> {
        let how = Mending { author: self.0.author(), patience: MAINTENANCE };
        self.0.guarded(self.0.ledger.mend(plan, &*self.0, &how)).await
    }

    /// Writes the `ns.json` of the namespace again as this clone knows it, where it is missing or cannot be read. First the
    /// log has to show that it is the one that is known.
    ///
    /// # Errors
    /// `Damaged` when it is another one, or nothing of it is known here.
    pub async fn write_info(&self) -> Result<()> {
        const NS: &str = "ns.json";
        // Past what takes a folder without it for no store.
        let (store, info) = (&self.0.options.store, self.info());
        let Some(head) = self.0.db.heads()?.head else {
            return Err(Error::damaged(format!(
                "this clone never read the log, so it cannot tell whether {NS} fits it"
            ))
            .with_hint("restore the file from a backup, or run this on a machine that has used the datastore"));
        };
        let ledger = Ledger::with_info(store.clone(), &self.0.env, info.clone(), self.0.id, self.0.instance);
        Box::pin(ledger.with_seen(head.seq).confirm(&head)).await?;
        let there = store.get(NS, Range::All).await?;
        // As far as it can be read: what this version does not know stays.
        let mut fields: Value =
            there.as_ref().and_then(|object| serde_json::from_slice(&object.bytes).ok()).unwrap_or_default();
        if fields.get("format").and_then(Value::as_u64).is_some_and(|there| there > u64::from(info.format)) {
            return Err(Error::new(Kind::Unsupported, format!("{NS} in {store} was written by a newer version"))
                .with_code("unsupported_version")
                .with_hint("install a newer version of peat"));
        }
        let bad = |e| Error::internal("write ns.json").with_source(e);
        overlay(&mut fields, serde_json::to_value(info).map_err(bad)?);
        let bytes = serde_json::to_vec_pretty(&fields).map_err(bad)?;
        match there.map(|object| serde_json::from_slice::<NsInfo>(&object.bytes)) {
            None => store.create(NS, bytes.into()).await.map(drop),
            Some(Err(_)) => store.put(NS, bytes.into()).await.map(drop),
            Some(Ok(known)) if known.ledger == info.ledger => Ok(()),
            Some(Ok(other)) => Err(Error::damaged(format!("{NS} in {store} is of ledger {}", other.ledger))
                .with_code("fork")
                .with_hint("the store was replaced: nothing was touched; mount or name the right one")),
        }
    }
}

/// Sets all that `known` says, and leaves other fields as they are.
fn overlay(there: &mut Value, known: Value) {
    match (there, known) {
        (Value::Object(there), Value::Object(known)) => {
            for (name, value) in known {
                overlay(there.entry(name).or_insert(Value::Null), value);
            }
        }
        (there, known) => *there = known,
    }
}

impl Copies for Inner {
    fn each(&self, see: &mut dyn FnMut(KnownUnit) -> Result<()>) -> Result<Option<State>> {
        // At one moment: other processes may bring the index forward.
        self.db.read(|tx| {
            for UnitInfo { unit, seq, as_of, .. } in db::units(tx)? {
                let items = db::items(tx, &unit, "")?.into_iter();
                let files = items.map(|item| (item.rank, item.path, item.row)).collect();
                see(KnownUnit { unit, seq, as_of, files })?;
            }
            Ok(db::heads(tx)?.position)
        })
    }

    fn copy(&self, wanted: &Broken) -> Result<Option<Bytes>> {
        let known = self.db.read(|tx| db::get(tx, &wanted.unit, &wanted.path))?;
        if let Some(n) = wanted.part {
            return known.map_or(Ok(None), |item| self.part_here(&item, n, wanted.hash));
        }
        // The index need not know it; what the tree holds is compared with the hash.
        let row =
            FileRow { executable: false, size: wanted.size, hash: wanted.hash, content: Content::Tiny(Bytes::new()) };
        let named = Item { unit: wanted.unit.clone(), path: wanted.path.clone(), rank: Rank::Current, row };
        let same = self.db.read(|tx| db::of_hash(tx, wanted.hash))?;
        for item in std::iter::once(named).chain(same) {
            if let Some(bytes) = self.local(&item)? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

impl Inner {
    /// A part of a content that is in the tree.
    fn part_here(&self, item: &Item, n: u32, hash: Hash) -> Result<Option<Bytes>> {
        let Content::Parts(parts) = &item.row.content else { return Ok(None) };
        let mut offset = 0;
        for (at, part) in (0..).zip(&**parts) {
            if at == n {
                let here = self.tree.slice(item, offset, part.size)?;
                return Ok(here.filter(|bytes| part.hash == hash && Hash::of(bytes) == hash));
            }
            offset += part.size;
        }
        Ok(None)
    }
}
