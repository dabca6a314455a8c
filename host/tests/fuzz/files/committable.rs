//! What a checkpoint keeps of the output of a file sink: whatever it says, nothing but parts of that sink's folder is made or changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lockgate_host::connector::{OpenSinks, SinkOptions, SinkToOpen};
use lockgate_host::element::{Batch, Row};
use lockgate_host::id::Epoch;
use lockgate_host::protocol::decision::Digest;
use lockgate_host::protocol::{CommitPermit, Guarantee, PublishReceipt};

use crate::chance::Chance;
use crate::damage::{damaged, damaged_json};
use crate::files::{context, name};
use crate::harness::Target;
use crate::text;

const COMMITTABLE: Target = Target {
    name: "committable",
    seeds: 300,
    bytes_max: 256,
    memory_bytes_max: 8 << 20,
    outcomes: &["committed", "refused"],
    case,
};

#[test]
fn whatever_is_to_be_committed_a_sink_keeps_to_its_folder() {
    COMMITTABLE.run();
}

/// Files below a folder, with their content.
fn files_of(folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files_of(&path, found);
        } else {
            found.insert(path.display().to_string(), fs::read(&path).expect("a file"));
        }
    }
}

fn case(chance: &mut Chance<'_, '_>) -> Result<&'static str, String> {
    const EPOCH: u64 = 7;
    let root = tempfile::tempdir().expect("a folder");
    // Where a path that leads out of the sink's folder might end.
    fs::write(root.path().join("passwd"), "theirs").expect("written");
    let out = root.path().join("a/b/out");
    let sink = name("out");
    let options: SinkOptions =
        serde_json::from_value(serde_json::json!({ "type": "file", "path": out })).expect("the options of a file sink");
    let sinks = BTreeMap::from([(sink.clone(), SinkToOpen { options, context: context("out", 2) })]);
    let sinks = OpenSinks::open(sinks, &BTreeMap::new(), Guarantee::ExactlyOnce).expect("its own folder");
    let mut writer = sinks.writer(&sink, 0).expect("a writer");
    let mut rows = Batch::default();
    rows.push(Row { key: None, value: Some(b"a line"), timestamp: 1 });
    writer.write(&rows).expect("written");
    let prepared = writer.prepare(Epoch(EPOCH)).expect("cut")().expect("prepared");
    let bytes = match chance.below(8) {
        0 => prepared.clone(),
        1 => damaged(chance, &prepared, &[]),
        2 => chance.bytes(100),
        _ => {
            let json = serde_json::from_slice(&prepared).expect("JSON");
            damaged_json(chance, &json).to_string().into_bytes()
        }
    };
    chance.tell(|| String::from_utf8_lossy(&bytes).into_owned());
    let mut before = BTreeMap::new();
    files_of(root.path(), &mut before);
    let permit = CommitPermit::new(PublishReceipt::for_published(Epoch(EPOCH), Digest(1)));
    let committed = sinks.committers()[&sink].commit(&permit, std::slice::from_ref(&bytes));
    let mut behind = BTreeMap::new();
    files_of(root.path(), &mut behind);
    let parts = out.join("part-").display().to_string();
    let own = out.join(".lockgate").display().to_string();
    let is_name = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    let is_own = |path: &String| path.strip_prefix(&parts).is_some_and(is_name) || path.starts_with(&own);
    let changed = behind.iter().find(|(path, content)| !is_own(path) && before.get(*path) != Some(content));
    let gone = before.keys().find(|path| !behind.contains_key(*path) && !path.starts_with(&own));
    if changed.is_some() || gone.is_some() {
        return Err(format!("changed: {changed:?}, gone: {gone:?}"));
    }
    match committed {
        Ok(()) => Ok("committed"),
        Err(_) if behind != before => Err("a commit that was refused has changed files".to_owned()),
        Err(error) => {
            text::check(&error.to_string())?;
            text::check(&error.help())?;
            Ok("refused")
        }
    }
}
