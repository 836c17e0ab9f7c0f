//! A log as a stream, which goes on while the container runs.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use tokio_util::sync::CancellationToken;
use windlass_streams::Chunks;

use super::read::Reader;

/// How long to wait before looking for more: little after something came, more while nothing comes.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(100);

struct State {
    reader: Option<Reader>,
    /// Cancelled when the container has ended and all that it printed is in the log.
    ended: CancellationToken,
    pause: Duration,
}

/// What a reader gives until the container has ended; then what is left.
pub fn stream(reader: Reader, ended: CancellationToken) -> Chunks {
    let state = State { reader: Some(reader), ended, pause: PAUSE_MIN };
    futures::stream::try_unfold(state, |mut state| async move {
        let piece = state.next().await?;
        Ok(piece.map(|piece| (piece, state)))
    })
    .boxed()
}

impl State {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            // Looked at first: what was printed before the end is there afterwards.
            let is_last = self.ended.is_cancelled();
            let Some(mut reader) = self.reader.take() else { return Ok(None) };
            let read = tokio::task::spawn_blocking(move || reader.read().map(|piece| (piece, reader)));
            let (piece, reader) = read.await.map_err(io::Error::other)??;
            if let Some(piece) = piece {
                (self.reader, self.pause) = (Some(reader), PAUSE_MIN);
                return Ok(Some(piece));
            }
            if is_last || reader.is_done() {
                return Ok(None);
            }
            self.reader = Some(reader);
            tokio::select! {
                () = self.ended.cancelled() => {}
                () = tokio::time::sleep(self.pause) => self.pause = (self.pause * 2).min(PAUSE_MAX),
            }
        }
    }
}
