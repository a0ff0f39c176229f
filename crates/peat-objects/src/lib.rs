//! The store seam. See [`Store`].

mod store;

pub use store::{Created, List, Listed, Meta, Object, Page, Range, Store};
