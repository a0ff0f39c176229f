//! Headers: of an entry, of a transaction, and the root of a state.
//!
//! Entry: 0 seq · 1 ledger · 2 prev · 3 entry id · 4 clone · 5 instance · 6 time · 7 min reader · 8 min writer ·
//! 9 bytes of the ring · 10 bytes of the directory and pack-table pages · 11 transactions · 12 root.
//!
//! Transaction: 0 txid · 1 change · 2 kind · 3 author · 4 message · 5 time · 6 guard `[path, generation, nonce]` ·
//! 7 units `[name, expected, planned table, table, files, bytes]` · 8 bytes of the section · 9 hash of the section ·
//! 10 packs introduced `[base, id, size, of pages]` · 11 lowest log slot referred to · 12 packs referred to `[base, id]` ·
//! 13 setsum of the change. Nothing in it depends on the entry, so it can be staged and carried as it is.
//!
//! Root: 0 directory · 1 pack table · 2 pins `[name, seq]` · 3 horizon · 4 floor · 5 keep · 6 minlog · 7 units ·
//! 8 files · 9 bytes · 10 setsum · 11 checkpoint · 12 tail · 13 moved
//! `[url, namespace, ledger, last entry]`. Keys without a value are left out.

use bytes::Bytes;
use minicbor::Decoder;
use peat_types::{ChangeId, CloneId, EntryId, InstanceId, LedgerId, PackId, Result, RunNonce, Seq, Timestamp, TxId};

use super::cbor::{self, CRITICAL, Fields, bad};
use super::record;
use super::refs::Origin;
use super::row::{checked_path, checked_unit, read_setsum};
use super::{VERSION, damaged, unsupported};
use crate::model::{Guard, Moved, NewPack, Root, Segment, TxHead, TxKind, TxUnit, UnitRow};

/// Magic of every segment.
pub(crate) const MAGIC: &[u8; 8] = b"PEATSEG1";
/// Kind of a segment: log entry.
pub(crate) const KIND_ENTRY: u8 = 1;
/// Kind of a segment: staged transaction.
pub(crate) const KIND_STAGED: u8 = 2;
/// Kind of a segment: pack.
pub(crate) const KIND_PACK: u8 = 3;
/// Kind of a segment: a slot of the log that was purged. It holds nothing else.
pub(crate) const KIND_VOID: u8 = 4;
/// Bytes before the header: magic, kind, flags, length of the header.
pub(crate) const PREAMBLE: usize = 14;

/// Header of an entry. While it is written `txs` and `root` refer to own parts by [`Segment::OWN`]; after reading every
/// reference is resolved.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) seq: Seq,
    pub(crate) ledger: LedgerId,
    pub(crate) prev: [u8; 16],
    pub(crate) entry: EntryId,
    pub(crate) clone: CloneId,
    pub(crate) instance: InstanceId,
    pub(crate) time: Timestamp,
    pub(crate) min_reader: u32,
    pub(crate) min_writer: u32,
    pub(crate) ring_len: u64,
    pub(crate) pages_len: u64,
    pub(crate) txs: Vec<TxHead>,
    pub(crate) root: Root,
}

/// The bytes before a header record of `len` bytes.
pub(crate) fn preamble(kind: u8, len: usize) -> Result<Vec<u8>> {
    let len = u32::try_from(len).map_err(|_| peat_types::Error::invalid("a header is too long"))?;
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&[kind, 0]);
    out.extend_from_slice(&len.to_le_bytes());
    Ok(out)
}

/// What a slot holds that was purged: it is void, and stays taken until nobody relies on that.
pub fn void_slot() -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&[KIND_VOID, 0, 0, 0, 0, 0]);
    out
}

/// Length of the header record of a segment of `kind`; `None` when `bytes` are too few to tell.
pub(crate) fn header_len(bytes: &[u8], kind: u8) -> Result<Option<usize>> {
    let Some(start) = bytes.get(..PREAMBLE) else {
        let known = bytes.len().min(MAGIC.len());
        return if bytes[..known] == MAGIC[..known] { Ok(None) } else { Err(damaged("this is not a segment")) };
    };
    let mut r = super::varint::Reader::new(start);
    if r.array::<8>()? != *MAGIC {
        return Err(damaged("this is not a segment"));
    }
    let (found, flags) = (r.u8()?, r.u8()?);
    if found != kind {
        return Err(damaged(format!("this is a segment of kind {found}, not {kind}")));
    }
    if flags != 0 {
        return Err(unsupported(format!("segment flags {flags:#x}")));
    }
    let len = u64::from(r.u32le()?);
    if len > record::HEADER + 64 {
        return Err(damaged("a header is too long"));
    }
    Ok(Some(usize::try_from(len).unwrap_or(usize::MAX)))
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut f = Fields::new();
        f.key(0).uint(self.seq.0);
        f.key(1).bytes(self.ledger.as_bytes());
        f.key(2).bytes(&self.prev);
        f.key(3).bytes(self.entry.as_bytes());
        f.key(4).bytes(self.clone.as_bytes());
        f.key(5).bytes(self.instance.as_bytes());
        f.key(6).int(self.time.as_millis());
        f.key(7).uint(u64::from(self.min_reader));
        f.key(8).uint(u64::from(self.min_writer));
        f.key(9).uint(self.ring_len);
        f.key(10).uint(self.pages_len);
        let txs = f.key(11).array(self.txs.len());
        for tx in &self.txs {
            txs.raw(&encode_tx(tx));
        }
        f.key(12).raw(&encode_root(&self.root));
        f.into_bytes()
    }

    /// Decodes the unpacked header of the entry at `seq`; `start` is where the header record ends in the object.
    pub(crate) fn decode(raw: &Bytes, seq: Seq, start: u64) -> Result<Self> {
        let mut d = Decoder::new(raw);
        let (mut found, mut ledger, mut prev, mut entry) = (None, None, None, None);
        let (mut clone, mut instance, mut time) = ([0; 16], [0; 16], 0);
        let (mut min_reader, mut min_writer) = (None, None);
        let (mut ring_len, mut pages_len) = (0, 0);
        let (mut txs, mut root) = (Vec::new(), None);
        let segment = Segment::Log(seq);
        cbor::map(&mut d, |key, d| {
            match key {
                0 => found = Some(Seq(d.u64().map_err(bad)?)),
                1 => ledger = Some(LedgerId::from_bytes(cbor::fixed(d)?)),
                2 => prev = Some(cbor::fixed(d)?),
                3 => entry = Some(EntryId::from_bytes(cbor::fixed(d)?)),
                4 => clone = cbor::fixed(d)?,
                5 => instance = cbor::fixed(d)?,
                6 => time = d.i64().map_err(bad)?,
                7 => {
                    let version = d.u32().map_err(bad)?;
                    if version > VERSION {
                        return Err(unsupported(format!("an entry for readers of version {version}")));
                    }
                    min_reader = Some(version);
                }
                8 => min_writer = Some(d.u32().map_err(bad)?),
                9 => ring_len = d.u64().map_err(bad)?,
                10 => pages_len = d.u64().map_err(bad)?,
                11 => {
                    let mut off = origin(start, ring_len, pages_len)?;
                    txs = cbor::list(d, |d| {
                        let tx = decode_tx(d, seq, off)?;
                        off = tx.off.checked_add(tx.len).ok_or_else(|| damaged("a section is too long"))?;
                        Ok(tx)
                    })?;
                }
                12 => {
                    let off = origin(start, ring_len, pages_len)?;
                    root = Some(decode_root(d, Some(&Origin { segment, off }))?);
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if d.position() != raw.len() {
            return Err(damaged("bytes follow a header"));
        }
        let missing = || damaged("a header is not complete");
        let found = found.ok_or_else(missing)?;
        if found != seq {
            return Err(damaged(format!("slot {seq} holds entry {found}")));
        }
        Ok(Self {
            seq,
            ledger: ledger.ok_or_else(missing)?,
            prev: prev.ok_or_else(missing)?,
            entry: entry.ok_or_else(missing)?,
            clone: CloneId::from_bytes(clone),
            instance: InstanceId::from_bytes(instance),
            time: Timestamp::from_millis(time),
            min_reader: min_reader.ok_or_else(missing)?,
            min_writer: min_writer.ok_or_else(missing)?,
            ring_len,
            pages_len,
            txs,
            root: root.ok_or_else(missing)?,
        })
    }
}

fn origin(start: u64, ring: u64, pages: u64) -> Result<u64> {
    let end = start.checked_add(ring).and_then(|end| end.checked_add(pages));
    end.ok_or_else(|| damaged("the parts of an entry are too long"))
}

fn kind_code(kind: TxKind) -> u64 {
    match kind {
        TxKind::Genesis => 0,
        TxKind::Change => 1,
        TxKind::Start => 2,
        TxKind::End => 3,
        TxKind::Abort => 4,
        TxKind::Moved => 5,
        TxKind::Checkpoint => 6,
        TxKind::Gc => 7,
        TxKind::Pin => 8,
    }
}

fn read_kind(code: u64) -> Result<TxKind> {
    Ok(match code {
        0 => TxKind::Genesis,
        1 => TxKind::Change,
        2 => TxKind::Start,
        3 => TxKind::End,
        4 => TxKind::Abort,
        5 => TxKind::Moved,
        6 => TxKind::Checkpoint,
        7 => TxKind::Gc,
        8 => TxKind::Pin,
        _ => return Err(unsupported(format!("transaction kind {code}"))),
    })
}

pub(crate) fn encode_tx(tx: &TxHead) -> Vec<u8> {
    let mut f = Fields::new();
    f.key(0).bytes(tx.tx.as_bytes());
    f.key(1).bytes(tx.change.as_bytes());
    f.key(2).uint(kind_code(tx.kind));
    f.key(3).str(&tx.author);
    f.key(4).str(&tx.message);
    f.key(5).int(tx.time.as_millis());
    if let Some(guard) = &tx.guard {
        f.key(6).array(3).str(guard.path.as_str()).uint(guard.generation).bytes(guard.nonce.as_bytes());
    }
    let units = f.key(7).array(tx.units.len());
    for TxUnit { unit, expected, planned, row } in &tx.units {
        units.array(6).str(unit.as_str()).seq(*expected).reference(planned.as_ref()).reference(row.table.as_ref());
        units.uint(row.files).uint(row.bytes);
    }
    f.key(8).uint(tx.len);
    f.key(9).bytes(&tx.hash);
    if !tx.packs.is_empty() {
        let packs = f.key(10).array(tx.packs.len());
        for NewPack { base, id, size, pages } in &tx.packs {
            packs.array(3 + usize::from(*pages)).uint(base.0).bytes(id.as_bytes()).uint(*size);
            if *pages {
                packs.uint(1);
            }
        }
    }
    if let Some(low) = tx.ext_log {
        f.key(11).uint(low.0);
    }
    if !tx.ext_packs.is_empty() {
        let packs = f.key(12).array(tx.ext_packs.len());
        for (base, id) in &tx.ext_packs {
            packs.array(2).uint(base.0).bytes(id.as_bytes());
        }
    }
    f.key(13).bytes(&tx.setsum);
    f.into_bytes()
}

/// Decodes a transaction head of the entry `seq` whose section starts at `off`.
pub(crate) fn decode_tx(d: &mut Decoder<'_>, seq: Seq, off: u64) -> Result<TxHead> {
    let origin = Origin { segment: Segment::Log(seq), off };
    let (mut tx, mut change, mut kind, mut guard) = (None, None, None, None);
    let (mut author, mut message, mut time) = (String::new(), String::new(), 0);
    let (mut units, mut packs, mut ext_log, mut ext_packs) = (Vec::new(), Vec::new(), None, Vec::new());
    let (mut len, mut hash, mut setsum) = (None, None, None);
    cbor::map(d, |key, d| {
        match key {
            0 => tx = Some(TxId::from_bytes(cbor::fixed(d)?)),
            1 => change = Some(ChangeId::from_bytes(cbor::fixed(d)?)),
            2 => kind = Some(read_kind(d.u64().map_err(bad)?)?),
            3 => d.str().map_err(bad)?.clone_into(&mut author),
            4 => d.str().map_err(bad)?.clone_into(&mut message),
            5 => time = d.i64().map_err(bad)?,
            6 => {
                let more = cbor::tuple(d, 3)?;
                let path = checked_path(d.str().map_err(bad)?)?;
                let generation = d.u64().map_err(bad)?;
                guard = Some(Guard { path, generation, nonce: RunNonce::from_bytes(cbor::fixed(d)?) });
                cbor::skip(d, more)?;
            }
            7 => {
                units = cbor::list(d, |d| {
                    let more = cbor::tuple(d, 6)?;
                    let unit = checked_unit(d.str().map_err(bad)?)?;
                    let expected = cbor::seq(d)?;
                    let planned = cbor::reference(d, None)?;
                    let table = cbor::reference(d, Some(&origin))?;
                    let (files, bytes) = (d.u64().map_err(bad)?, d.u64().map_err(bad)?);
                    cbor::skip(d, more)?;
                    Ok(TxUnit { unit, expected, planned, row: UnitRow { last_seq: seq, table, files, bytes } })
                })?;
            }
            8 => len = Some(d.u64().map_err(bad)?),
            9 => hash = Some(cbor::fixed(d)?),
            10 => {
                packs = cbor::list(d, |d| {
                    let more = cbor::tuple(d, 3)?;
                    let (base, id) = (Seq(d.u64().map_err(bad)?), PackId::from_bytes(cbor::fixed(d)?));
                    let size = d.u64().map_err(bad)?;
                    let pages = more > 0 && d.u8().map_err(bad)? == 1;
                    cbor::skip(d, more.saturating_sub(1))?;
                    Ok(NewPack { base, id, size, pages })
                })?;
            }
            11 => ext_log = Some(Seq(d.u64().map_err(bad)?)),
            12 => {
                ext_packs = cbor::list(d, |d| {
                    let more = cbor::tuple(d, 2)?;
                    let pack = (Seq(d.u64().map_err(bad)?), PackId::from_bytes(cbor::fixed(d)?));
                    cbor::skip(d, more)?;
                    Ok(pack)
                })?;
            }
            13 => setsum = Some(read_setsum(cbor::fixed(d)?)?.digest()),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let missing = || damaged("a transaction head is not complete");
    if units.windows(2).any(|pair| pair[0].unit >= pair[1].unit) {
        return Err(damaged("the units of a transaction are not in order"));
    }
    Ok(TxHead {
        tx: tx.ok_or_else(missing)?,
        change: change.ok_or_else(missing)?,
        kind: kind.ok_or_else(missing)?,
        author,
        message,
        time: Timestamp::from_millis(time),
        guard,
        units,
        packs,
        ext_log,
        ext_packs,
        setsum: setsum.ok_or_else(missing)?,
        off,
        len: len.ok_or_else(missing)?,
        hash: hash.ok_or_else(missing)?,
    })
}

pub(crate) fn encode_root(root: &Root) -> Vec<u8> {
    let mut f = Fields::new();
    if root.directory.is_some() {
        f.key(0).reference(root.directory.as_ref());
    }
    if root.packs.is_some() {
        f.key(1).reference(root.packs.as_ref());
    }
    if !root.pins.is_empty() {
        let pins = f.key(2).array(root.pins.len());
        for (name, seq) in &root.pins {
            pins.array(2).str(name).uint(seq.0);
        }
    }
    let numbers = [root.horizon.0, root.floor.0, root.keep.0, root.minlog.0, root.units, root.files, root.bytes];
    for (key, number) in (3..).zip(numbers) {
        f.key(key).uint(number);
    }
    f.key(10).bytes(&root.setsum);
    if root.checkpoint.is_some() {
        f.key(11).reference(root.checkpoint.as_ref());
    }
    if root.tail > 0 {
        f.key(12).uint(root.tail);
    }
    if let Some(Moved { url, namespace, ledger, upto, endpoint }) = &root.moved {
        let fields = 4 + usize::from(endpoint.is_some());
        let list = f.key(13).array(fields).str(url).str(namespace.as_str()).bytes(ledger.as_bytes()).uint(upto.0);
        if let Some(endpoint) = endpoint {
            list.str(endpoint);
        }
    }
    for (key, done) in [(14, root.checkpointed), (15, root.collected)] {
        if let Some((seq, time)) = done {
            f.key(key).array(2).uint(seq.0).int(time.as_millis());
        }
    }
    for (key, value) in &root.unknown {
        f.key(*key).raw(value);
    }
    f.into_bytes()
}

/// An entry and its time.
fn done(d: &mut Decoder<'_>) -> Result<(Seq, Timestamp)> {
    let more = cbor::tuple(d, 2)?;
    let done = (Seq(d.u64().map_err(bad)?), Timestamp::from_millis(d.i64().map_err(bad)?));
    cbor::skip(d, more)?;
    Ok(done)
}

pub(crate) fn decode_root(d: &mut Decoder<'_>, origin: Option<&Origin>) -> Result<Root> {
    let (mut directory, mut packs, mut checkpoint, mut pins) = (None, None, None, Vec::new());
    let mut numbers = [None; 7];
    let (mut setsum, mut tail, mut moved) = (None, 0, None);
    let (mut checkpointed, mut collected) = (None, None);
    let mut unknown = Vec::new();
    cbor::map(d, |key, d| {
        match key {
            0 => directory = cbor::reference(d, origin)?,
            1 => packs = cbor::reference(d, origin)?,
            2 => {
                pins = cbor::list(d, |d| {
                    let more = cbor::tuple(d, 2)?;
                    let pin = (d.str().map_err(bad)?.to_owned(), Seq(d.u64().map_err(bad)?));
                    cbor::skip(d, more)?;
                    Ok(pin)
                })?;
            }
            3..=9 => numbers[key as usize - 3] = Some(d.u64().map_err(bad)?),
            10 => setsum = Some(read_setsum(cbor::fixed(d)?)?.digest()),
            11 => checkpoint = cbor::reference(d, origin)?,
            12 => tail = d.u64().map_err(bad)?,
            13 => moved = Some(decode_moved(d)?),
            14 => checkpointed = Some(done(d)?),
            15 => collected = Some(done(d)?),
            CRITICAL.. => return Ok(false),
            _ => {
                let start = d.position();
                d.skip().map_err(bad)?;
                let value = d.input().get(start..d.position()).unwrap_or_default();
                unknown.push((key, value.to_vec()));
            }
        }
        Ok(true)
    })?;
    let missing = || damaged("a root is not complete");
    let [Some(horizon), Some(floor), Some(keep), Some(minlog), Some(units), Some(files), Some(bytes)] = numbers else {
        return Err(missing());
    };
    Ok(Root {
        directory,
        packs,
        pins,
        horizon: Seq(horizon),
        floor: Seq(floor),
        keep: Seq(keep),
        minlog: Seq(minlog),
        units,
        files,
        bytes,
        setsum: setsum.ok_or_else(missing)?,
        checkpoint,
        checkpointed,
        collected,
        tail,
        moved,
        unknown,
    })
}

fn decode_moved(d: &mut Decoder<'_>) -> Result<Moved> {
    let more = cbor::tuple(d, 4)?;
    let url = d.str().map_err(bad)?.to_owned();
    let namespace = d.str().map_err(bad)?.parse().map_err(|_| damaged("a ledger went to no namespace"))?;
    let ledger = LedgerId::from_bytes(cbor::fixed(d)?);
    let upto = Seq(d.u64().map_err(bad)?);
    let endpoint = if more > 0 { Some(d.str().map_err(bad)?.to_owned()) } else { None };
    cbor::skip(d, more.saturating_sub(1))?;
    Ok(Moved { url, namespace, ledger, upto, endpoint })
}
