//! Work for another core.

use peat_types::{Error, Result};
use tokio::runtime::Handle;

/// Decoding fewer bytes takes about as long as handing them to another thread.
const WORTH_IT: usize = 64 << 10;

/// Does `work` on so many bytes on another thread, unless they are few, so that requests go on meanwhile.
pub(super) async fn aside<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    match Handle::try_current() {
        Ok(runtime) if bytes >= WORTH_IT => {
            let done = runtime.spawn_blocking(work).await;
            done.map_err(|e| Error::internal("a thread that decodes came to an end").with_source(e))
        }
        _ => Ok(work()),
    }
}
