//! What is read from files, topics and records: each is used or refused, whoever wrote it; what is used is written again as it was
//! read.

mod capsule;
mod checkpoint;
mod committable;
mod deltas;
mod job_file;
mod positions;
mod records;

use lockgate_host::connector::ConnectorContext;
use lockgate_host::id::{Attempt, JobUid, Name};

fn name(text: &str) -> Name {
    Name::new(text).expect("a usable name")
}

fn context(part: &str, parallelism: u32) -> ConnectorContext {
    ConnectorContext {
        job: name("job"),
        job_uid: JobUid("uid-1".to_owned()),
        attempt: Attempt(1),
        name: name(part),
        parallelism,
    }
}
