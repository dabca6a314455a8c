//! Who owns an output folder.
//!
//! Invariant: an owner file is created once, whole, and never changed; a folder whose owner file names another job or sink is
//! never written to.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use super::durable;
use super::layout::Layout;
use crate::connector::{ConnectorContext, ConnectorError};
use crate::crash;
use crate::id::{JobUid, Name};

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    version: u32,
    job: Name,
    job_uid: JobUid,
    sink: Name,
}

impl Owner {
    fn of(ctx: &ConnectorContext) -> Owner {
        Owner { version: 1, job: ctx.job.clone(), job_uid: ctx.job_uid.clone(), sink: ctx.name.clone() }
    }
}

/// Makes the output folder this sink's, or finds that it already is.
pub fn claim(layout: &Layout, ctx: &ConnectorContext) -> Result<(), ConnectorError> {
    let failed = |error| ConnectorError::file(&ctx.name, "create the output folder", layout.out(), error);
    if read(layout, ctx)?.is_some() {
        check(layout, ctx)?;
        return durable::create_folders(&layout.staging()).map_err(failed);
    }
    crash::point("connector.claim.before");
    durable::create_folders(&layout.staging()).map_err(failed)?;
    let owner = serde_json::to_vec(&Owner::of(ctx)).expect("names are JSON");
    // Two jobs that claim at once must not share the temporary file.
    let suffix = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(ctx.job_uid.0.as_bytes()));
    durable::create(&layout.owner(), &owner, &suffix)
        .map_err(|error| ConnectorError::file(&ctx.name, "create", &layout.owner(), error))?;
    crash::point("connector.claim.after");
    check(layout, ctx)
}

/// Makes sure that the folder has been claimed by this sink.
pub fn check(layout: &Layout, ctx: &ConnectorContext) -> Result<(), ConnectorError> {
    let refused = |problem, advice| ConnectorError::Refused { name: ctx.name.clone(), problem, advice };
    let out = layout.out().display();
    match read(layout, ctx)? {
        Some(owner) if owner == Owner::of(ctx) => Ok(()),
        Some(owner) => Err(refused(
            format!(
                "the output folder {out} belongs to sink '{}' of job '{}' (uid {}), not to sink '{}' of job '{}' (uid {})",
                owner.sink, owner.job, owner.job_uid, ctx.name, ctx.job, ctx.job_uid
            ),
            format!(
                "choose another path; or, if what owns it will never run again, move its files away and remove {}",
                layout.hidden().display()
            ),
        )),
        None => Err(refused(
            format!("the output folder {out} lost its owner file while the job ran"),
            "leave the folder .lockgate alone while a job runs, and run the job again".to_owned(),
        )),
    }
}

/// Whether the folder has an owner, be it this sink or another.
pub fn is_claimed(layout: &Layout, ctx: &ConnectorContext) -> Result<bool, ConnectorError> {
    read(layout, ctx).map(|owner| owner.is_some())
}

fn read(layout: &Layout, ctx: &ConnectorContext) -> Result<Option<Owner>, ConnectorError> {
    let path = layout.owner();
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| ConnectorError::Refused {
            name: ctx.name.clone(),
            problem: format!("{} doesn't say who owns the output folder: {error}", path.display()),
            advice: format!(
                "choose another path; or, if no other job writes there, move the output away and remove {}",
                layout.hidden().display()
            ),
        }),
        // With a file in the place of a folder, creating the folder says what is wrong.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(ConnectorError::file(&ctx.name, "read", &path, error)),
    }
}
