//! R1, R2 and R3: whether a section may be committed on a state. A no is final for its transaction (R7).

use peat_types::Result;

use super::page::TreeKind;
use super::row::{pack_key, read_unit_value};
use super::tree::lookup;
use super::{PageSource, Section};
use crate::Dead;
use crate::model::State;

/// R1–R3 of one section against `state`: `None` when it may be committed on it. Guards were checked when the section
/// was planned; R1 carries that to the commit, because the lease lies in one of its units.
///
/// # Errors
/// Whatever `pages` reports.
pub async fn check(section: &Section, state: &State, pages: &dyn PageSource) -> Result<Option<Dead>> {
    let head = &section.head;
    let keys: Vec<&[u8]> = head.units.iter().map(|unit| unit.unit.as_str().as_bytes()).collect();
    let rows = lookup(state.root.directory.as_ref(), TreeKind::Directory, &keys, pages).await?;
    let mut repointed = false;
    for (unit, row) in head.units.iter().zip(rows) {
        let row = row.as_ref().map(read_unit_value).transpose()?;
        if row.as_ref().map(|row| row.last_seq) != unit.expected {
            return Ok(Some(Dead::Moved(unit.unit.clone())));
        }
        // R3, for all that hangs below pages the section kept: a checkpoint moves a table without a new seq.
        repointed |= row.and_then(|row| row.table) != unit.planned;
    }
    let pack = |dropped: bool| {
        let own = head.packs.iter().map(|pack| (pack.base, pack.id));
        own.chain(head.ext_packs.iter().copied()).map(move |(base, id)| pack_key(dropped, base, id))
    };
    let (live, dropped) = (known(state, pack(false), pages).await?, known(state, pack(true), pages).await?);
    let (own_live, ext_live) = live.split_at(head.packs.len());
    let own_dropped = &dropped[..head.packs.len()];
    for ((pack, live), dropped) in head.packs.iter().zip(own_live).zip(own_dropped) {
        // A dropped pack never comes back, whatever its base.
        if *dropped || !live && pack.base <= state.root.horizon {
            return Ok(Some(Dead::Horizon));
        }
    }
    let gone = head.ext_log.is_some_and(|low| low < state.root.minlog) || ext_live.contains(&false);
    Ok((repointed || gone).then_some(Dead::Gone))
}

/// Whether each key is in the pack table.
async fn known(state: &State, keys: impl Iterator<Item = Vec<u8>>, pages: &dyn PageSource) -> Result<Vec<bool>> {
    let keys: Vec<Vec<u8>> = keys.collect();
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_unstable_by_key(|i| &keys[*i]);
    let sorted: Vec<&[u8]> = order.iter().map(|i| keys[*i].as_slice()).collect();
    let found = lookup(state.root.packs.as_ref(), TreeKind::Packs, &sorted, pages).await?;
    let mut out = vec![false; keys.len()];
    for (i, value) in order.into_iter().zip(found) {
        out[i] = value.is_some();
    }
    Ok(out)
}
