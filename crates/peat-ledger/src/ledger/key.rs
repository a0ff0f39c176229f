//! Names of objects below the namespace.

use peat_types::{InstanceId, PackId, Seq, TxId};

use crate::model::Segment;

/// Key of the ledger's description.
pub(crate) const NS: &str = "ns.json";
/// Folder of the entries, newest first.
pub(crate) const LOG: &str = "log/";
/// Folder of the staged transactions, newest base first.
pub(crate) const TX: &str = "tx/";
/// Folder of the packs.
pub(crate) const PACK: &str = "pack/";

/// Key of an entry: a pure function of its number.
pub(crate) fn log(seq: Seq) -> String {
    format!("{LOG}{}.{seq}", seq.inverted())
}

/// The number in a key of the log; `None` for anything that [`log`] would not have made.
pub(crate) fn log_seq(key: &str) -> Option<Seq> {
    let seq = Seq(key.strip_prefix(LOG)?.split_once('.')?.1.parse().ok()?);
    (log(seq) == key).then_some(seq)
}

/// Key of a staged transaction planned for the slot `base`.
pub(crate) fn tx(base: Seq, id: TxId) -> String {
    format!("{TX}{}-{id}", base.inverted())
}

/// What a key of a staged transaction names; `None` for anything that [`tx`] would not have made.
pub(crate) fn tx_parts(key: &str) -> Option<(Seq, TxId)> {
    let (base, id) = key.strip_prefix(TX)?.split_once('-')?;
    let (base, id) = (Seq(u64::MAX - u64::from_str_radix(base, 16).ok()?), id.parse().ok()?);
    (tx(base, id) == key).then_some((base, id))
}

/// Key of a pack.
pub(crate) fn pack(base: Seq, id: PackId) -> String {
    format!("{PACK}{:016x}-{id}", base.0)
}

/// The pack a key names; `None` for anything that [`pack`] would not have made.
pub(crate) fn pack_segment(name: &str) -> Option<Segment> {
    let (base, id) = name.strip_prefix(PACK)?.split_once('-')?;
    let (base, id) = (Seq(u64::from_str_radix(base, 16).ok()?), id.parse().ok()?);
    (pack(base, id) == name).then_some(Segment::Pack(base, id))
}

/// Folder of the beats.
pub(crate) const BEAT: &str = "beat/";

/// Folder of what a probe of the store leaves behind when it is killed or may not delete.
pub(crate) const PROBE: &str = "probe/";

/// Key of the beat of an instance.
pub(crate) fn beat(base: Seq, instance: InstanceId) -> String {
    format!("{BEAT}{:016x}-{instance}", base.0)
}

/// What a key of a beat names; `None` for anything that [`beat`] would not have made.
pub(crate) fn beat_parts(key: &str) -> Option<(Seq, InstanceId)> {
    let (base, id) = key.strip_prefix(BEAT)?.split_once('-')?;
    let (base, id) = (Seq(u64::from_str_radix(base, 16).ok()?), id.parse().ok()?);
    (beat(base, id) == key).then_some((base, id))
}

/// The object that others may point into which a key names.
pub(crate) fn named(name: &str) -> Option<Segment> {
    log_seq(name).map(Segment::Log).or_else(|| pack_segment(name))
}

/// Key of an object that others point into.
pub(crate) fn segment(segment: Segment) -> String {
    match segment {
        Segment::Log(seq) => log(seq),
        Segment::Pack(base, id) => pack(base, id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_the_grammar_are_staged_transactions() {
        let id = TxId::from_bytes([7; 16]);
        for base in [Seq(1), Seq(452), Seq(u64::MAX)] {
            assert_eq!(tx_parts(&tx(base, id)), Some((base, id)));
        }
        assert!(tx(Seq(453), id) < tx(Seq(452), id), "the newest base comes first");
        let key = tx(Seq(452), id);
        for bad in
            ["tx/", "tx/-", "tx/fffffffffffffe3b", &key.to_uppercase(), &format!("{key}0"), &key[..key.len() - 1]]
        {
            assert_eq!(tx_parts(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_keys_of_the_grammar_are_entries() {
        for seq in [Seq(0), Seq(1), Seq(452), Seq(u64::MAX)] {
            assert_eq!(log_seq(&log(seq)), Some(seq));
        }
        assert_eq!(log(Seq(452)), "log/fffffffffffffe3b.452");
        for key in
            ["log/", "log/x.1", "log/fffffffffffffe3b.453", "log/fffffffffffffe3b.0452", "log/FFFFFFFFFFFFFE3B.452"]
        {
            assert_eq!(log_seq(key), None, "{key}");
        }
    }
}
