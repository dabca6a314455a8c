//! Where a job file stands: what its relative paths are relative to, and where state is that it doesn't place itself.
//!
//! Invariant: a job file that came without a folder has no relative path, or is refused.

use std::path::{Path, PathBuf};

use crate::config::job_file::{Component, JobFile};
use crate::connector::{SinkOptions, SourceOptions};
use crate::id::Name;

/// Where a job file stands.
pub struct Standing<'a> {
    /// As errors name it.
    pub path: &'a Path,
    /// Of its relative paths. Empty: they stay as they are.
    pub base: &'a Path,
    /// The state directory of a job that names none.
    pub state_dir: &'a dyn Fn(&Name) -> PathBuf,
}

impl JobFile {
    /// A path in it that isn't absolute, with what it is, if there is one.
    pub fn relative_path(&self) -> Option<(String, &Path)> {
        let of_job = [
            ("state_dir of [job]".to_owned(), self.state_dir.as_path()),
            ("store of [checkpoint]".to_owned(), self.checkpoint.store.as_path()),
        ];
        let of_sources = self.sources.iter().filter_map(|(name, source)| match &source.options {
            SourceOptions::File(options) => Some((format!("path of [source.{name}]"), options.path.as_path())),
            SourceOptions::Kafka(options) => {
                Some((format!("properties_file of [source.{name}]"), options.properties_file.as_deref()?))
            }
            SourceOptions::Generator(_) | SourceOptions::Nexmark(_) => None,
        });
        let of_operators = self.operators.iter().filter_map(|(name, operator)| match &operator.wasm {
            Component::File(path) => Some((format!("wasm of [operator.{name}]"), path.as_path())),
            Component::Plugin(_) => None,
        });
        let of_sinks = self.sinks.iter().filter_map(|(name, sink)| match &sink.options {
            SinkOptions::File(options) => Some((format!("path of [sink.{name}]"), options.path.as_path())),
            SinkOptions::Kafka(options) => {
                Some((format!("properties_file of [sink.{name}]"), options.properties_file.as_deref()?))
            }
            SinkOptions::Null(_) => None,
        });
        let all = of_sources.chain(of_operators).chain(of_sinks).chain(of_job);
        all.into_iter().find(|(_, path)| path.is_relative())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigError;

    fn parse(base: &str, text: &str) -> Result<JobFile, ConfigError> {
        let state_dir = |name: &Name| Path::new("/data").join(name.as_str());
        JobFile::parse_at(&Standing { path: "job.toml".as_ref(), base: base.as_ref(), state_dir: &state_dir }, text)
    }

    const JOB: &str = "[job]\nname = 'a'\n[source.in]\ntype = 'file'\npath = 'in'\n[operator.op]\nwasm = 'op.wasm'\n\
                       input = 'in'\n[sink.out]\ntype = 'file'\npath = 'out'\ninput = 'op'\n";

    #[test]
    fn paths_are_relative_to_the_base_and_state_is_where_the_standing_says() {
        let file = parse("/jobs", JOB).expect("a job file");
        assert_eq!(file.operators[&Name::new("op").expect("a name")].wasm, Component::File("/jobs/op.wasm".into()));
        assert_eq!(file.state_dir, Path::new("/data/a"));
        assert_eq!(file.checkpoint.store, Path::new("/data/a/checkpoints"));
        assert_eq!(file.relative_path(), None);
        let own = JOB.replace("name = 'a'", "name = 'a'\nstate_dir = 'own'");
        assert_eq!(parse("/jobs", &own).expect("a job file").state_dir, Path::new("/jobs/own"));
    }

    #[test]
    fn without_a_base_every_relative_path_is_found() {
        let mut text = JOB.to_owned();
        for (from, to, found) in [
            ("path = 'in'", "path = '/in'", "path of [source.in]"),
            ("'op.wasm'", "'/op.wasm'", "wasm of [operator.op]"),
            ("path = 'out'", "path = '/out'", "path of [sink.out]"),
        ] {
            let file = parse("", &text).expect("a job file");
            assert_eq!(file.relative_path().map(|(key, _)| key).as_deref(), Some(found));
            text = text.replace(from, to);
        }
        assert_eq!(parse("", &text).expect("a job file").relative_path(), None);
        let stored = text.replace("name = 'a'", "name = 'a'\n[checkpoint]\nstore = 'x'");
        let file = parse("", &stored).expect("a job file");
        assert_eq!(file.relative_path().map(|(key, _)| key).as_deref(), Some("store of [checkpoint]"));
    }

    #[test]
    fn an_error_names_the_line_as_for_a_file() {
        let error = parse("/jobs", &JOB.replace("path = 'out'", "pat = 'out'")).expect_err("a typing mistake");
        assert!(error.to_string().starts_with("job.toml:11: unknown key 'pat'"), "{error}");
    }

    #[test]
    fn a_component_is_a_path_or_the_hash_of_a_plugin() {
        let digits = "0123456789abcdef".repeat(4);
        let file = parse("/jobs", &JOB.replace("op.wasm", &format!("sha256:{digits}"))).expect("a job file");
        let component = &file.operators[&Name::new("op").expect("a name")].wasm;
        assert_eq!(component.to_string(), format!("sha256:{digits}"));
        assert_eq!(component.as_file(), None);
        for wrong in [&digits[1..], &digits.to_uppercase(), ""] {
            let error = parse("/jobs", &JOB.replace("op.wasm", &format!("sha256:{wrong}"))).expect_err("no hash");
            assert!(error.to_string().starts_with("job.toml:7: operator.op.wasm: "), "{error}");
            assert!(error.help().is_some_and(|help| help.contains("./sha256:")), "{error}");
        }
    }
}
