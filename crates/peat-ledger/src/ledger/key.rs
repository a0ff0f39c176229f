//! Names of objects below the namespace.

use peat_types::{InstanceId, PackId, Seq};

use crate::model::Segment;

/// Key of the ledger's description.
pub(crate) const NS: &str = "ns.json";
/// Folder of the entries, newest first.
pub(crate) const LOG: &str = "log/";
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

/// Key of the beat of an instance.
pub(crate) fn beat(base: Seq, instance: InstanceId) -> String {
    format!("beat/{:016x}-{instance}", base.0)
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
