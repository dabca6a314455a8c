//! Work beside everything else: one future on a thread and a runtime of its own.
//!
//! Invariant: nothing else runs there, so nothing holds it up; and it has ended when it has been dropped.

use std::convert::Infallible;
use std::io;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

/// Goes on until it is dropped, or its work is done.
pub(super) struct OwnThread {
    /// Nothing is ever sent.
    end: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl OwnThread {
    /// `begin` makes the work, within its runtime but before this returns, so that what it can't begin with is an error here. What the
    /// work spawns ends with it.
    ///
    /// # Errors
    /// That of `begin`, or if there are no more threads.
    pub fn start<F>(name: &str, begin: impl FnOnce() -> io::Result<F>) -> io::Result<OwnThread>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let work = {
            let _within = runtime.enter();
            begin()?
        };
        let (end, ended) = oneshot::channel::<Infallible>();
        let drive = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = work => {}
                    _ = ended => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(drive)?;
        Ok(OwnThread { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic there is no reason for another one here.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_is_under_way_and_what_it_has_spawned_end_when_it_is_dropped() {
        let (alive, ended) = mpsc::channel::<()>();
        let (begun_in, begun) = mpsc::channel();
        let thread = OwnThread::start("own", || {
            Ok(async move {
                tokio::spawn(async move {
                    let _alive = alive;
                    begun_in.send(()).expect("the test waits");
                    std::future::pending::<()>().await;
                });
                std::future::pending::<()>().await;
            })
        });
        let thread = thread.expect("a thread");
        begun.recv().expect("it has begun");
        assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(thread);
        assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }

    #[test]
    fn what_can_not_begin_is_an_error() {
        let refused = OwnThread::start("own", || Err::<std::future::Ready<()>, _>(io::Error::other("not today")));
        assert_eq!(refused.err().expect("refused").to_string(), "not today");
    }
}
