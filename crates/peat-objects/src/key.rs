//! The grammar of keys and what every backend computes from it in the same way.

use std::ops;

use peat_types::{Error, Kind, Result};

use crate::{List, Range};

/// Most keys and prefixes in one page, as on S3.
pub(crate) const MAX_PAGE: u16 = 1000;

/// Refuses everything but relative paths of `[a-z0-9.-/]` without empty segments or segments that begin with a dot.
/// So no key can leave a folder, collide with another on a file system that ignores case, or need escaping in XML.
pub(crate) fn check_key(key: &str) -> Result<()> {
    let segment = |s: &str| {
        !s.is_empty()
            && !s.starts_with('.')
            && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-')
    };
    if key.len() <= 900 && key.split('/').all(segment) {
        return Ok(());
    }
    Err(Error::internal(format!("{key:?} is not an object key")))
}

/// Refuses prefixes that do not end a folder, and page sizes out of range.
pub(crate) fn check_list(list: &List) -> Result<()> {
    match list.prefix.strip_suffix('/') {
        Some(folder) => check_key(folder)?,
        None if list.prefix.is_empty() => {}
        None => return Err(Error::internal(format!("list prefix {:?} does not end in '/'", list.prefix))),
    }
    if list.max_keys.is_some_and(|max| !(1..=MAX_PAGE).contains(&max)) {
        return Err(Error::internal(format!("a page has 1 to {MAX_PAGE} keys")));
    }
    Ok(())
}

/// The token of a page that another kind of store made, or that was damaged.
pub(crate) fn bad_token(token: &str) -> Error {
    Error::new(Kind::Invalid, format!("{token:?} is not a continuation token of this listing"))
}

impl Range {
    /// The bytes of an object of `size` bytes that this range means; empty when it lies past the end.
    pub(crate) fn resolve(self, size: u64) -> ops::Range<u64> {
        match self {
            Self::All => 0..size,
            Self::Part { offset, len } => offset.min(size)..offset.saturating_add(len).min(size),
            Self::Last { len } => size.saturating_sub(len)..size,
        }
    }
}

/// The first segment of a key: what kind of object it is.
pub(crate) fn first_segment(key: &str) -> &str {
    key.split('/').next().unwrap_or_default()
}
