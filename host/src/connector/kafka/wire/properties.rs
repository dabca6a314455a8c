//! From the settings of librdkafka to those of our own connections, so that a job file says both at once.
//!
//! Invariant: a setting that changes who can be trusted or who logs in is followed or refused, never passed over.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Address, Login, Mechanism, Secret, Security, Settings, TlsFiles, WireError};

/// What to use where these connections can't go.
const KAFKAS_TOOLS: &str = "the connections of lockgate's tools know PLAINTEXT, SSL and SASL with PLAIN, SCRAM-SHA-256 and \
    SCRAM-SHA-512, with certificates in PEM files; otherwise use Kafka's own kafka-transactions.sh, kafka-topics.sh and \
    kafka-configs.sh. `lockgate run` takes what librdkafka takes";

/// Of the `ssl.` settings, those that can be followed, and those that make no difference to who is trusted.
const SSL_KNOWN: [&str; 10] = [
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
    "ssl.cipher.suites",
    "ssl.curves.list",
    "ssl.sigalgs.list",
    "ssl.providers",
];

impl Settings {
    /// `brokers` as in a job file, `properties` by librdkafka's names.
    ///
    /// # Errors
    /// The first setting that can't be followed.
    pub fn new(brokers: &str, properties: &BTreeMap<String, String>) -> Result<Settings, WireError> {
        let parsed = Address::parse_all(brokers);
        let refuse = || {
            refused("brokers", format!("= '{brokers}' isn't a list of HOST:PORT"), "write localhost:9092,other:9092")
        };
        let get = |key: &str| properties.get(key).map(String::as_str).filter(|value| !value.is_empty());
        Ok(Settings {
            brokers: parsed.ok_or_else(refuse)?,
            client_id: get("client.id").unwrap_or("lockgate").to_owned(),
            security: security(properties)?,
        })
    }
}

fn security(properties: &BTreeMap<String, String>) -> Result<Security, WireError> {
    let protocol = properties.get("security.protocol").map_or("plaintext", String::as_str);
    let (tls, sasl) = match protocol.to_ascii_lowercase().as_str() {
        "" | "plaintext" => (false, false),
        "ssl" => (true, false),
        "sasl_plaintext" => (false, true),
        "sasl_ssl" => (true, true),
        _ => {
            let problem = format!("= '{protocol}' is no protocol");
            return Err(refused("security.protocol", problem, "take plaintext, ssl, sasl_plaintext or sasl_ssl"));
        }
    };
    let tls = tls.then(|| tls_files(properties)).transpose()?;
    let login = sasl.then(|| login(properties)).transpose()?;
    Ok(Security { tls, login })
}

fn tls_files(properties: &BTreeMap<String, String>) -> Result<TlsFiles, WireError> {
    let get = |key: &str| properties.get(key).map(String::as_str).filter(|value| !value.is_empty());
    if let Some(key) = properties.keys().find(|key| key.starts_with("ssl.") && !SSL_KNOWN.contains(&key.as_str())) {
        return Err(refused(key, "can't be followed here".to_owned(), KAFKAS_TOOLS));
    }
    let path = |key: &str| get(key).map(PathBuf::from);
    let ca = path("ssl.ca.location").filter(|path| path.as_os_str() != "probe");
    let (certificate, key) = (path("ssl.certificate.location"), path("ssl.key.location"));
    if certificate.is_some() != key.is_some() {
        let problem = "is set without the other of ssl.certificate.location and ssl.key.location".to_owned();
        let lone = if key.is_some() { "ssl.key.location" } else { "ssl.certificate.location" };
        return Err(refused(lone, problem, "set both, or neither"));
    }
    let verify_name = match get("ssl.endpoint.identification.algorithm").unwrap_or("https") {
        "https" => true,
        "none" => false,
        other => {
            let problem = format!("= '{other}' is no algorithm");
            return Err(refused("ssl.endpoint.identification.algorithm", problem, "take https or none"));
        }
    };
    let verify = match get("enable.ssl.certificate.verification").unwrap_or("true") {
        "true" | "t" | "1" => true,
        "false" | "f" | "0" => false,
        other => {
            let problem = format!("= '{other}' is neither true nor false");
            return Err(refused("enable.ssl.certificate.verification", problem, "take true"));
        }
    };
    Ok(TlsFiles { ca, certificate, key, key_password: get("ssl.key.password").map(Secret::new), verify_name, verify })
}

fn login(properties: &BTreeMap<String, String>) -> Result<Login, WireError> {
    let get = |key: &str| properties.get(key).map(String::as_str).filter(|value| !value.is_empty());
    // librdkafka has both names, and this default.
    let mechanism = get("sasl.mechanism").or(get("sasl.mechanisms")).unwrap_or("GSSAPI");
    let mechanism = match mechanism.to_ascii_uppercase().as_str() {
        "PLAIN" => Mechanism::Plain,
        "SCRAM-SHA-256" => Mechanism::ScramSha256,
        "SCRAM-SHA-512" => Mechanism::ScramSha512,
        _ => return Err(refused("sasl.mechanism", format!("= '{mechanism}' can't be followed here"), KAFKAS_TOOLS)),
    };
    let need = |key: &str| {
        get(key).ok_or_else(|| refused(key, "isn't set".to_owned(), "set it in 'properties' or 'properties_file'"))
    };
    let (user, password) = (need("sasl.username")?.to_owned(), need("sasl.password")?);
    if user.contains('\0') || password.contains('\0') {
        return Err(refused("sasl.password", "or sasl.username has a zero byte".to_owned(), "take one without"));
    }
    Ok(Login { mechanism, user, password: Secret::new(password) })
}

fn refused(key: &str, problem: String, advice: &str) -> WireError {
    WireError::Setting { key: key.to_owned(), problem, advice: advice.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(properties: &[(&str, &str)]) -> Result<Settings, WireError> {
        let properties = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Settings::new("a:1,b", &properties)
    }

    #[test]
    fn the_settings_of_librdkafka_are_followed() {
        let plain = of(&[("client.id", "me")]).expect("plain");
        assert_eq!((plain.brokers.len(), plain.client_id.as_str()), (2, "me"));
        assert_eq!(plain.security, Security::default());
        let login = [("security.protocol", "SASL_SSL"), ("sasl.mechanisms", "SCRAM-SHA-512"), ("sasl.username", "u")];
        let all = of(&[&login[..], &[("sasl.password", "p"), ("ssl.ca.location", "/ca.pem")]].concat()).expect("all");
        let tls = all.security.tls.expect("TLS");
        assert!(tls.verify && tls.verify_name && tls.ca == Some("/ca.pem".into()), "{tls:?}");
        let login = all.security.login.expect("a login");
        assert_eq!(
            login,
            Login { mechanism: Mechanism::ScramSha512, user: "u".to_owned(), password: Secret::new("p") }
        );
        assert!(!format!("{login:?}").contains("\"p\""), "{login:?}");
        let lax = [("security.protocol", "ssl"), ("ssl.endpoint.identification.algorithm", "none")];
        assert!(!of(&lax).expect("lax").security.tls.expect("TLS").verify_name);
    }

    #[test]
    fn what_cannot_be_followed_is_refused_by_its_name_and_without_the_password() {
        let sasl = ("security.protocol", "sasl_plaintext");
        for (properties, key, says) in [
            (&[("security.protocol", "tls")][..], "security.protocol", "sasl_ssl"),
            (&[sasl], "sasl.mechanism", "kafka-transactions.sh"),
            (&[sasl, ("sasl.mechanism", "OAUTHBEARER")], "sasl.mechanism", "kafka-transactions.sh"),
            (&[sasl, ("sasl.mechanism", "PLAIN"), ("sasl.password", "hidden")], "sasl.username", "properties_file"),
            (&[("security.protocol", "ssl"), ("ssl.keystore.location", "x")], "ssl.keystore.location", "PEM"),
            (&[("security.protocol", "ssl"), ("ssl.key.location", "x")], "ssl.key.location", "both"),
        ] {
            let error = of(properties).expect_err(key);
            let said = format!("{error}; {}", error.help());
            assert!(said.starts_with(key) && said.contains(says) && !said.contains("hidden"), "{said}");
        }
        assert!(Settings::new("a:b", &BTreeMap::new()).expect_err("no port").to_string().starts_with("brokers"));
    }
}
