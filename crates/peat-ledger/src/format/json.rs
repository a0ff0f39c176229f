//! Any binary object as JSON, for people: `peat ledger cat`.

use bytes::Bytes;
use peat_types::{Error, Result};
use serde_json::{Map, Value as Json, json};

use super::decode::{decode_entry, open};
use super::header::{KIND_ENTRY, KIND_PACK, KIND_STAGED, KIND_VOID, MAGIC};
use super::pack::decode_pack;
use super::page::{Page, TreeKind};
use super::refs::Value;

use super::row::{read_file_value, read_pack_key, read_pack_value, read_table_key, read_unit_key, read_unit_value};
use super::staged::decode_group;
use super::{damaged, unsupported};
use crate::model::{Content, FileRow, OWN_SEQ, OpRecord, Part, Rank, Ref, Root, Segment, TxHead, UnitOps, UnitRow};

/// A log entry, a staged transaction or a pack as JSON. `seq` is the slot an entry was read from.
///
/// # Errors
/// `Damaged`; `Unsupported` for a newer format or another kind of object.
pub fn to_json(seq: Option<peat_types::Seq>, body: &Bytes) -> Result<Json> {
    match (body.get(..MAGIC.len()), body.get(MAGIC.len())) {
        (Some(magic), Some(kind)) if magic == MAGIC => match *kind {
            KIND_ENTRY => entry(seq.ok_or_else(|| Error::internal("an entry without its slot"))?, body),
            KIND_STAGED => staged(body),
            KIND_PACK => pack(body),
            KIND_VOID => Ok(json!({"kind": "void", "bytes": body.len()})),
            other => Err(unsupported(format!("segment kind {other}"))),
        },
        _ => Err(damaged("this is not a segment")),
    }
}

fn entry(seq: peat_types::Seq, body: &Bytes) -> Result<Json> {
    let entry = decode_entry(seq, body)?;
    let opened = open(seq, body, body.len() as u64)?.map_err(|_| damaged("an entry is cut off"))?;
    let h = &opened.header;
    let pages = entry.pages.iter().map(|at| page(body, at)).collect::<Result<Vec<_>>>()?;
    let sections: Vec<Json> = entry.txs.iter().zip(&entry.ops).map(|(tx, ops)| transaction(tx, ops)).collect();
    let ring: Vec<Json> =
        entry.state.ring.entries.iter().map(|tags| json!(tags.iter().map(|t| hex(t)).collect::<Vec<_>>())).collect();
    Ok(json!({
        "kind": "entry",
        "bytes": body.len(),
        "hash": hex(&entry.state.hash),
        "header": {
            "seq": h.seq, "ledger": h.ledger, "prev": hex(&h.prev), "entry": h.entry, "clone": h.clone,
            "instance": h.instance, "time": h.time, "minReader": h.min_reader, "minWriter": h.min_writer,
        },
        "root": root(&h.root),
        "ring": ring,
        "transactions": sections,
        "pages": pages,
    }))
}

fn staged(body: &Bytes) -> Result<Json> {
    let group: Vec<Json> = decode_group(body)?
        .iter()
        .map(|staged| {
            json!({
                "base": staged.base, "ledger": staged.ledger,
                "transaction": transaction(&staged.section.head, &staged.ops),
            })
        })
        .collect();
    Ok(json!({"kind": "staged", "bytes": body.len(), "group": group}))
}

fn pack(body: &Bytes) -> Result<Json> {
    let index = decode_pack(body)?;
    let blocks: Vec<Json> = index
        .blocks
        .iter()
        .map(|block| {
            let contents: Vec<Json> = block
                .contents
                .iter()
                .map(|(sub, size, hash)| json!({"sub": sub, "size": size, "hash": hash}))
                .collect();
            json!({"off": block.off, "len": block.len, "contents": contents})
        })
        .collect();
    let pages = index.pages.iter().map(|at| page(body, at)).collect::<Result<Vec<_>>>()?;
    Ok(json!({
        "kind": "pack", "bytes": body.len(), "base": index.base, "id": index.id, "ledger": index.ledger,
        "blocks": blocks, "pages": pages,
    }))
}

fn root(root: &Root) -> Json {
    let pins: Map<String, Json> = root.pins.iter().map(|(name, seq)| (name.clone(), json!(seq))).collect();
    let unknown: Map<String, Json> =
        root.unknown.iter().map(|(key, value)| (key.to_string(), json!(hex(value)))).collect();
    json!({
        "directory": root.directory.as_ref().map(reference), "packs": root.packs.as_ref().map(reference), "pins": pins,
        "horizon": root.horizon, "floor": root.floor, "keep": root.keep, "minlog": root.minlog, "units": root.units,
        "files": root.files, "bytes": root.bytes, "setsum": hex(&root.setsum),
        "checkpoint": root.checkpoint.as_ref().map(reference), "checkpointed": root.checkpointed,
        "collected": root.collected, "tail": root.tail, "moved": root.moved, "unknown": unknown,
    })
}

fn transaction(tx: &TxHead, ops: &[UnitOps]) -> Json {
    let units: Vec<Json> = tx
        .units
        .iter()
        .map(|unit| {
            let mut json = unit_row(&unit.row);
            if let Json::Object(map) = &mut json {
                if unit.row.last_seq == OWN_SEQ {
                    map.insert("lastSeq".into(), Json::Null);
                }
                map.insert("unit".into(), json!(unit.unit));
                map.insert("expected".into(), json!(unit.expected));
                map.insert("planned".into(), json!(unit.planned.as_ref().map(reference)));
            }
            json
        })
        .collect();
    let packs: Vec<Json> =
        tx.packs.iter().map(|p| json!({"base": p.base, "id": p.id, "bytes": p.size, "metadata": p.pages})).collect();
    let outside: Vec<Json> = tx.ext_packs.iter().map(|(base, id)| json!({"base": base, "id": id})).collect();
    let ops: Vec<Json> = ops
        .iter()
        .map(|unit| json!({"unit": unit.unit, "ops": unit.ops.iter().map(operation).collect::<Vec<_>>()}))
        .collect();
    json!({
        "tx": tx.tx, "change": tx.change, "kind": tx.kind, "author": tx.author, "message": tx.message, "time": tx.time,
        "guard": tx.guard, "units": units, "packs": packs, "extLog": tx.ext_log, "extPacks": outside,
        "setsum": hex(&tx.setsum), "off": tx.off, "len": tx.len, "hash": hex(&tx.hash), "ops": ops,
    })
}

fn operation(op: &OpRecord) -> Json {
    match op {
        OpRecord::Put(path, rank, row) => {
            json!({"op": "put", "path": path, "rank": self::rank(*rank), "file": file(row)})
        }
        OpRecord::Delete(path) => json!({"op": "delete", "path": path}),
        OpRecord::Rank(path, rank) => json!({"op": "rank", "path": path, "rank": self::rank(*rank)}),
    }
}

fn page(body: &Bytes, at: &Ref) -> Result<Json> {
    let range = usize::try_from(at.off).ok().and_then(|off| Some(off..off.checked_add(at.len as usize)?));
    let record = range.filter(|range| range.end <= body.len()).map(|range| body.slice(range));
    let page = Page::decode(&record.ok_or_else(|| damaged("a page lies outside its object"))?, at)?;
    let tree = match page.kind {
        TreeKind::Directory => "directory",
        TreeKind::Table => "table",
        TreeKind::Packs => "packs",
    };
    let rows =
        page.rows.iter().map(|(key, value)| row(page.kind, page.level, key, value)).collect::<Result<Vec<_>>>()?;
    Ok(json!({"at": reference(at), "tree": tree, "level": page.level, "rows": rows}))
}

fn row(kind: TreeKind, level: u8, key: &[u8], value: &Value) -> Result<Json> {
    if level > 0 {
        return Ok(json!({"from": String::from_utf8_lossy(key), "child": value.at.as_ref().map(reference)}));
    }
    Ok(match kind {
        TreeKind::Directory => {
            let mut json = unit_row(&read_unit_value(value)?);
            if let Json::Object(map) = &mut json {
                map.insert("unit".into(), json!(read_unit_key(key)?));
            }
            json
        }
        TreeKind::Table => {
            let (rank, path, part) = read_table_key(key)?;
            let mut json = json!({"path": path, "rank": self::rank(rank), "file": file(&read_file_value(value)?)});
            if let (Some(part), Json::Object(map)) = (part, &mut json) {
                map.insert("part".into(), json!(part));
            }
            json
        }
        TreeKind::Packs => {
            let (dropped, base, id) = read_pack_key(key)?;
            let row = read_pack_value(value)?;
            json!({
                "base": base, "id": id, "dropped": dropped, "bytes": row.size, "live": row.live, "seq": row.seq,
                "metadata": row.metadata,
            })
        }
    })
}

fn unit_row(row: &UnitRow) -> Json {
    json!({
        "lastSeq": row.last_seq, "table": row.table.as_ref().map(reference), "files": row.files, "bytes": row.bytes,
    })
}

fn file(row: &FileRow) -> Json {
    let content = match &row.content {
        Content::Tiny(bytes) => json!({"tiny": hex(bytes)}),
        Content::At(at) => json!({"block": reference(&at.block), "sub": at.sub}),
        // In a table they have rows of their own.
        Content::Parts(parts) => {
            let part = |part: &Part| json!({"block": reference(&part.block), "size": part.size, "hash": part.hash});
            json!({"parts": parts.iter().map(part).collect::<Vec<_>>()})
        }
    };
    json!({"executable": row.executable, "size": row.size, "hash": row.hash, "content": content})
}

fn rank(rank: Rank) -> Json {
    match rank {
        Rank::Current => json!("current"),
        Rank::History(n) => json!({"history": n}),
    }
}

fn reference(at: &Ref) -> Json {
    match at.segment {
        // In a section that no entry holds yet.
        Segment::OWN => json!({"section": true, "off": at.off.cast_signed(), "len": at.len}),
        Segment::Log(seq) => json!({"log": seq, "off": at.off, "len": at.len}),
        Segment::Pack(base, id) => json!({"pack": id, "base": base, "off": at.off, "len": at.len}),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}
