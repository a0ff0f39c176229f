//! What is particular to S3.

pub(super) mod aws_chain;
pub(super) mod credentials;
