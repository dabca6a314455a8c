//! Asks for metrics and reads them as strictly as the format (text, version 0.0.4) is written down.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An answer over HTTP.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// Sends one request.
///
/// # Errors
/// If nobody answers in HTTP.
pub fn ask(address: &str, method: &str, path: &str) -> std::io::Result<Answer> {
    let malformed = || std::io::Error::other("no answer in HTTP/1.1");
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Ok(Answer { status: status.ok_or_else(malformed)?, headers, body: body.to_owned() })
}

/// A sample: its whole name, and its labels in order.
type Series = (String, Vec<(String, String)>);

/// All samples of one text.
#[derive(Debug, Default)]
pub struct Metrics {
    samples: BTreeMap<Series, f64>,
    /// Type by family.
    types: BTreeMap<String, String>,
}

impl Metrics {
    /// # Errors
    /// Says which line breaks which rule of the format.
    pub fn parse(text: &str) -> Result<Metrics, String> {
        if !text.ends_with('\n') {
            return Err("the last line has no end".to_owned());
        }
        let mut metrics = Metrics::default();
        let mut current = String::new();
        for line in text.lines() {
            let wrong = |rule: &str| format!("{rule}: {line}");
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, _) = help.split_once(' ').ok_or_else(|| wrong("help without text"))?;
                if metrics.types.contains_key(name) {
                    return Err(wrong("help after the family has begun"));
                }
            } else if let Some(typed) = line.strip_prefix("# TYPE ") {
                let (name, kind) = typed.split_once(' ').ok_or_else(|| wrong("type without a kind"))?;
                let known = ["counter", "gauge", "histogram"].contains(&kind);
                if !known || !is_name(name) || metrics.types.insert(name.to_owned(), kind.to_owned()).is_some() {
                    return Err(wrong("not a type of a new family"));
                }
                name.clone_into(&mut current);
            } else {
                let (series, value) = sample(line).ok_or_else(|| wrong("not a sample"))?;
                let kind = metrics.types.get(&current).ok_or_else(|| wrong("a sample before its type"))?;
                let suffix = series.0.strip_prefix(&current).ok_or_else(|| wrong("a sample of another family"))?;
                let fits = match kind.as_str() {
                    "histogram" => ["_bucket", "_sum", "_count"].contains(&suffix),
                    "counter" => suffix.is_empty() && current.ends_with("_total") && value >= 0.0,
                    _ => suffix.is_empty(),
                };
                if !fits || metrics.samples.insert(series, value).is_some() {
                    return Err(wrong("a sample that its family can't have, or has twice"));
                }
            }
        }
        metrics.check_histograms().map(|()| metrics)
    }

    fn check_histograms(&self) -> Result<(), String> {
        for (family, _) in self.types.iter().filter(|(_, kind)| *kind == "histogram") {
            let counts = self.samples.iter().filter(|((name, _), _)| *name == format!("{family}_count"));
            for ((_, labels), whole) in counts {
                self.check_histogram(family, labels, *whole)?;
            }
        }
        Ok(())
    }

    /// One histogram of a family: the one with these labels.
    fn check_histogram(&self, family: &str, labels: &[(String, String)], whole: f64) -> Result<(), String> {
        let mut counts = BTreeMap::new();
        for ((name, labels_of_bucket), count) in &self.samples {
            let others = labels_of_bucket.iter().filter(|(name, _)| name != "le");
            if *name != format!("{family}_bucket") || !others.eq(labels) {
                continue;
            }
            let bound = labels_of_bucket.iter().find(|(name, _)| name == "le").map(|(_, bound)| bound.as_str());
            let bound = bound.and_then(number).ok_or(format!("{family} has a bucket without a bound"))?;
            // Bounds aren't negative, so their bits are in their order.
            counts.insert(bound.to_bits(), *count);
        }
        let counts = counts.into_iter().collect::<Vec<_>>();
        let last = Some((f64::INFINITY.to_bits(), whole));
        if counts.windows(2).any(|pair| pair[0].1 > pair[1].1) || counts.last().copied() != last {
            return Err(format!("the buckets of {family} aren't cumulative up to its count"));
        }
        Ok(())
    }

    /// The value of the one series of this name that has all these labels.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |series: &Series, (name, value): &(&str, &str)| {
            series.1.iter().any(|label| (label.0.as_str(), label.1.as_str()) == (*name, *value))
        };
        let mut found =
            self.samples.iter().filter(|(series, _)| series.0 == name && labels.iter().all(|label| has(series, label)));
        let value = found.next().map(|(_, value)| *value);
        assert!(found.next().is_none(), "{name} with {labels:?} is several series");
        value
    }

    /// The sum of all series of this name that have this label.
    pub fn sum(&self, name: &str, label: (&str, &str)) -> f64 {
        let is_of = |series: &Series| {
            series.0 == name && series.1.iter().any(|(key, value)| (key.as_str(), value.as_str()) == label)
        };
        self.samples.iter().filter(|(series, _)| is_of(series)).map(|(_, value)| value).sum()
    }

    /// The families that there are.
    pub fn families(&self) -> impl Iterator<Item = &str> {
        self.types.keys().map(String::as_str)
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':')
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ => text.parse().ok().filter(|_| text.bytes().all(|byte| b"0123456789+-.eE".contains(&byte))),
    }
}

/// `name{label="value",...} number`, without a timestamp.
fn sample(line: &str) -> Option<(Series, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = number(value)?;
    let Some((name, rest)) = series.split_once('{') else {
        return is_name(series).then(|| ((series.to_owned(), Vec::new()), value));
    };
    let mut rest = rest.strip_suffix('}')?;
    let mut labels: Vec<(String, String)> = Vec::new();
    while !rest.is_empty() {
        let (label, quoted) = rest.split_once("=\"")?;
        // None of our values needs an escape, so a quote ends it.
        let (text, after) = quoted.split_once('"')?;
        let is_new = labels.iter().all(|(known, _)| known != label);
        if !is_name(label) || !is_new || text.contains('\\') {
            return None;
        }
        labels.push((label.to_owned(), text.to_owned()));
        rest = if after.is_empty() { after } else { after.strip_prefix(',')? };
    }
    is_name(name).then(|| ((name.to_owned(), labels), value))
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn a_good_text_is_read_and_a_bad_one_refused() {
        let good = "# HELP a_total Things\n# TYPE a_total counter\na_total{job=\"x\",n=\"0\"} 3\n# TYPE h histogram\n\
                    h_bucket{le=\"0.5\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 1.5\nh_count 2\n";
        let metrics = Metrics::parse(good).expect("good");
        assert_eq!(metrics.get("a_total", &[("n", "0")]), Some(3.0));
        for (from, to) in [
            ("a_total{", "b_total{"),
            ("counter", "count"),
            (" 3\n", " three\n"),
            (" 3\n", " -3\n"),
            ("job=\"x\"", "job=x"),
            ("n=\"0\"", "job=\"0\""),
            ("h_count 2", "h_count 3"),
            ("\"0.5\"} 1", "\"0.5\"} 7"),
            ("h_count 2\n", "h_count 2"),
            ("# TYPE h histogram\n", ""),
        ] {
            assert_ne!(good.replace(from, to), good);
            assert!(Metrics::parse(&good.replace(from, to)).is_err(), "{from} -> {to}");
        }
    }
}
