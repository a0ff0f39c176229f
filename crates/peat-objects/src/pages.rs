//! A listing page by page, believed only while it makes sense.

use std::collections::HashSet;

use peat_types::{Error, Kind, Result};

use crate::{List, Page, Store};

/// So many pages in a row without anything in them are no listing any more.
const EMPTY_PAGES: u32 = 1000;

/// The pages of one listing, first to last. Short and empty pages are fine as long as they say how to go on; a key that
/// comes twice in a row is given once.
///
/// # Errors
/// Beside those of the store: `Damaged`, code `bad_listing`, when a continuation token comes back, when there is no end
/// of empty pages, and, if asked for, when keys do not come in byte order.
#[derive(Debug)]
pub struct Pages<'a> {
    store: &'a dyn Store,
    list: List,
    in_order: bool,
    done: bool,
    tokens: HashSet<String>,
    empty: u32,
    last: Option<String>,
}

impl<'a> Pages<'a> {
    /// The pages of `list`, whose order does not matter.
    pub fn new(store: &'a dyn Store, list: List) -> Self {
        Self { store, list, in_order: false, done: false, tokens: HashSet::new(), empty: 0, last: None }
    }

    /// The pages of `list`, a folder without folders in it, whose keys must come in byte order.
    pub fn in_order(store: &'a dyn Store, list: List) -> Self {
        Self { in_order: true, ..Self::new(store, list) }
    }

    /// Asks for pages of any size from now on.
    pub fn widen(&mut self) {
        self.list.max_keys = None;
    }

    /// The next page; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Page>> {
        if self.done {
            return Ok(None);
        }
        let mut page = self.store.list(&self.list).await?;
        let mut kept = Vec::with_capacity(page.keys.len());
        for listed in page.keys {
            match &self.last {
                Some(last) if *last == listed.key => continue,
                Some(last) if self.in_order && *last > listed.key => {
                    return Err(self.bad(format!("'{}' comes after '{last}'", listed.key), "keys out of byte order"));
                }
                _ => self.last = Some(listed.key.clone()),
            }
            kept.push(listed);
        }
        page.keys = kept;
        self.empty = if page.keys.is_empty() && page.prefixes.is_empty() { self.empty + 1 } else { 0 };
        match &page.token {
            None => self.done = true,
            Some(token) if !self.tokens.insert(token.clone()) => {
                return Err(self.bad("the same continuation token came twice", "a listing without an end"));
            }
            Some(_) if self.empty >= EMPTY_PAGES => {
                return Err(self.bad(format!("{EMPTY_PAGES} empty pages in a row"), "a listing without an end"));
            }
            Some(_) => {}
        }
        self.list.token.clone_from(&page.token);
        Ok(Some(page))
    }

    fn bad(&self, found: impl std::fmt::Display, what: &str) -> Error {
        Error::new(Kind::Damaged, format!("list {}/{}: {found}", self.store, self.list.prefix))
            .with_code("bad_listing")
            .with_hint(format!("the store answered with {what}: 'peat doctor --probe' tries what it can do"))
    }
}
