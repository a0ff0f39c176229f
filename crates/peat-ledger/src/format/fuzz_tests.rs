//! Decoders against bytes that are almost right: an error, never a panic, and never more memory than the limits say.

use std::sync::OnceLock;

use bytes::Bytes;
use peat_types::{Seq, Unit};
use proptest::prelude::*;

use super::page::Page;
use super::record::Pack;
use super::testing::*;
use super::*;
use crate::model::{Op, Rank, Segment};

/// Bytes of every kind this crate reads.
struct Samples {
    entry: Bytes,
    pack: Bytes,
    state: Bytes,
    row: Bytes,
    /// Payloads, to be mutated below their checksum.
    header: Bytes,
    ring: Bytes,
    page: Bytes,
    ops: Bytes,
    index: Bytes,
    pack_header: Bytes,
    staged: Bytes,
    staged_header: Bytes,
}

fn samples() -> &'static Samples {
    static SAMPLES: OnceLock<Samples> = OnceLock::new();
    SAMPLES.get_or_init(|| tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(make()))
}

async fn make() -> Samples {
    let mut log = Log::new();
    let unit = |n: u64| Unit::model(&uuid(n)).unwrap();
    for n in 0..60 {
        let big = if n == 50 { 90_000 } else { 90 };
        let ops = vec![
            put(&format!("data/x/{n}/raw"), Rank::Current, None, id(n).repeat(big)),
            put("t", Rank::History(n), None, "t"),
        ];
        log.commit(vec![(unit(n % 20), ops)]).await.unwrap();
    }
    let ops = vec![
        put("data/y", Rank::Current, None, b"hello ".repeat(30)),
        Op::Delete { path: path("data/x/1/raw"), rank: Rank::Current },
        Op::Rank { path: path("data/x/21/raw"), from: Rank::Current, to: Rank::History(2) },
    ];
    let draft = log.draft(crate::TxKind::Change, vec![(unit(1), ops.clone())]).await;
    let staged = encode_staged(info().ledger, log.state.seq.next(), &log.plan(&draft).await.unwrap()).unwrap();
    let staged_end = header::PREAMBLE + header::header_len(&staged, header::KIND_STAGED).unwrap().unwrap();
    let entry = log.commit(vec![(unit(1), ops)]).await.unwrap();
    let seq = log.state.seq;
    let opened = decode::open(seq, &entry, entry.len() as u64).unwrap().unwrap();
    let tx = &opened.header.txs[0];
    let start = usize::try_from(tx.off).unwrap();
    let blocks = u32::from_le_bytes(entry[start..start + 4].try_into().unwrap()) as usize;
    let ops_at = start + 4 + blocks;
    let ops_len = record::length(&entry[ops_at..], record::OPS).unwrap();
    let ring_len = usize::try_from(opened.header.ring_len).unwrap();
    let (_, row) = log.table(&unit(1)).await.into_iter().map(|row| (row.0, row.2)).next().unwrap();
    let pack = log.objects.all.iter().find(|(segment, _)| matches!(segment, Segment::Pack(..))).unwrap().1.clone();
    let index_len = u32::from_le_bytes(pack[pack.len() - 12..pack.len() - 8].try_into().unwrap()) as usize;
    let index = pack.slice(pack.len() - 12 - index_len..pack.len() - 12);
    let pack_header = header::header_len(&pack, header::KIND_PACK).unwrap().unwrap();
    let page_at = log.state.root.directory.unwrap();
    Samples {
        header: record::open(&entry.slice(header::PREAMBLE..opened.pages - ring_len), record::HEADER).unwrap(),
        ring: record::open(&entry.slice(opened.pages - ring_len..opened.pages), record::RING).unwrap(),
        page: record::open(&log.objects.bytes(&page_at).unwrap(), record::PAGE).unwrap(),
        ops: record::open(&entry.slice(ops_at..ops_at + ops_len), record::OPS).unwrap(),
        index: record::open(&index, record::INDEX).unwrap(),
        pack_header: record::open(&pack.slice(14..14 + pack_header), record::HEADER).unwrap(),
        staged_header: record::open(&staged.slice(header::PREAMBLE..staged_end), record::HEADER).unwrap(),
        staged,
        state: encode_state(&log.state).into(),
        row: encode_row(&row).into(),
        entry,
        pack,
    }
}

#[derive(Clone, Debug)]
enum Change {
    Flip(prop::sample::Index, u8),
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    /// Copies a piece of the bytes over another place.
    Splice(prop::sample::Index, prop::sample::Index, usize),
    /// A number as large as it gets, where numbers are likely.
    Huge(prop::sample::Index),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    use prop::sample::Index;
    let change = prop_oneof![
        (any::<Index>(), 0..8u8).prop_map(|(i, bit)| Change::Flip(i, bit)),
        (any::<Index>(), any::<u8>()).prop_map(|(i, byte)| Change::Set(i, byte)),
        any::<Index>().prop_map(Change::Cut),
        (any::<Index>(), prop::collection::vec(any::<u8>(), 1..20)).prop_map(|(i, bytes)| Change::Insert(i, bytes)),
        (any::<Index>(), 1..40usize).prop_map(|(i, n)| Change::Remove(i, n)),
        (any::<Index>(), any::<Index>(), 1..60usize).prop_map(|(a, b, n)| Change::Splice(a, b, n)),
        any::<Index>().prop_map(Change::Huge),
    ];
    prop::collection::vec(change, 1..5)
}

fn mutate(bytes: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for change in changes {
        if out.is_empty() {
            break;
        }
        let len = out.len();
        match change {
            Change::Flip(i, bit) => out[i.index(len)] ^= 1 << bit,
            Change::Set(i, byte) => out[i.index(len)] = *byte,
            Change::Cut(i) => out.truncate(i.index(len)),
            Change::Insert(i, bytes) => drop(out.splice(i.index(len)..i.index(len), bytes.iter().copied())),
            Change::Remove(i, n) => drop(out.drain(i.index(len)..(i.index(len) + n).min(len))),
            Change::Splice(a, b, n) => {
                let piece = out[a.index(len)..(a.index(len) + n).min(len)].to_vec();
                let at = b.index(len);
                drop(out.splice(at..(at + piece.len()).min(len), piece));
            }
            Change::Huge(i) => drop(out.splice(i.index(len)..i.index(len), [0xff; 9].into_iter().chain([1]))),
        }
    }
    out
}

/// The payload as a record with a right checksum, so that what lies below it is reached.
fn sealed(payload: &[u8]) -> Bytes {
    record::encode(payload, Pack::Raw, record::BLOCK).unwrap().into()
}

fn at() -> Ref {
    Ref { segment: Segment::Log(Seq(61)), off: 5000, len: 900 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn mutated_objects_are_errors(changes in changes()) {
        let s = samples();
        let entry = Bytes::from(mutate(&s.entry, &changes));
        if entry != s.entry {
            // The hash of sections and the CRC of all else leave no byte out but those of the preamble's own fields,
            // and these are compared.
            prop_assert!(decode_entry(Seq(61), &entry).is_err());
            prop_assert!(to_json(Some(Seq(61)), &entry).is_err());
        }
        let prefix = entry.slice(..entry.len().min(1000));
        drop(decode_prefix(Seq(61), &prefix, s.entry.len() as u64));
        let pack = Bytes::from(mutate(&s.pack, &changes));
        if pack != s.pack {
            prop_assert!(decode_pack(&pack).is_err());
        }
        let staged = Bytes::from(mutate(&s.staged, &changes));
        if staged != s.staged {
            prop_assert!(decode_staged(&staged).is_err());
            prop_assert!(to_json(None, &staged).is_err());
        }
        drop(decode_state(&mutate(&s.state, &changes)));
        drop(decode_row(&mutate(&s.row, &changes)));
    }

    #[test]
    fn mutated_payloads_below_a_right_checksum_never_panic(changes in changes()) {
        let s = samples();
        drop(header::Header::decode(&mutate(&s.header, &changes).into(), Seq(61), 800));
        drop(ring::decode(&sealed(&mutate(&s.ring, &changes))));
        let page = sealed(&mutate(&s.page, &changes));
        if let Ok(page) = Page::decode(&page, &at()) {
            for (key, value) in &page.rows {
                drop(row::check_row(page.kind, key, value));
            }
            // What was accepted can be written again.
            let mut sink = page::PageSink::prepend();
            prop_assert!(sink.write(&page).is_ok());
        }
        drop(page_children(&page, &at()));
        let origin = refs::Origin { segment: Segment::Log(Seq(61)), off: 4000 };
        drop(ops::decode(&sealed(&mutate(&s.ops, &changes)), &origin));
        // A pack put together again around a mutated index and header.
        let (index, head) = (sealed(&mutate(&s.index, &changes)), sealed(&mutate(&s.pack_header, &changes)));
        let mut pack = header::preamble(header::KIND_PACK, head.len()).unwrap();
        pack.extend_from_slice(&head);
        pack.extend_from_slice(&index);
        pack.extend_from_slice(&u32::try_from(index.len()).unwrap().to_le_bytes());
        pack.extend_from_slice(b"PEATEND1");
        drop(decode_pack(&pack.into()));
        // A staged transaction around a mutated header; what is accepted is written again as it was.
        let head = sealed(&mutate(&s.staged_header, &changes));
        let mut staged = header::preamble(header::KIND_STAGED, head.len()).unwrap();
        staged.extend_from_slice(&head);
        let old = header::PREAMBLE + header::header_len(&s.staged, header::KIND_STAGED).unwrap().unwrap();
        staged.extend_from_slice(&s.staged[old..]);
        if let Ok(read) = decode_staged(&staged.into()) {
            let again = encode_staged(read.ledger, read.base, &read.section).unwrap();
            prop_assert_eq!(decode_staged(&again).unwrap().section.head, read.section.head);
        }
    }

    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let noise = Bytes::from(bytes);
        drop(decode_state(&noise));
        drop(decode_row(&noise));
        drop(ring::decode(&sealed(&noise)));
        drop(Page::decode(&sealed(&noise), &at()));
        drop(header::Header::decode(&noise, Seq(61), 800));
        drop(open_block(&noise));
        let mut entry = header::preamble(header::KIND_ENTRY, noise.len()).unwrap();
        entry.extend_from_slice(&noise);
        drop(decode_entry(Seq(61), &entry.into()));
        let mut staged = header::preamble(header::KIND_STAGED, noise.len()).unwrap();
        staged.extend_from_slice(&noise);
        drop(decode_staged(&staged.into()));
    }

    /// A zstd frame that claims or unpacks to more than it may costs no more than the limit.
    #[test]
    fn claims_about_length_are_not_believed(claim: u64, real in 0..2_000_000usize) {
        let packed = zstd::bulk::compress(&vec![0; real], 1).unwrap();
        let mut record = vec![1, 0];
        varint::put_varint(&mut record, claim);
        varint::put_bytes(&mut record, &packed);
        let crc = crc32c::crc32c(&record).to_le_bytes();
        record.extend_from_slice(&crc);
        let record = Bytes::from(record);
        for limit in [record::PAGE, record::BLOCK] {
            match record::open(&record, limit) {
                Ok(raw) => prop_assert!(raw.len() as u64 == claim && claim <= limit),
                Err(e) => prop_assert_eq!(e.kind(), Kind::Damaged),
            }
        }
    }
}

#[test]
fn every_cut_of_an_entry_is_an_error_and_tells_what_is_needed() {
    let s = samples();
    let size = s.entry.len() as u64;
    let mut known = None;
    for end in 0..s.entry.len() {
        assert!(decode_entry(Seq(61), &s.entry.slice(..end)).is_err());
        match decode_prefix(Seq(61), &s.entry.slice(..end), size).unwrap() {
            Err(needed) => assert!(needed > end as u64 && known.is_none()),
            Ok((state, ..)) => assert_eq!(known.get_or_insert_with(|| state.clone()).root, state.root),
        }
    }
    assert!(known.is_some());
    // Asking for what is needed gets there in a few steps.
    let mut have = 0;
    for _ in 0..3 {
        if let Err(needed) = decode_prefix(Seq(61), &s.entry.slice(..have), size).unwrap() {
            have = usize::try_from(needed).unwrap();
        }
    }
    assert!(decode_prefix(Seq(61), &s.entry.slice(..have), size).unwrap().is_ok());
}
