//! The ends of packs: header and index, which no row refers to. Reading goes on without them; a repair does not.

use futures::stream::{self, StreamExt};
use peat_objects::Range;
use peat_types::{Error, Kind, Result};

use super::Check;
use super::flaw::{Flaw, RESTORE};
use super::names::InTable;
use crate::format::decode_ends;
use crate::ledger::{Ledger, key};

/// Bytes that hold the header.
const FIRST: u64 = 4 << 10;
/// Bytes that hold the index, as a rule.
const LAST: u64 = 64 << 10;
/// Packs looked at together.
const PARALLEL: usize = 8;

impl Check<'_> {
    /// Looks at both ends of all packs of the table that are as long as it says.
    pub(super) async fn ends(&mut self, table: &[InTable]) -> Result<()> {
        let whole = table.iter().filter(|pack| self.sizes.get(&pack.segment()) == Some(&pack.row.size));
        let ledger = self.ledger;
        let reads: Vec<_> = whole.map(|pack| async move { (pack, ends(ledger, pack).await) }).collect();
        let read: Vec<_> = stream::iter(reads).buffered(PARALLEL).boxed().collect().await;
        for (pack, end) in read {
            let Err(error) = end else { continue };
            let flaw = Flaw::new(key::pack(pack.base, pack.id), "", RESTORE);
            let said = self.out.findings.len();
            self.note(Flaw { past: pack.dropped, ..flaw }, error)?;
            for flaw in self.out.findings.iter_mut().skip(said) {
                flaw.what.push_str("; what it holds is read without that, and found by a repair with it");
            }
        }
        Ok(())
    }
}

async fn ends(ledger: &Ledger, pack: &InTable) -> Result<()> {
    let (key, size) = (key::pack(pack.base, pack.id), pack.row.size);
    let gone = || Error::damaged("it went away while it was looked at");
    let first = ledger.store.get(&key, Range::Part { offset: 0, len: FIRST }).await?.ok_or_else(gone)?.bytes;
    let mut len = LAST.min(size);
    loop {
        let last = ledger.store.get(&key, Range::Last { len }).await?.ok_or_else(gone)?.bytes;
        match decode_ends(&first, &last, size).map_err(|e| e.context("its header or its index is damaged"))? {
            Ok(named) if named == (pack.base, pack.id) => return Ok(()),
            Ok((base, id)) => return Err(Error::damaged(format!("it says that it is {}", key::pack(base, id)))),
            Err(needed) if needed > len && needed <= size => len = needed,
            Err(_) => return Err(Error::new(Kind::Damaged, "its index is longer than it")),
        }
    }
}
