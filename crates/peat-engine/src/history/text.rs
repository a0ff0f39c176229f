//! How two contents differ, for people.

use bytes::Bytes;
use similar::TextDiff;

use crate::report::ContentDiff;

/// Larger contents are not compared.
pub(super) const LARGEST: u64 = 64 << 10;
/// Lines of a difference that are shown.
const LINES: usize = 200;

/// Why contents of this size are not compared, if they are not.
pub(super) fn too_large(sizes: [Option<u64>; 2]) -> Option<ContentDiff> {
    let larger = sizes.into_iter().flatten().max().filter(|size| *size > LARGEST)?;
    Some(ContentDiff { note: Some(format!("not compared: {larger} bytes are more than {LARGEST}")), ..none() })
}

fn none() -> ContentDiff {
    ContentDiff { against: None, text: None, note: None }
}

/// The difference between two contents, either of which may be missing.
pub(super) fn diff(before: Option<&Bytes>, after: Option<&Bytes>, against: Option<String>) -> ContentDiff {
    let (Some(old), Some(new)) = (text(before), text(after)) else {
        return ContentDiff { against, note: Some("not compared: it is not text".to_owned()), ..none() };
    };
    if before.is_some() && old == new {
        return ContentDiff { against, note: Some("the content is the same".to_owned()), ..none() };
    }
    let diff = TextDiff::from_lines(old, new).unified_diff().context_radius(3).to_string();
    let lines: Vec<&str> = diff.lines().collect();
    let left = lines.len().saturating_sub(LINES);
    let note = (left > 0).then(|| format!("{left} more lines are left out"));
    let shown = lines.iter().take(LINES).map(|line| format!("{line}\n")).collect();
    ContentDiff { against, text: Some(shown), note }
}

fn text(bytes: Option<&Bytes>) -> Option<&str> {
    let Some(bytes) = bytes else { return Some("") };
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(before: &'static str, after: &'static str) -> ContentDiff {
        diff(Some(&Bytes::from(before)), Some(&Bytes::from(after)), None)
    }

    #[test]
    fn texts_are_compared_by_line() {
        assert_eq!(of("a\nb\n", "a\nc\n").text.unwrap(), "@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
        assert_eq!(diff(None, Some(&Bytes::from("x\n")), None).text.unwrap(), "@@ -0,0 +1 @@\n+x\n");
        assert!(of("a", "a").note.unwrap().contains("same"));
        assert!(of("a\0", "b").note.unwrap().contains("not text"));
        let long = |c: char| Bytes::from(format!("{c}\n").repeat(300));
        let cut = diff(Some(&long('a')), Some(&long('b')), None);
        assert_eq!(cut.text.unwrap().lines().count(), LINES);
        assert!(cut.note.unwrap().contains("more lines"));
        assert!(too_large([Some(1), Some(LARGEST + 1)]).is_some() && too_large([Some(1), None]).is_none());
    }
}
