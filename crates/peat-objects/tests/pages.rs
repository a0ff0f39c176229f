//! Listings page by page: what a store may do, and what ends it.
#![allow(clippy::panic, clippy::expect_used)] // the lints know tests, but not their helpers

use std::fmt;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use peat_objects::{Created, List, Listed, Meta, Object, Page, Pages, Range, Store};
use peat_types::{Error, Kind, Result};

type Answer = Box<dyn Fn(usize) -> (Vec<&'static str>, Option<String>) + Send + Sync>;

/// A store that lists by script.
struct Scripted(Answer, Mutex<Vec<List>>);

impl Scripted {
    fn new(answer: impl Fn(usize) -> (Vec<&'static str>, Option<String>) + Send + Sync + 'static) -> Self {
        Self(Box::new(answer), Mutex::default())
    }

    fn asked(&self) -> Vec<List> {
        self.1.lock().expect("asked").clone()
    }
}

fn none<T>() -> Result<T> {
    Err(Error::internal("only listings"))
}

#[async_trait]
impl Store for Scripted {
    async fn get(&self, _: &str, _: Range) -> Result<Option<Object>> {
        none()
    }

    async fn create(&self, _: &str, _: Bytes) -> Result<Created> {
        none()
    }

    async fn put(&self, _: &str, _: Bytes) -> Result<Meta> {
        none()
    }

    async fn list(&self, list: &List) -> Result<Page> {
        let nth = self.asked().len();
        self.1.lock().expect("asked").push(list.clone());
        let (keys, token) = (self.0)(nth);
        let listed = |key: &&str| Listed { key: (*key).to_owned(), size: 1, last_modified: None };
        Ok(Page { keys: keys.iter().map(listed).collect(), prefixes: Vec::new(), token })
    }

    async fn delete(&self, _: &str) -> Result<()> {
        none()
    }
}

impl fmt::Display for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("scripted:")
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

fn list() -> List {
    List { prefix: "log/".to_owned(), max_keys: Some(2), ..List::default() }
}

async fn all(mut pages: Pages<'_>) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    while let Some(page) = pages.next().await? {
        keys.extend(page.keys.into_iter().map(|listed| listed.key));
    }
    Ok(keys)
}

#[track_caller]
fn assert_bad(error: &Error, why: &str) {
    assert_eq!((error.kind(), error.code()), (Kind::Damaged, "bad_listing"), "{error:?}");
    assert!(error.to_string().starts_with("list scripted:/log/: ") && error.to_string().contains(why), "{error:?}");
}

#[tokio::test]
async fn short_and_empty_pages_and_repeated_keys_are_no_sin() {
    let store = Scripted::new(|nth| match nth {
        0 => (vec![], Some("a".to_owned())),
        1 => (vec!["log/1", "log/1"], Some("b".to_owned())),
        2 => (vec!["log/1", "log/2"], Some("c".to_owned())),
        3 => (vec![], Some("d".to_owned())),
        _ => (vec!["log/3"], None),
    });
    assert_eq!(all(Pages::in_order(&store, list())).await.expect("listing"), ["log/1", "log/2", "log/3"]);
    let tokens: Vec<_> = store.asked().into_iter().map(|list| list.token).collect();
    assert_eq!(tokens, [None, Some("a"), Some("b"), Some("c"), Some("d")].map(|token| token.map(str::to_owned)));
    let mut pages = Pages::new(&store, list());
    assert!(pages.next().await.expect("page").is_some() && pages.next().await.expect("end").is_none());
}

#[tokio::test]
async fn a_listing_that_does_not_end_is_ended() {
    for (store, requests, why) in [
        (Scripted::new(|_| (vec!["log/1"], Some("same".to_owned()))), 2, "the same continuation token came twice"),
        (
            Scripted::new(|nth| (vec!["log/1"], Some((nth % 3).to_string()))),
            4,
            "the same continuation token came twice",
        ),
        (Scripted::new(|nth| (vec![], Some(nth.to_string()))), 1000, "1000 empty pages in a row"),
    ] {
        assert_bad(&all(Pages::new(&store, list())).await.expect_err(why), why);
        assert_eq!(store.asked().len(), requests, "{why}");
    }
}

#[tokio::test]
async fn order_is_checked_where_it_is_relied_upon() {
    let within = || Scripted::new(|_| (vec!["log/2", "log/1"], None));
    let across = || {
        Scripted::new(|nth| match nth {
            0 => (vec!["log/2"], Some("a".to_owned())),
            _ => (vec!["log/1"], None),
        })
    };
    for store in [within(), across()] {
        assert_bad(&all(Pages::in_order(&store, list())).await.expect_err("order"), "'log/1' comes after 'log/2'");
    }
    assert_eq!(all(Pages::new(&within(), list())).await.expect("listing").len(), 2);
}
