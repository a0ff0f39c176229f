//! Whole entries: what goes in comes out.

use std::collections::BTreeMap;

use bytes::Bytes;
use peat_types::{Kind, PackId, Seq, Unit};
use setsum::Setsum;

use super::testing::*;
use super::*;
use crate::Dead;
use crate::model::{Content, NewContent, Op, OpRecord, Rank, Segment, TxKind};

fn unit(n: u64) -> Unit {
    Unit::model(&uuid(n)).unwrap()
}

/// Contents of all units, read through directory, tables and blocks, and the counts and setsum of the root checked.
async fn read_all(log: &Log) -> BTreeMap<(String, String), Vec<u8>> {
    let mut out = BTreeMap::new();
    let (mut files, mut bytes, mut sum) = (0, 0, Setsum::default());
    let units = directory(&log.state, &log.objects).await.unwrap();
    for (unit, row) in &units {
        let table = table(row, &log.objects).await.unwrap();
        assert_eq!(row.files, table.len() as u64);
        assert_eq!(row.bytes, table.iter().map(|file| file.2.size).sum::<u64>());
        for (_, path, file) in table {
            sum += setsum_of(unit, &path, &file);
            files += 1;
            bytes += file.size;
            out.insert((unit.to_string(), path.to_string()), log.content(&file).to_vec());
        }
    }
    let root = &log.state.root;
    assert_eq!((root.units, root.files, root.bytes), (units.len() as u64, files, bytes));
    assert_eq!(root.setsum, sum.digest());
    out
}

#[tokio::test]
async fn an_entry_reads_back_as_it_was_built() {
    let mut log = Log::new();
    let big = vec![7u8; 100 << 10];
    let ops = vec![
        put("definition.yaml", Rank::Current, None, "name: x\n"),
        put("data/command/shell/result/1/raw", Rank::Current, None, b"hello world ".repeat(20)),
        put("data/command/shell/big/1/raw", Rank::Current, None, big.clone()),
        put("empty", Rank::Current, None, ""),
    ];
    let body = log.commit(vec![(unit(1), ops)]).await.unwrap();
    let entry = decode_entry(Seq(1), &body).unwrap();
    assert_eq!(entry.state, log.state);
    assert_eq!(entry.prev, hash16(&log.objects.all[&Segment::Log(Seq::ZERO)]));
    assert_eq!(entry.txs.len(), 1);
    assert_eq!(entry.txs[0].packs.len(), 1, "what is above inline_file goes to a pack");
    assert_eq!(entry.ops[0][0].ops.len(), 4);
    assert!(entry.state.ring.newest(Seq(1), &unit(1)) == Some(Seq(1)));
    let (state, txs, _) = decode_prefix(Seq(1), &body.slice(..1000), body.len() as u64).unwrap().unwrap();
    assert_eq!(txs, entry.txs);
    assert_eq!(state.root, entry.state.root);
    let all = read_all(&log).await;
    assert_eq!(all[&(unit(1).to_string(), "data/command/shell/big/1/raw".into())], big);
    assert_eq!(all.len(), 4);
    let OpRecord::Put(_, _, row) = &entry.ops[0][0].ops[0] else { panic!() };
    assert!(matches!(row.content, Content::Tiny(_)));
    let json = to_json(Some(Seq(1)), &body).unwrap();
    assert_eq!(json["transactions"][0]["ops"][0]["ops"][3]["path"], "empty");
    let pack = &log.objects.all[&entry.txs[0].packs[0].segment()];
    assert_eq!(decode_pack(pack).unwrap().blocks.len(), 1);
    assert_eq!(to_json(None, pack).unwrap()["blocks"][0]["contents"][0]["size"], 100 << 10);
}

#[tokio::test]
async fn later_entries_change_delete_and_rank() {
    let mut log = Log::new();
    for n in 0..40 {
        let text = format!("content number {n} ").repeat(10);
        log.commit(vec![(unit(n % 7), vec![put(&format!("data/item-{n}/raw"), Rank::Current, None, text)])])
            .await
            .unwrap();
    }
    let before = read_all(&log).await;
    assert_eq!(before.len(), 40);
    let ops = vec![
        Op::Delete { path: path("data/item-0/raw"), rank: Rank::Current },
        Op::Rank { path: path("data/item-7/raw"), from: Rank::Current, to: Rank::History(3) },
        put("data/item-14/raw", Rank::History(5), Some(Rank::Current), "changed"),
    ];
    let body = log.commit(vec![(unit(0), ops)]).await.unwrap();
    let entry = decode_entry(log.state.seq, &body).unwrap();
    assert_eq!(entry.txs[0].ext_log, Some(Seq(8)), "the lowest row that stayed where it was");
    let after = read_all(&log).await;
    assert_eq!(after.len(), 39);
    assert_eq!(after[&(unit(0).to_string(), "data/item-14/raw".into())], b"changed");
    let table = log.table(&unit(0)).await;
    let history: Vec<_> = table.iter().filter(|row| row.0 != Rank::Current).map(|row| row.1.as_str()).collect();
    assert_eq!(history, ["data/item-14/raw", "data/item-7/raw"], "newest history first");
}

#[tokio::test]
async fn a2_plan_refuses_what_does_not_match_the_table() {
    let mut log = Log::new();
    log.commit(vec![(unit(1), vec![put("a", Rank::Current, None, "1")])]).await.unwrap();
    let wrong: Vec<Op> = vec![
        put("a", Rank::Current, None, "2"),
        put("a", Rank::Current, Some(Rank::History(1)), "2"),
        put("b", Rank::Current, Some(Rank::Current), "2"),
        Op::Delete { path: path("b"), rank: Rank::Current },
        Op::Delete { path: path("a"), rank: Rank::History(0) },
        Op::Rank { path: path("b"), from: Rank::Current, to: Rank::History(1) },
    ];
    for op in wrong {
        let draft = log.draft(TxKind::Change, vec![(unit(1), vec![op.clone()])]).await;
        assert_eq!(log.plan(&draft).await.unwrap_err().kind(), Kind::Conflict, "{op:?}");
    }
    let mut draft = log.draft(TxKind::Change, vec![(unit(1), Vec::new())]).await;
    draft.units[0].expected = Some(Seq(0));
    assert_eq!(log.plan(&draft).await.unwrap_err().kind(), Kind::Conflict);
}

#[tokio::test]
async fn r1_moved_units_are_dead_and_lost_slots_need_only_a_new_entry() {
    let mut log = Log::new();
    log.commit(vec![(unit(1), vec![put("a", Rank::Current, None, "1")])]).await.unwrap();
    let mine = log.draft(TxKind::Change, vec![(unit(2), vec![put("m", Rank::Current, None, b"x".repeat(100))])]).await;
    let mine = log.plan(&mine).await.unwrap();
    let same = log.draft(TxKind::Change, vec![(unit(1), vec![put("b", Rank::Current, None, "2")])]).await;
    let same = log.plan(&same).await.unwrap();
    log.commit(vec![(unit(1), vec![put("c", Rank::Current, None, "3")])]).await.unwrap();
    assert_eq!(check(&same, &log.state, &log.objects).await.unwrap(), Some(Dead::Moved(unit(1))));
    assert_eq!(check(&mine, &log.state, &log.objects).await.unwrap(), None);
    let other = log.draft(TxKind::Change, vec![(unit(3), vec![put("o", Rank::Current, None, b"y".repeat(100))])]).await;
    let other = log.plan(&other).await.unwrap();
    let body = log.build(&[other, mine.clone()]).await.unwrap();
    let entry = decode_entry(log.state.seq, &body).unwrap();
    assert_eq!(entry.txs.len(), 2);
    let off = usize::try_from(entry.txs[1].off).unwrap();
    assert_eq!(&body[off..][..mine.bytes.len()], &mine.bytes[..], "carried byte for byte");
    assert_eq!(read_all(&log).await.len(), 4);
}

#[tokio::test]
async fn r2_packs_below_the_horizon_are_refused() {
    let mut log = Log::new();
    let draft =
        log.draft(TxKind::Change, vec![(unit(1), vec![put("a", Rank::Current, None, vec![1; 70 << 10])])]).await;
    let section = log.plan(&draft).await.unwrap();
    assert_eq!(section.packs[0].0.base, Seq(1), "a pack is named after the slot it is uploaded for");
    assert_eq!(check(&section, &log.state, &log.objects).await.unwrap(), None);
    let mut raised = log.state.clone();
    raised.root.horizon = Seq(1);
    assert_eq!(check(&section, &raised, &log.objects).await.unwrap(), Some(Dead::Horizon));
}

#[tokio::test]
async fn r3_references_below_minlog_to_unknown_packs_and_to_moved_tables_are_refused() {
    let mut log = Log::new();
    log.commit(vec![(unit(1), vec![put("a", Rank::Current, None, b"a".repeat(200))])]).await.unwrap();
    log.commit(vec![(unit(1), vec![put("b", Rank::Current, None, vec![1; 70 << 10])])]).await.unwrap();
    let known = log.table(&unit(1)).await;
    // Unchanged rows of the page it rewrites.
    let draft = log.draft(TxKind::Change, vec![(unit(1), vec![put("c", Rank::Current, None, "c")])]).await;
    let section = log.plan(&draft).await.unwrap();
    assert_eq!(section.head.ext_log, Some(Seq(1)));
    assert_eq!(section.head.ext_packs.len(), 1);
    assert_eq!(check(&section, &log.state, &log.objects).await.unwrap(), None);
    // Known contents of another unit.
    let content = NewContent::Known(known[0].2.clone());
    let op = Op::Put { path: path("copy"), rank: Rank::Current, old: None, executable: true, content };
    let draft = log.draft(TxKind::Change, vec![(unit(2), vec![op])]).await;
    let copy = log.plan(&draft).await.unwrap();
    assert_eq!(copy.head.ext_log, Some(Seq(1)));
    let mut later = log.state.clone();
    later.root.minlog = Seq(2);
    for section in [&section, &copy] {
        assert_eq!(check(section, &later, &log.objects).await.unwrap(), Some(Dead::Gone));
    }
    let mut without = section.clone();
    without.head.ext_packs[0].1 = PackId::from_bytes([0; 16]);
    assert_eq!(check(&without, &log.state, &log.objects).await.unwrap(), Some(Dead::Gone));
    // A checkpoint moved the table, the seq stayed.
    let mut moved = section.clone();
    moved.head.units[0].planned.as_mut().unwrap().off += 1;
    assert_eq!(check(&moved, &log.state, &log.objects).await.unwrap(), Some(Dead::Gone));
    log.build(&[copy]).await.unwrap();
    assert_eq!(log.content(&log.table(&unit(2)).await[0].2), Bytes::from(b"a".repeat(200)));
    assert!(log.table(&unit(2)).await[0].2.executable);
    read_all(&log).await;
}

#[tokio::test]
async fn a11_contents_go_inline_or_to_packs_by_their_sizes() {
    let mut log = Log::new();
    let noise = |n: u64, len: usize| -> Vec<u8> { (0..).flat_map(|i| id(n * 100_000 + i)).take(len).collect() };
    // Below both limits: inline, neighbours share a block.
    let small: Vec<Op> = (0..8).map(|n| put(&format!("s{n}"), Rank::Current, None, noise(n, 1000))).collect();
    log.commit(vec![(unit(1), small)]).await.unwrap();
    let blocks: std::collections::BTreeSet<_> = log
        .table(&unit(1))
        .await
        .iter()
        .map(|row| match &row.2.content {
            Content::At(at) => at.block,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(blocks.len(), 1);
    assert!(blocks.iter().all(|at| at.segment == Segment::Log(Seq(1))));
    // Together above inline_tx: all to a pack, in blocks of at most 64 KiB.
    let many: Vec<Op> = (0..10).map(|n| put(&format!("m{n}"), Rank::Current, None, noise(n, 30_000))).collect();
    let body = log.commit(vec![(unit(2), many)]).await.unwrap();
    assert!(body.len() < 8000);
    let (_, _, _, row) = packs(&log.state, &log.objects).await.unwrap()[0];
    assert!(row.size > 300_000 && row.seq == Seq(2));
    // The target splits packs.
    log.info.params.pack_target = 100_000;
    let many: Vec<Op> = (0..10).map(|n| put(&format!("p{n}"), Rank::Current, None, noise(n, 80_000))).collect();
    log.commit(vec![(unit(3), many)]).await.unwrap();
    assert_eq!(packs(&log.state, &log.objects).await.unwrap().len(), 1 + 5);
    // Equal bytes in one transaction are stored once.
    let twins = vec![put("t1", Rank::Current, None, noise(9, 5000)), put("t2", Rank::Current, None, noise(9, 5000))];
    let body = log.commit(vec![(unit(4), twins)]).await.unwrap();
    assert!(body.len() < 9000, "{}", body.len());
    assert_eq!(read_all(&log).await.len(), 8 + 10 + 10 + 2);
    for body in log.objects.all.values() {
        if body[8] == 3 {
            decode_pack(body).unwrap();
        }
    }
}

#[tokio::test]
async fn limits_are_refused_not_exceeded() {
    let mut log = Log::new();
    log.info.params.entry_max = 2000;
    let noise: Vec<u8> = (0..200).flat_map(id).collect();
    let error = log.commit(vec![(unit(1), vec![put("a", Rank::Current, None, noise)])]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(log.state.seq, Seq::ZERO);
}

#[test]
fn genesis_is_a_pure_function() {
    let (a, state) = genesis(&info()).unwrap();
    let (b, _) = genesis(&info()).unwrap();
    assert_eq!(a, b);
    let entry = decode_entry(Seq::ZERO, &a).unwrap();
    assert_eq!(entry.state, state);
    assert_eq!(entry.txs[0].kind, TxKind::Genesis);
}

#[tokio::test]
async fn states_and_rows_survive_their_local_bytes() {
    let mut log = Log::new();
    for n in 0..5 {
        log.commit(vec![(unit(n), vec![put("a", Rank::Current, None, b"abc".repeat(50))])]).await.unwrap();
    }
    assert_eq!(decode_state(&encode_state(&log.state)).unwrap(), log.state);
    for (_, _, row) in log.table(&unit(3)).await {
        assert_eq!(decode_row(&encode_row(&row)).unwrap(), row);
    }
}

#[tokio::test]
async fn an_empty_change_keeps_the_table_and_moves_the_unit() {
    let mut log = Log::new();
    log.commit(vec![(unit(1), vec![put("a", Rank::Current, None, "1")])]).await.unwrap();
    let before = unit_rows(&log.state, &[&unit(1)], &log.objects).await.unwrap();
    log.commit(vec![(unit(1), Vec::new()), (unit(2), Vec::new())]).await.unwrap();
    let after = unit_rows(&log.state, &[&unit(1), &unit(2)], &log.objects).await.unwrap();
    assert_eq!(after[0].as_ref().unwrap().table, before[0].as_ref().unwrap().table);
    assert_eq!(after[0].as_ref().unwrap().last_seq, Seq(2));
    assert_eq!(after[1].as_ref().unwrap().table, None);
    log.commit(vec![(unit(1), vec![Op::Delete { path: path("a"), rank: Rank::Current }])]).await.unwrap();
    assert!(read_all(&log).await.is_empty());
    assert_eq!(log.state.root.units, 2);
}

#[tokio::test]
async fn directory_diff_reads_only_what_differs() {
    let mut log = Log::new();
    let all: Vec<_> = (0..3000).map(|n| (unit(n), Vec::new())).collect();
    log.commit(all).await.unwrap();
    let before = log.state.clone();
    for n in [5, 1500, 4000] {
        log.commit(vec![(unit(n), vec![put("x", Rank::Current, None, "1")])]).await.unwrap();
    }
    log.objects.reads = 0.into();
    let diff = directory_diff(&before, &log.state, &log.objects).await.unwrap();
    let names: Vec<_> = diff.keys().cloned().collect();
    let mut want = vec![unit(5), unit(1500), unit(4000)];
    want.sort();
    assert_eq!(names, want);
    assert!(diff[&unit(4000)].0.is_none());
    assert!(log.objects.reads.into_inner() < 30);
}
