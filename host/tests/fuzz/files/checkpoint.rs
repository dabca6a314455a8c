//! The files of a checkpoint that tell what there is: manifests, records in flight, the identity of a job, progress.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use lockgate_host::element::{Batch, Header, Row};
use lockgate_host::id::{Attempt, Epoch, JobUid};
use lockgate_host::store::in_flight::{self, ChannelContent};
use lockgate_host::store::{CheckpointStore, Manifest, ProgressOf, seal, take_up_progress, unseal};
use serde_json::json;

use crate::chance::Chance;
use crate::damage::{damaged, damaged_json};
use crate::files::name;
use crate::harness::Target;
use crate::text;

const MANIFEST: Target = Target {
    name: "manifest",
    seeds: 3_000,
    bytes_max: 512,
    memory_bytes_max: 8 << 20,
    outcomes: &["read", "refused"],
    case: manifest,
};
const IN_FLIGHT: Target = Target {
    name: "in_flight",
    seeds: 3_000,
    bytes_max: 512,
    memory_bytes_max: 8 << 20,
    outcomes: &["read", "refused"],
    case: in_flight,
};
const STORE: Target = Target {
    name: "store",
    seeds: 300,
    bytes_max: 512,
    memory_bytes_max: 16 << 20,
    outcomes: &["claimed", "refused", "verified"],
    case: store,
};
const PROGRESS: Target = Target {
    name: "progress",
    seeds: 300,
    bytes_max: 512,
    memory_bytes_max: 8 << 20,
    outcomes: &["taken-up", "refused"],
    case: progress,
};

#[test]
fn any_bytes_are_a_manifest_that_is_written_as_it_was_read_or_refused() {
    MANIFEST.run();
}

#[test]
fn any_bytes_are_records_in_flight_that_are_well_formed_or_refused() {
    IN_FLIGHT.run();
}

#[test]
fn a_store_with_files_that_no_host_writes_is_refused_or_goes_on() {
    STORE.run();
}

#[test]
fn any_record_of_progress_is_taken_up_or_refused() {
    PROGRESS.run();
}

const FIXTURE: &[u8] = include_bytes!("../../../src/store/fixtures/manifest-v4.json");

/// The JSON of a manifest that uses every field.
fn sample() -> &'static serde_json::Value {
    static SAMPLE: OnceLock<serde_json::Value> = OnceLock::new();
    SAMPLE.get_or_init(|| serde_json::from_slice(unseal(FIXTURE).expect("a fixture")).expect("JSON"))
}

/// Damaged beneath its checksum mostly: what is beyond would be noticed by that alone.
fn sealed(chance: &mut Chance<'_, '_>, good: &serde_json::Value) -> Vec<u8> {
    match chance.below(8) {
        0 => seal(good),
        1 => damaged(chance, &seal(good), &[]),
        2 => chance.bytes(100),
        _ => seal(&damaged_json(chance, good)),
    }
}

fn manifest(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    let bytes = sealed(chance, sample());
    chance.tell(|| String::from_utf8_lossy(&bytes).into_owned());
    let manifest = match Manifest::decode(&bytes) {
        Ok(manifest) => manifest,
        Err(error) => {
            text::check_error(&error)?;
            return Ok("refused");
        }
    };
    // All of it can be used as it is.
    let stays = |path: &str| path.starts_with("files/") && path.split('/').all(|part| !part.starts_with('.'));
    let paths = manifest.files().all(|file| stays(&file.path));
    let (next, attempt) = (manifest.epoch.next(), manifest.attempt.0 + 1);
    if !paths || next <= manifest.epoch || attempt == 0 {
        return Err(format!("{manifest:?}"));
    }
    match Manifest::decode(&manifest.encode()) {
        Ok(again) if again == manifest => Ok("read"),
        other => Err(format!("written again it is {other:?} and not {manifest:?}")),
    }
}

fn records() -> Vec<ChannelContent> {
    let mut full = Batch::default();
    full.push(Row { key: Some(b"k"), value: Some(b"value"), timestamp: 7 });
    full.push(Row { key: None, value: Some(b""), timestamp: -1 });
    full.push_header(Header { name: "n", value: Some(b"9") });
    let full = Arc::new(full);
    let batches = vec![Arc::clone(&full), Arc::new(Batch::with_capacity(0, 0))];
    vec![
        ChannelContent { edge: 1, sender: 3, batches },
        ChannelContent { edge: 0, sender: 0, batches: Vec::new() },
        ChannelContent { edge: 1, sender: 0, batches: vec![full] },
    ]
}

fn in_flight(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    const EDGES: usize = 2;
    let good = in_flight::encode(&records());
    let bytes = match chance.below(8) {
        0 => good,
        1 => [&good[..12], &chance.bytes(200)].concat(),
        _ => damaged(chance, &good, &[]),
    };
    chance.tell(|| format!("{bytes:02x?}"));
    let channels = match in_flight::decode(&bytes, EDGES) {
        Ok(channels) => channels,
        Err(error) => {
            text::check_error(&error)?;
            return Ok("refused");
        }
    };
    for channel in &channels {
        for batch in &channel.batches {
            batch.check().map_err(|error| error.to_string())?;
            // Every row can be read.
            let _bytes = (0..batch.rows as usize).map(|row| batch.headers(row).count()).sum::<usize>();
            let _rows = batch.iter().count();
        }
    }
    let again = in_flight::decode(&in_flight::encode(&channels), EDGES);
    match again {
        Ok(again) if again == channels => Ok("read"),
        other => Err(format!("written again it is {other:?} and not {channels:?}")),
    }
}

/// A job's folder whose identity, newest manifest and numbers may be damaged.
fn store(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("word-count");
    let uid = sample()["job_uid"].as_str().expect("a uid").to_owned();
    let identity = json!({ "version": 1, "job": "word-count", "uid": uid, "created_ms": 1 });
    let bytes = if chance.one_in(3) { sealed(chance, &identity) } else { seal(&identity) };
    let put = |path: String, bytes: &[u8]| {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, bytes).expect("written");
    };
    put("job.json".to_owned(), &bytes);
    let number = if chance.one_in(3) { chance.long() } else { 7 };
    let manifest = match chance.below(3) {
        0 => sealed(chance, sample()),
        _ => {
            // Its name says its epoch, as it has to.
            let mut manifest = if chance.one_in(2) { damaged_json(chance, sample()) } else { sample().clone() };
            if let Some(epoch) = manifest.get_mut("epoch") {
                *epoch = number.into();
            }
            let size = manifest.pointer_mut("/operators/count/subtasks/0/keyed/deltas/0/size_bytes");
            size.filter(|_| chance.one_in(3)).into_iter().for_each(|size| *size = u64::MAX.into());
            seal(&manifest)
        }
    };
    put(format!("0/manifests/{number:020}.json"), &manifest);
    if chance.one_in(2) {
        put(format!("0/attempts/{:020}.json", chance.long()), &chance.bytes(20));
    }
    chance.tell(|| format!("epoch {number}: {}", String::from_utf8_lossy(&manifest)));
    runtime().block_on(async {
        let store = match CheckpointStore::open(root.path(), &name("word-count"), 0).await {
            Ok(store) => store,
            Err(error) => return text::check_error(&error).map(|()| "refused"),
        };
        let epochs = store.epochs().await.map_err(|error| error.to_string())?;
        for listed in store.list().await.map_err(|error| error.to_string())? {
            listed.content.err().map_or(Ok(()), |error| text::check_error(&error))?;
        }
        let mut verified = false;
        for epoch in epochs {
            match store.verify(epoch).await {
                Ok(report) => {
                    verified = true;
                    report.problems.iter().try_for_each(|problem| text::check_error(problem))?;
                }
                Err(error) => text::check_error(&error)?,
            }
        }
        match store.claim_attempt().await {
            Ok(_) if verified => Ok("verified"),
            Ok(_) => Ok("claimed"),
            Err(error) => text::check_error(&error).map(|()| "refused"),
        }
    })
}

fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime"))
}

fn progress(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let splits = json!([{ "split": "a/0", "position": { "next": 5 } }, { "split": "b", "position": "5 ff done" }]);
    for file in ["text.0.json", "text.start.json"] {
        let good = json!({ "version": 1, "job_uid": "u", "attempt": 3, "splits": splits });
        let bytes = sealed(chance, &good);
        chance.tell(|| format!("{file}: {}", String::from_utf8_lossy(&bytes)));
        std::fs::write(folder.path().join(file), bytes).expect("written");
    }
    let of = ProgressOf { job_uid: JobUid("u".to_owned()), attempt: Attempt(4) };
    let taken = take_up_progress(folder.path(), &name("text"), &of, Some(Attempt(2)), Vec::new());
    match taken {
        Ok(splits) => {
            let once = splits.iter().map(|state| (&state.split, ())).collect::<BTreeMap<_, _>>();
            if once.len() == splits.len() { Ok("taken-up") } else { Err(format!("a split comes twice: {splits:?}")) }
        }
        Err(error) => text::check_error(&error).map(|()| "refused"),
    }
}

#[test]
fn the_sample_is_a_manifest() {
    let manifest = Manifest::decode(&seal(sample())).expect("good");
    assert_eq!(manifest.epoch, Epoch(7));
}
