//! The page for people: the jobs and plugins of the daemon as they are now, in plain HTML.
//!
//! Invariant: everything that isn't written in this file is escaped, and the page loads nothing from anywhere.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use crate::api::refusal::Refusal;
use crate::api::{Api, to_its_end};
use crate::serve::{JobInfo, JobStatus, PartInfo, PartKind, PluginInfo};
use crate::units;

/// The page asks for itself again so often. Text alone is cheap.
const RELOAD_S: u32 = 5;

pub async fn show(State(api): State<Arc<Api>>) -> Result<impl IntoResponse, Refusal> {
    let (jobs, plugins) = to_its_end(async move { Ok((api.daemon.jobs(), api.daemon.plugins())) }).await?;
    Ok(([(CONTENT_TYPE, "text/html; charset=utf-8")], page(&jobs, &plugins)))
}

/// Text in HTML, between tags or quotes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

fn page(jobs: &[JobInfo], plugins: &[PluginInfo]) -> String {
    let mut html = format!(
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="{RELOAD_S}">
<meta name="viewport" content="width=device-width">
<title>Lockgate</title>
<style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }}
td.n, th.n {{ text-align: right; font-variant-numeric: tabular-nums; }}
.failed {{ color: #c00; }} .restarting {{ color: #b60; }} .running {{ color: #080; }}
small {{ opacity: .7; }}
</style>
</head>
<body>
<h1>Lockgate <small>{version}</small></h1>
<h2>Jobs</h2>
"#,
        version = env!("CARGO_PKG_VERSION")
    );
    let done = write_jobs(&mut html, jobs).and_then(|()| write_plugins(&mut html, plugins));
    done.expect("a string takes all");
    html.push_str(
        "<p><small><a href=\"/metrics\">metrics</a>, <a href=\"/openapi.json\">all requests (OpenAPI)</a></small></p>\n\
         </body>\n</html>\n",
    );
    html
}

fn write_jobs(html: &mut String, jobs: &[JobInfo]) -> fmt::Result {
    if jobs.is_empty() {
        return html.write_str("<p>None yet: <code>lockgate submit job.toml</code></p>\n");
    }
    html.write_str(
        "<table>\n<tr><th>job<th>status<th class=n>read/s<th class=n>written/s<th class=n>left to read\
         <th class=n>checkpoint<th class=n>restarts</tr>\n",
    )?;
    for job in jobs {
        let status = status_name(job.status);
        let rate = |kind, of: fn(&PartInfo) -> f64| {
            job.parts.values().filter(|part| part.kind == kind).map(of).sum::<f64>().round()
        };
        let read = rate(PartKind::Source, |part| part.records_out_per_s);
        let written = rate(PartKind::Sink, |part| part.records_in_per_s);
        let lags = job.parts.values().filter_map(|part| part.lag_records);
        let lag = lags.reduce(|sum, lag| sum.saturating_add(lag)).map_or("–".to_owned(), |lag| lag.to_string());
        let checkpoint = job.checkpoint.map_or("–".to_owned(), |newest| {
            format!("{}<br><small>{} s ago, {} ms</small>", newest.epoch, newest.age_ms / 1_000, newest.took_ms)
        });
        write!(html, "<tr><td>{}<td class={status}>{status}", Escaped(job.name.as_str()))?;
        if let Some(failure) = &job.failure {
            write!(html, "<br><small>{}</small>", Escaped(&failure.error))?;
        }
        if let Some(retry) = &job.retry {
            write!(html, "<br><small>{}; again in {} s</small>", Escaped(&retry.cause), retry.in_ms.div_ceil(1_000))?;
        }
        if let Some(upgrading) = &job.upgrading {
            let operator = Escaped(upgrading.operator.as_str());
            write!(html, "<br><small>{operator} is being upgraded to {:.12}</small>", upgrading.to.as_str())?;
        }
        writeln!(
            html,
            "<td class=n>{read}<td class=n>{written}<td class=n>{lag}<td class=n>{checkpoint}<td class=n>{}</tr>",
            job.restarts
        )?;
    }
    html.write_str("</table>\n")
}

fn write_plugins(html: &mut String, plugins: &[PluginInfo]) -> fmt::Result {
    html.write_str("<h2>Plugins</h2>\n")?;
    if plugins.is_empty() {
        return html.write_str("<p>None yet: <code>lockgate plugin load my_op.wasm</code></p>\n");
    }
    html.write_str("<table>\n<tr><th>plugin<th>operator<th class=n>size<th>used by</tr>\n")?;
    for plugin in plugins {
        let operator = match (&plugin.operator, &plugin.problem) {
            (Some(facts), _) => format!("{} {}", Escaped(&facts.name), Escaped(&facts.version)),
            (None, problem) => format!("<span class=failed>{}</span>", Escaped(problem.as_deref().unwrap_or_default())),
        };
        let used_by = plugin.used_by.iter().map(|job| job.as_str()).collect::<Vec<_>>().join(", ");
        let size = units::size::format(plugin.size_bytes.next_multiple_of(1 << 10));
        let (hash, used_by) = (Escaped(plugin.hash.as_str()), Escaped(&used_by));
        writeln!(
            html,
            "<tr><td><code title=\"{hash}\">{:.12}</code><td>{operator}<td class=n>{size}<td>{used_by}</tr>",
            plugin.hash.as_str()
        )?;
    }
    html.write_str("</table>\n")
}

fn status_name(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Starting => "starting",
        JobStatus::Running => "running",
        JobStatus::Restarting => "restarting",
        JobStatus::Stopping => "stopping",
        JobStatus::Stopped => "stopped",
        JobStatus::Ended => "ended",
        JobStatus::Failed => "failed",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::id::{Name, PluginHash};
    use crate::serve::FailureInfo;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn failed_job(error: &str) -> JobInfo {
        JobInfo {
            name: name("words"),
            status: JobStatus::Failed,
            resumes: false,
            failure: Some(FailureInfo { error: error.to_owned(), causes: Vec::new(), help: None, at_ms: 1 }),
            retry: None,
            submitted_at_ms: 1,
            started_at_ms: None,
            uptime_ms: None,
            restarts: 3,
            guarantee: None,
            checkpoints: 0,
            checkpoint: None,
            parts: BTreeMap::new(),
            plugins: BTreeMap::new(),
            upgrading: None,
            state_dir: None,
            store: None,
            warnings: Vec::new(),
            job_toml: String::new(),
            base_dir: None,
        }
    }

    #[test]
    fn what_a_job_or_a_component_says_is_text_and_never_markup() {
        let hash = PluginHash::new(&"ab".repeat(32)).expect("a hash");
        let plugin = PluginInfo {
            hash,
            size_bytes: 100_000,
            added_at_ms: 1,
            operator: None,
            problem: Some("<script src=\"//evil.example\"></script>".to_owned()),
            used_by: vec![name("words")],
        };
        let html = page(&[failed_job("it's <b>\"bad\"</b> & worse")], &[plugin]);
        assert!(html.contains("it&#39;s &lt;b&gt;&quot;bad&quot;&lt;/b&gt; &amp; worse"), "{html}");
        assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        assert!(html.contains("<td class=failed>failed") && html.contains("98KiB"), "{html}");
    }

    #[test]
    fn an_empty_daemon_says_how_to_begin() {
        let html = page(&[], &[]);
        assert!(html.contains("lockgate submit job.toml") && html.contains("lockgate plugin load"), "{html}");
        assert!(html.ends_with("</html>\n"));
    }
}
