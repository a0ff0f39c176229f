//! Small parts: numbers, records, references, rows, the ring.

use bytes::Bytes;
use peat_types::{Hash, PackId, Seq, Unit};
use proptest::prelude::*;

use super::record::Pack;
use super::refs::{Origin, Value, put_ref, read_ref};
use super::testing::*;
use super::varint::{Reader, put_varint, unzigzag, zigzag};
use super::*;
use crate::model::{Content, ContentRef, FileRow, Part, Rank, Ring, Segment};

fn segments() -> impl Strategy<Value = Segment> {
    prop_oneof![
        (0..u64::MAX).prop_map(|seq| Segment::Log(Seq(seq))),
        (any::<u64>(), any::<[u8; 16]>()).prop_map(|(base, id)| Segment::Pack(Seq(base), PackId::from_bytes(id))),
    ]
}

fn refs() -> impl Strategy<Value = Ref> {
    (segments(), 0..u64::MAX / 2, any::<u32>()).prop_map(|(segment, off, len)| Ref { segment, off, len })
}

fn rows() -> impl Strategy<Value = FileRow> {
    let tiny =
        prop::collection::vec(any::<u8>(), 0..65).prop_map(|bytes| (bytes.len() as u64, Content::Tiny(bytes.into())));
    let at = (any::<u64>(), refs(), any::<u32>())
        .prop_map(|(size, block, sub)| (size, Content::At(ContentRef { block, sub })));
    let part = (any::<u32>(), refs(), any::<[u8; 32]>(), any::<[u8; 16]>()).prop_map(|(size, at, hash, id)| {
        let block = Ref { segment: Segment::Pack(Seq(at.off), PackId::from_bytes(id)), ..at };
        Part { block, size: u64::from(size), hash: Hash::from_bytes(hash) }
    });
    let parts = prop::collection::vec(part, 2..5)
        .prop_map(|parts| (parts.iter().map(|part| part.size).sum(), Content::Parts(parts.into())));
    (any::<bool>(), any::<[u8; 32]>(), prop_oneof![tiny, at, parts]).prop_map(|(executable, hash, (size, content))| {
        FileRow { executable, size, hash: Hash::from_bytes(hash), content }
    })
}

proptest! {
    #[test]
    fn numbers_round_trip(n: u64, i: i64) {
        let mut out = Vec::new();
        put_varint(&mut out, n);
        let mut r = Reader::new(&out);
        prop_assert_eq!(r.varint().unwrap(), n);
        prop_assert!(r.is_empty());
        prop_assert_eq!(unzigzag(zigzag(i)), i);
    }

    #[test]
    fn a_number_has_one_form(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
        let mut r = Reader::new(&bytes);
        if let Ok(n) = r.varint() {
            let mut out = Vec::new();
            put_varint(&mut out, n);
            prop_assert_eq!(&out, &bytes[..r.pos()]);
        }
    }

    #[test]
    fn records_round_trip(raw in prop::collection::vec(any::<u8>(), 0..300), times in 1..40usize, raw_only: bool) {
        let raw = raw.repeat(times);
        let pack = if raw_only { Pack::Raw } else { Pack::Zstd };
        let record = Bytes::from(record::encode(&raw, pack, record::PAGE).unwrap());
        prop_assert!(record.len() <= raw.len() + 16, "raw when not smaller");
        prop_assert_eq!(record::length(&[&record[..], b"more"].concat(), record::PAGE).unwrap(), record.len());
        prop_assert_eq!(record::open(&record, record::PAGE).unwrap(), raw);
    }

    #[test]
    fn refs_round_trip(at in refs()) {
        let mut out = Vec::new();
        put_ref(&mut out, &at);
        prop_assert_eq!(read_ref(&mut Reader::new(&out), None).unwrap(), at);
    }

    #[test]
    fn rows_round_trip(row in rows()) {
        prop_assert_eq!(decode_row(&encode_row(&row)).unwrap(), row);
    }

    #[test]
    fn ring_remembers_the_newest_change(changes in prop::collection::vec(prop::collection::vec(0..30u64, 0..4), 1..40), keep in 1..20u32) {
        let name = |n: u64| Unit::model(&uuid(n)).unwrap();
        let mut ring = Ring::default();
        for units in &changes {
            let units: Vec<Unit> = units.iter().map(|n| name(*n)).collect();
            ring = ring.push(&units, keep);
        }
        let head = Seq(changes.len() as u64 + 99);
        let kept = changes.len().min(keep as usize);
        prop_assert_eq!(ring.entries.len(), kept);
        for n in 0..30 {
            let back = changes.iter().rev().take(kept).position(|units| units.contains(&n));
            prop_assert_eq!(ring.newest(head, &name(n)), back.map(|back| Seq(head.0 - back as u64)));
        }
        prop_assert!(ring.covers(head, Seq(head.0 - kept as u64)));
        prop_assert!(!ring.covers(head, Seq(head.0 - kept as u64 - 1)));
        let bytes = Bytes::from(ring::encode(&ring, Pack::Zstd).unwrap());
        prop_assert_eq!(ring::decode(&bytes).unwrap(), ring);
    }
}

#[test]
fn own_references_count_from_their_origin() {
    let origin = Origin { segment: Segment::Log(Seq(7)), off: 1000 };
    for off in [-1000, -1, 0, 12] {
        let mut out = Vec::new();
        put_ref(&mut out, &refs::own(off, 5));
        let at = read_ref(&mut Reader::new(&out), Some(&origin)).unwrap();
        assert_eq!(at, Ref { segment: origin.segment, off: 1000u64.checked_add_signed(off).unwrap(), len: 5 });
        assert!(read_ref(&mut Reader::new(&out), None).is_err());
    }
    let mut out = Vec::new();
    put_ref(&mut out, &refs::own(-1001, 5));
    assert!(read_ref(&mut Reader::new(&out), Some(&origin)).is_err());
}

#[test]
fn a_record_larger_than_its_limit_is_refused_before_it_is_unpacked() {
    let bomb = Bytes::from(record::encode(&vec![0; 1 << 20], Pack::Zstd, record::BLOCK).unwrap());
    assert!(bomb.len() < 200);
    assert_eq!(record::open(&bomb, record::PAGE).unwrap_err().kind(), Kind::Damaged);
    assert!(record::encode(&vec![0; 1 << 20], Pack::Zstd, record::PAGE).is_err());
}

#[test]
fn a_record_of_a_newer_codec_or_with_a_key_is_unsupported() {
    for (at, value) in [(0, 2), (1, 1)] {
        let mut record = record::encode(b"x", Pack::Raw, record::PAGE).unwrap();
        record[at] = value;
        let end = record.len() - 4;
        let crc = crc32c::crc32c(&record[..end]).to_le_bytes();
        record[end..].copy_from_slice(&crc);
        let error = record::open(&record.into(), record::PAGE).unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Unsupported, "unsupported_version"));
    }
}

#[test]
fn unknown_row_flags_refuse_in_the_critical_half_and_unknown_bytes_are_kept() {
    let row =
        FileRow { executable: true, size: 2, hash: Hash::of(b"ab"), content: Content::Tiny(Bytes::from_static(b"ab")) };
    let mut value = row::file_value(&row);
    value.rest.extend_from_slice(b"from a newer version");
    value.flags |= 1 << 7;
    let bytes = value.encode();
    assert_eq!(Value::decode(&bytes, None).unwrap(), value, "kept");
    assert_eq!(decode_row(&bytes).unwrap(), row, "ignored");
    value.flags |= 1 << 9;
    assert_eq!(decode_row(&value.encode()).unwrap_err().code(), "unsupported_version");
}

#[test]
fn ranks_sort_current_first_then_the_newest_history() {
    let path = path("a");
    let keys: Vec<_> = [Rank::Current, Rank::History(u64::MAX), Rank::History(12), Rank::History(3), Rank::History(0)]
        .map(|rank| row::table_key(rank, &path))
        .into();
    assert!(keys.is_sorted());
    for (key, rank) in keys.iter().zip([Rank::Current, Rank::History(u64::MAX), Rank::History(12)]) {
        assert_eq!(row::read_table_key(key).unwrap(), (rank, path.clone(), None));
    }
}

#[test]
fn ring_of_an_entry_with_too_many_changes_is_empty_and_small_parameters_hold() {
    let units: Vec<Unit> = (0..1500).map(|n| Unit::model(&uuid(n)).unwrap()).collect();
    let ring = Ring::default().push(&units[..3], 512).push(&units, 512);
    assert!(ring.entries.is_empty());
    assert!(!ring.covers(Seq(2), Seq(1)));
    let ring = ring.push(&units[..1], 512);
    assert!(ring.covers(Seq(3), Seq(2)) && !ring.covers(Seq(3), Seq(1)));
    assert!(Ring::default().push(&units[..1], 0).entries.is_empty());
}

#[test]
fn p_paths_and_units_in_stored_keys_are_checked() {
    for bad in ["../x", "a//b", "/a", "con", "a.", "a\\b", ""] {
        let key = [&[0][..], bad.as_bytes()].concat();
        assert_eq!(row::read_table_key(&key).unwrap_err().kind(), Kind::Damaged, "{bad}");
        assert_eq!(row::read_unit_key(bad.as_bytes()).unwrap_err().kind(), Kind::Damaged, "{bad}");
    }
    // In operations and headers as well, however right their checksums are.
    let mut payload = vec![1];
    varint::put_bytes(&mut payload, b"model/x");
    payload.extend_from_slice(&[1, 2]);
    let origin = Origin { segment: Segment::Log(Seq(1)), off: 0 };
    for (bad, ok) in [("a/b", true), ("a/../b", false), ("A:/\u{1}", false)] {
        let mut payload = payload.clone();
        varint::put_bytes(&mut payload, bad.as_bytes());
        let record = record::encode(&payload, Pack::Raw, record::OPS).unwrap();
        assert_eq!(ops::decode(&record.into(), &origin).is_ok(), ok, "{bad}");
    }
    for (bad, ok) in [("model/x", true), ("model/../x", false)] {
        let mut unit = cbor::Out::new();
        unit.array(1).array(6).str(bad).null().null().null().uint(0).uint(0);
        let mut f = cbor::Fields::new();
        f.key(0).bytes(&[0; 16]);
        f.key(1).bytes(&[0; 16]);
        f.key(2).uint(1);
        f.key(7).raw(&unit.into_bytes());
        f.key(8).uint(0);
        f.key(9).bytes(&[0; 16]);
        f.key(13).bytes(&[0; 32]);
        let bytes = f.into_bytes();
        let tx = header::decode_tx(&mut minicbor::Decoder::new(&bytes), Seq(1), 0);
        assert_eq!(tx.is_ok(), ok, "{bad}: {tx:?}");
    }
    assert!(row::read_table_key(&[0, 0xff, 0xfe]).is_err());
    assert!(row::read_table_key(&[2, b'a']).is_err());
    assert!(row::read_table_key(&[]).is_err());
}

#[test]
fn a_setsum_that_is_not_reduced_is_refused() {
    assert!(row::read_setsum([0xff; 32]).is_err());
    assert!(
        row::read_setsum(
            setsum_of(
                &Unit::model("x").unwrap(),
                &path("a"),
                &FileRow { executable: false, size: 0, hash: Hash::of(b""), content: Content::Tiny(Bytes::new()) }
            )
            .digest()
        )
        .is_ok()
    );
}
