//! Staged transactions: carried byte for byte, or not at all.

use bytes::Bytes;
use peat_types::{EntryId, LedgerId, Seq, Unit};

use super::cbor::Fields;
use super::header::{KIND_STAGED, encode_tx, preamble};
use super::record::Pack;
use super::testing::*;
use super::*;
use crate::model::{Guard, Op, Rank, TxKind};

fn unit(n: u64) -> Unit {
    Unit::model(&uuid(n)).unwrap()
}

/// A ledger of one entry, and a section planned on it.
async fn planned() -> (Log, Section) {
    let mut log = Log::new();
    let ops = vec![put("a", Rank::Current, None, "1".repeat(200)), put("b", Rank::Current, None, "2")];
    log.commit(vec![(unit(1), ops), (unit(2), Vec::new())]).await.unwrap();
    let ops = vec![
        put("a", Rank::Current, Some(Rank::Current), b"0123456789".repeat(9)),
        Op::Rank { path: path("b"), from: Rank::Current, to: Rank::History(1) },
    ];
    let mut draft = log.draft(TxKind::Start, vec![(unit(1), ops), (unit(2), Vec::new())]).await;
    let nonce = peat_types::RunNonce::from_bytes(id(71));
    draft.guard = Some(Guard { path: path("leases/model"), generation: 3, nonce });
    let section = log.plan(&draft).await.unwrap();
    (log, section)
}

fn staged(section: &Section) -> Bytes {
    encode_staged(info().ledger, Seq(2), section).unwrap()
}

#[tokio::test]
async fn an_entry_is_the_same_whether_its_section_was_staged_or_not() {
    let (mut log, section) = planned().await;
    let read = decode_staged(&staged(&section)).unwrap();
    assert_eq!((read.base, read.ledger, read.ops.len()), (Seq(2), info().ledger, 2));
    assert_eq!(check(&read.section, &log.state, &log.objects).await.unwrap(), None);
    let (state, ids) = (log.state.clone(), log.next_id());
    let build = async |section: Section| {
        let (entry, writer) = (EntryId::from_bytes(ids), log.writer());
        build_entry(&state, &[section], entry, writer, &log.info.params, &log.objects).await.unwrap().0
    };
    assert_eq!(build(section).await, build(read.section).await);
}

#[tokio::test]
async fn every_cut_of_a_staged_transaction_is_an_error() {
    let (_, section) = planned().await;
    let body = staged(&section);
    for end in 0..body.len() {
        assert!(decode_staged(&body.slice(..end)).is_err(), "{end} bytes");
    }
    let longer = [&body[..], b"x"].concat();
    assert!(decode_staged(&longer.into()).is_err());
}

#[tokio::test]
async fn a_group_is_read_whole_or_not_at_all_and_each_stands_for_itself() {
    let (mut log, section) = planned().await;
    let draft = log.draft(TxKind::Change, vec![(unit(3), Vec::new())]).await;
    let other = log.plan(&draft).await.unwrap();
    let alone = [staged(&section), encode_staged(info().ledger, Seq(1), &other).unwrap()];
    let body = Bytes::from(alone.concat());
    let group = decode_group(&body).unwrap();
    assert_eq!(group.iter().map(|staged| staged.base).collect::<Vec<_>>(), [Seq(2), Seq(1)]);
    for (read, alone) in group.iter().zip(&alone) {
        assert_eq!(&encode_staged(read.ledger, read.base, &read.section).unwrap(), alone);
    }
    assert!(decode_staged(&body).is_err(), "two are not one");
    for end in 0..body.len() {
        let cut = decode_group(&body.slice(..end));
        assert_eq!(cut.is_ok(), end == alone[0].len(), "{end} bytes");
    }
}

fn around(head: &[u8], section: &Section, version: u64) -> Bytes {
    let mut f = Fields::new();
    f.key(0).uint(2);
    f.key(1).bytes(LedgerId::from_bytes([7; 16]).as_bytes());
    f.key(2).uint(version);
    f.key(3).raw(head);
    let header = record::encode(&f.into_bytes(), Pack::Zstd, record::HEADER).unwrap();
    let mut out = preamble(KIND_STAGED, header.len()).unwrap();
    out.extend_from_slice(&header);
    out.extend_from_slice(&section.bytes);
    out.into()
}

#[tokio::test]
async fn what_could_not_be_carried_unchanged_is_refused() {
    let (_, mut section) = planned().await;
    let head = encode_tx(&section.head);
    assert!(decode_staged(&around(&head, &section, 1)).is_ok());
    assert_eq!(
        decode_staged(&around(&head, &section, u64::from(VERSION) + 1)).unwrap_err().code(),
        "unsupported_version"
    );
    // A field more, which this version may ignore when it reads but must not lose when it writes.
    let mut more = head.clone();
    assert_eq!(more[0] & 0xe0, 0xa0, "a short map");
    more[0] += 1;
    more.extend_from_slice(&[0x18, 99, 0xf6]);
    assert_eq!(decode_staged(&around(&more, &section, 1)).unwrap_err().code(), "unsupported_version");
    // Nothing would keep these from being committed twice.
    section.head.units.clear();
    assert!(decode_staged(&around(&encode_tx(&section.head), &section, 1)).is_err());
}

#[tokio::test]
async fn golden_bytes_of_a_staged_transaction() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/staged-v1.bin");
    let (_, section) = planned().await;
    let built = staged(&section);
    #[allow(clippy::disallowed_methods)] // a switch of this test, not of Peat
    if std::env::var_os("PEAT_WRITE_FIXTURES").is_some() {
        std::fs::write(path, &built).unwrap();
    }
    let fixture = Bytes::from(std::fs::read(path).unwrap());
    // What the fixture says must never change; these lines may only be added to.
    let read = decode_staged(&fixture).unwrap();
    assert_eq!((read.base, read.section.head.kind), (Seq(2), TxKind::Start));
    assert_eq!(read.section.head.guard.as_ref().unwrap().generation, 3);
    assert_eq!(read.section.head.units[0].expected, Some(Seq(1)));
    assert_eq!(read.ops[0].ops.len() + read.ops[1].ops.len(), 2);
    let json = to_json(None, &fixture).unwrap();
    let first = &json["group"][0];
    assert_eq!((&json["kind"], &first["base"]), (&"staged".into(), &2.into()));
    assert_eq!(first["transaction"]["units"][0]["lastSeq"], serde_json::Value::Null);
    assert_eq!(fixture, built, "the bytes of a staged transaction changed: is that meant, and is it in the design?");
}
