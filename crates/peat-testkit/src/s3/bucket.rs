//! Buckets in memory behind the S3 framework. One mutex makes check and write a single step, unless a lie says otherwise.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::StatusCode;
use md5::{Digest, Md5};
use peat_types::Env;
use s3s::dto::{
    CommonPrefix, CreateBucketInput, CreateBucketOutput, DeleteObjectInput, DeleteObjectOutput, ETag, ETagCondition,
    GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, ListObjectsV2Input, ListObjectsV2Output,
    Object, PutObjectInput, PutObjectOutput, StreamingBlob,
};
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};

use crate::liars::Lie;

#[derive(Clone)]
struct Stored {
    bytes: Bytes,
    etag: String,
    at: SystemTime,
}

type Bucket = BTreeMap<String, Stored>;

#[derive(Default)]
struct State {
    buckets: BTreeMap<String, Bucket>,
    lie: Option<Lie>,
    /// For [`Lie::RemembersDeleted`].
    deleted: Vec<String>,
    /// For [`Lie::LateList`]: fresh keys and how many listings will still miss them.
    fresh: Vec<(String, u32)>,
}

/// All buckets of a server.
#[derive(Clone)]
pub(super) struct Buckets {
    state: Arc<Mutex<State>>,
    env: Env,
}

impl Buckets {
    pub(super) fn new(env: &Env) -> Self {
        let mut state = State::default();
        state.buckets.insert(super::BUCKET.to_owned(), Bucket::new());
        Self { state: Arc::new(Mutex::new(state)), env: env.clone() }
    }

    pub(super) fn set_lie(&self, lie: Option<Lie>) {
        self.state().lie = lie;
    }

    pub(super) fn keys(&self, bucket: &str) -> Vec<String> {
        self.state().buckets.get(bucket).map(|bucket| bucket.keys().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn holds(&self, bucket: &str, key: &str) -> bool {
        self.state().buckets.get(bucket).is_some_and(|bucket| bucket.contains_key(key))
    }

    pub(super) fn empty(&self, bucket: &str) {
        self.state().buckets.entry(bucket.to_owned()).or_default().clear();
    }

    pub(super) fn age(&self, by: Duration) {
        self.state().buckets.values_mut().flat_map(BTreeMap::values_mut).for_each(|stored| stored.at -= by);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(self.env.now().as_millis()).unwrap_or(0))
    }

    fn object(&self, bucket: &str, key: &str) -> S3Result<Stored> {
        self.state().bucket(bucket)?.get(key).cloned().ok_or_else(|| s3_error!(NoSuchKey))
    }

    /// The condition and the write.
    async fn write(&self, bucket: String, key: String, stored: Stored, create: bool) -> S3Result<()> {
        let lie = self.state().lie.filter(|_| create);
        if matches!(lie, Some(Lie::ChecksThenActs | Lie::ConfirmsLosers)) {
            if self.state().bucket(&bucket)?.contains_key(&key) {
                return Err(s3_error!(PreconditionFailed));
            }
            self.env.sleep(Duration::from_millis(5)).await;
        }
        let mut state = self.state();
        let there = state.bucket(&bucket)?.contains_key(&key);
        match lie {
            Some(Lie::Refuses501) => return Err(s3_error!(NotImplemented, "If-None-Match is not implemented")),
            Some(Lie::Refuses400) => {
                let mut error = s3_error!(
                    NotImplemented,
                    "A header you provided implies functionality that is not implemented: If-None-Match"
                );
                error.set_status_code(StatusCode::BAD_REQUEST);
                return Err(error);
            }
            Some(Lie::Inverted) if !there => return Err(s3_error!(PreconditionFailed)),
            Some(Lie::ConfirmsLosers) if there => return Ok(()),
            Some(Lie::RemembersDeleted) if state.deleted.contains(&key) => return Err(s3_error!(PreconditionFailed)),
            Some(Lie::Inverted | Lie::IgnoresCondition | Lie::ChecksThenActs) => {}
            _ if create && there => return Err(s3_error!(PreconditionFailed)),
            _ => {}
        }
        state.fresh.push((key.clone(), 2));
        state.bucket_mut(&bucket)?.insert(key, stored);
        Ok(())
    }
}

impl State {
    fn bucket(&self, name: &str) -> S3Result<&Bucket> {
        self.buckets.get(name).ok_or_else(|| s3_error!(NoSuchBucket, "The specified bucket does not exist"))
    }

    fn bucket_mut(&mut self, name: &str) -> S3Result<&mut Bucket> {
        self.buckets.get_mut(name).ok_or_else(|| s3_error!(NoSuchBucket, "The specified bucket does not exist"))
    }
}

async fn collect(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let mut bytes = BytesMut::new();
    let Some(mut body) = body else { return Ok(Bytes::new()) };
    while let Some(chunk) = body.next().await {
        bytes.extend_from_slice(&chunk.map_err(|e| s3_error!(BadDigest, "{e}"))?);
    }
    Ok(bytes.freeze())
}

fn length(bytes: usize) -> Option<i64> {
    i64::try_from(bytes).ok()
}

#[async_trait::async_trait]
impl S3 for Buckets {
    async fn create_bucket(&self, request: S3Request<CreateBucketInput>) -> S3Result<S3Response<CreateBucketOutput>> {
        self.state().buckets.entry(request.input.bucket).or_default();
        Ok(S3Response::new(CreateBucketOutput::default()))
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        let create = match input.if_none_match {
            None => false,
            Some(ETagCondition::Any) => true,
            Some(ETagCondition::ETag(_)) => return Err(s3_error!(NotImplemented, "only If-None-Match: *")),
        };
        let bytes = collect(input.body).await?;
        let etag = hex::encode(Md5::digest(&bytes));
        let stored = Stored { bytes, etag: etag.clone(), at: self.now() };
        self.write(input.bucket, input.key, stored, create).await?;
        Ok(S3Response::new(PutObjectOutput { e_tag: Some(ETag::Strong(etag)), ..Default::default() }))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let stored = self.object(&input.bucket, &input.key)?;
        let size = stored.bytes.len();
        let range = input.range.filter(|_| self.state().lie != Some(Lie::IgnoresRange));
        let (bytes, content_range) = match range {
            None => (stored.bytes, None),
            Some(range) => {
                let span = range.check(size as u64)?;
                if span.is_empty() {
                    return Err(s3_error!(InvalidRange));
                }
                let index = |at: u64| usize::try_from(at).unwrap_or(size);
                let bytes = stored.bytes.slice(index(span.start)..index(span.end));
                (bytes, Some(format!("bytes {}-{}/{size}", span.start, span.end - 1)))
            }
        };
        Ok(S3Response::new(GetObjectOutput {
            content_length: length(bytes.len()),
            body: Some(StreamingBlob::from(Body::from(bytes))),
            content_range,
            e_tag: Some(ETag::Strong(stored.etag)),
            last_modified: Some(stored.at.into()),
            accept_ranges: Some("bytes".into()),
            ..Default::default()
        }))
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let stored = self.object(&request.input.bucket, &request.input.key)?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: length(stored.bytes.len()),
            e_tag: Some(ETag::Strong(stored.etag)),
            last_modified: Some(stored.at.into()),
            ..Default::default()
        }))
    }

    async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = request.input;
        let mut state = self.state();
        if state.lie == Some(Lie::NoDeleteRight) {
            return Err(s3_error!(AccessDenied, "Access Denied"));
        }
        state.bucket_mut(&input.bucket)?.remove(&input.key);
        state.deleted.push(input.key);
        Ok(S3Response::with_status(DeleteObjectOutput::default(), StatusCode::NO_CONTENT))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let mut state = self.state();
        let lie = state.lie;
        let hidden: Vec<String> = match lie {
            Some(Lie::LateList) => {
                state.fresh.iter().filter(|(_, left)| *left > 0).map(|(key, _)| key.clone()).collect()
            }
            _ => Vec::new(),
        };
        state.fresh.iter_mut().for_each(|(_, left)| *left = left.saturating_sub(1));
        let bucket = state.bucket(&input.bucket)?;
        const START: &str = "!from-the-start";
        let mut output = ListObjectsV2Output {
            name: Some(input.bucket.clone()),
            prefix: input.prefix.clone(),
            delimiter: input.delimiter.clone(),
            max_keys: input.max_keys,
            continuation_token: input.continuation_token.clone(),
            is_truncated: Some(false),
            ..Default::default()
        };
        if lie == Some(Lie::EmptyPages) && input.continuation_token.is_none() {
            output.is_truncated = Some(true);
            output.next_continuation_token = Some(START.to_owned());
            return Ok(S3Response::new(output));
        }
        let max = match (lie, input.max_keys) {
            (Some(Lie::IgnoresMaxKeys), _) | (_, None) => 1000,
            (Some(Lie::ShortPages), Some(max)) => max.clamp(0, 2),
            (_, Some(max)) => max.clamp(0, 1000),
        };
        let token = input.continuation_token.filter(|token| token != START);
        let (mut objects, prefixes, next) = page(
            bucket,
            &input.prefix.unwrap_or_default(),
            input.delimiter.as_deref(),
            token,
            usize::try_from(max).unwrap_or(0),
        );
        objects.retain(|object| !object.key.as_ref().is_some_and(|key| hidden.contains(key)));
        if lie == Some(Lie::UnsortedList) {
            objects.reverse();
        }
        output.key_count = i32::try_from(objects.len() + prefixes.len()).ok();
        output.is_truncated = Some(next.is_some());
        output.next_continuation_token = next;
        output.contents = (!objects.is_empty()).then_some(objects);
        output.common_prefixes = (!prefixes.is_empty()).then_some(prefixes);
        Ok(S3Response::new(output))
    }
}

/// One page and the token of the next: the last key or common prefix that was handed out.
fn page(
    bucket: &Bucket,
    prefix: &str,
    delimiter: Option<&str>,
    token: Option<String>,
    max: usize,
) -> (Vec<Object>, Vec<CommonPrefix>, Option<String>) {
    let (mut objects, mut prefixes, mut last) = (Vec::new(), Vec::<CommonPrefix>::new(), None);
    let passed = token.clone().filter(|token| delimiter.is_some_and(|delimiter| token.ends_with(delimiter)));
    let start = match token {
        Some(token) => Bound::Excluded(token),
        None => Bound::Included(prefix.to_owned()),
    };
    for (key, stored) in bucket.range((start, Bound::Unbounded)) {
        let Some(rest) = key.strip_prefix(prefix) else { break };
        if passed.as_ref().is_some_and(|passed| key.starts_with(passed)) {
            continue;
        }
        let common = delimiter.and_then(|delimiter| rest.find(delimiter).map(|at| at + delimiter.len()));
        let common = common.map(|end| key[..prefix.len() + end].to_owned());
        if common.is_some() && common == last {
            continue;
        }
        if objects.len() + prefixes.len() == max {
            return (objects, prefixes, last);
        }
        match common {
            Some(common) => {
                prefixes.push(CommonPrefix { prefix: Some(common.clone()) });
                last = Some(common);
            }
            None => {
                objects.push(Object {
                    key: Some(key.clone()),
                    size: length(stored.bytes.len()),
                    e_tag: Some(ETag::Strong(stored.etag.clone())),
                    last_modified: Some(stored.at.into()),
                    ..Default::default()
                });
                last = Some(key.clone());
            }
        }
    }
    (objects, prefixes, None)
}
