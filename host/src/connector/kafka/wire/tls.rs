//! TLS by OpenSSL, with the certificates that librdkafka would take.
//!
//! Invariant: a certificate file that can't be read is an error; it never means trusting the system's or nobody's.

use std::path::Path;

use openssl::pkey::PKey;
use openssl::ssl::{SslConnector, SslMethod, SslStream, SslVerifyMode, SslVersion};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;

use super::security::TlsFiles;
use super::stream::Timed;
use super::{Address, WireError};

/// # Errors
/// If the files can't be used, or the broker isn't who it should be.
pub(super) fn wrap(broker: &Address, files: &TlsFiles, timed: Timed) -> Result<SslStream<Timed>, WireError> {
    let broken = |problem: String| WireError::Tls { broker: broker.clone(), problem };
    let connector = connector(files)?;
    let mut configured = connector.configure().map_err(|error| broken(error.to_string()))?;
    configured.set_verify_hostname(files.verify && files.verify_name);
    configured.connect(&broker.host, timed).map_err(|error| broken(error.to_string()))
}

fn connector(files: &TlsFiles) -> Result<SslConnector, WireError> {
    let failed = |key: &'static str, path: &Path| {
        let shown = path.display().to_string();
        move |problem: String| WireError::Setting {
            key: key.to_owned(),
            problem: format!("= {shown} can't be used: {problem}"),
            advice: "give a file with certificates or a key in PEM that this user can read".to_owned(),
        }
    };
    let unusual = |error: openssl::error::ErrorStack| WireError::Setting {
        key: "security.protocol".to_owned(),
        problem: format!("needs OpenSSL, which doesn't start: {error}"),
        advice: "check the OpenSSL configuration of this machine".to_owned(),
    };
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(unusual)?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2)).map_err(unusual)?;
    if !files.verify {
        builder.set_verify(SslVerifyMode::NONE);
    }
    if let Some(path) = &files.ca {
        let failed = failed("ssl.ca.location", path);
        // In place of those of the system, not besides them.
        let mut store = X509StoreBuilder::new().map_err(unusual)?;
        for certificate in certificates(path).map_err(&failed)? {
            store.add_cert(certificate).map_err(|error| failed(error.to_string()))?;
        }
        builder.set_cert_store(store.build());
    }
    if let (Some(path), Some(key_path)) = (&files.certificate, &files.key) {
        let (failed, key_failed) = (failed("ssl.certificate.location", path), failed("ssl.key.location", key_path));
        let mut chain = certificates(path).map_err(&failed)?.into_iter();
        let own = chain.next().ok_or_else(|| failed("it has no certificate".to_owned()))?;
        builder.set_certificate(&own).map_err(|error| failed(error.to_string()))?;
        for certificate in chain {
            builder.add_extra_chain_cert(certificate).map_err(|error| failed(error.to_string()))?;
        }
        let pem = std::fs::read(key_path).map_err(|error| key_failed(error.to_string()))?;
        // Asked for a password that isn't set, OpenSSL would ask on the terminal.
        let password = files.key_password.as_ref().map_or(&b""[..], |password| password.bytes());
        let key =
            PKey::private_key_from_pem_passphrase(&pem, password).map_err(|error| key_failed(error.to_string()))?;
        builder.set_private_key(&key).map_err(|error| key_failed(error.to_string()))?;
        builder.check_private_key().map_err(|error| key_failed(error.to_string()))?;
    }
    Ok(builder.build())
}

/// Those of a file, or of all files of a folder.
fn certificates(path: &Path) -> Result<Vec<X509>, String> {
    let said = |error: std::io::Error| error.to_string();
    if !path.is_dir() {
        let pem = std::fs::read(path).map_err(said)?;
        let found = X509::stack_from_pem(&pem).map_err(|error| error.to_string())?;
        return if found.is_empty() { Err("it has no certificate".to_owned()) } else { Ok(found) };
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(said)? {
        // A folder of certificates has other things too, as OpenSSL's own links.
        let pem = std::fs::read(entry.map_err(said)?.path()).unwrap_or_default();
        found.extend(X509::stack_from_pem(&pem).unwrap_or_default());
    }
    if found.is_empty() { Err("no file in it has a certificate".to_owned()) } else { Ok(found) }
}
