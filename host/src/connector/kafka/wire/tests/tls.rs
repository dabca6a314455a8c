//! TLS, with a broker whose certificate was made a moment ago.

use std::net::TcpListener;
use std::path::PathBuf;

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::ssl::{SslAcceptor, SslMethod};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Name};

use super::super::connection::Connection;
use super::super::{Address, Security, TlsFiles, WireError};
use super::script::{serve, settings, versions};

/// A certificate for this name, signed by itself.
fn certificate(host: &str) -> (X509, PKey<Private>) {
    let key = PKey::from_rsa(Rsa::generate(2_048).expect("a key")).expect("a key");
    let mut name = X509Name::builder().expect("a name");
    name.append_entry_by_text("CN", host).expect("a name");
    let name = name.build();
    let mut builder = X509::builder().expect("a certificate");
    builder.set_version(2).expect("version 3");
    let number = BigNum::from_u32(7).and_then(|number| number.to_asn1_integer()).expect("a number");
    builder.set_serial_number(&number).expect("a number");
    builder.set_subject_name(&name).expect("a name");
    builder.set_issuer_name(&name).expect("a name");
    builder.set_pubkey(&key).expect("a key");
    builder.set_not_before(&Asn1Time::days_from_now(0).expect("today")).expect("today");
    builder.set_not_after(&Asn1Time::days_from_now(2).expect("a day")).expect("a day");
    builder.append_extension(BasicConstraints::new().critical().ca().build().expect("a CA")).expect("a CA");
    let names = SubjectAlternativeName::new().dns(host).build(&builder.x509v3_context(None, None)).expect("a name");
    builder.append_extension(names).expect("a name");
    builder.sign(&key, MessageDigest::sha256()).expect("signed");
    (builder.build(), key)
}

/// Connects to a broker whose certificate is for `host`, trusting `trusted` (that certificate, or another's).
fn connect(host: &str, trust_it: bool, change: impl FnOnce(&mut TlsFiles)) -> Result<(), WireError> {
    let folder = tempfile::tempdir().expect("a folder");
    let (own, key) = certificate(host);
    let ca = folder.path().join("ca.pem");
    let trusted = if trust_it { own.clone() } else { certificate(host).0 };
    std::fs::write(&ca, trusted.to_pem().expect("PEM")).expect("written");
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).expect("a server");
    acceptor.set_certificate(&own).expect("a certificate");
    acceptor.set_private_key(&key).expect("a key");
    let acceptor = acceptor.build();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        // A client that doesn't trust the server goes away in the handshake.
        acceptor.accept(stream).map(|stream| serve(stream, vec![versions(&[])])).unwrap_or_default()
    });
    let mut files =
        TlsFiles { ca: Some(ca), certificate: None, key: None, key_password: None, verify_name: true, verify: true };
    change(&mut files);
    let address = Address { host: "localhost".to_owned(), port };
    let security = Security { tls: Some(files), login: None };
    let outcome = Connection::open(&address, &settings(&address, security)).map(|_| ());
    if matches!(outcome, Err(WireError::Setting { .. })) {
        // Nobody has spoken to the server.
        drop(std::net::TcpStream::connect(("127.0.0.1", port)));
    }
    server.join().expect("a server");
    outcome
}

#[test]
fn a_broker_with_the_right_certificate_is_trusted() {
    connect("localhost", true, |_| {}).expect("trusted");
}

#[test]
fn a_broker_with_another_certificate_or_for_another_name_is_not() {
    for (host, trust_it) in [("localhost", false), ("other.example", true)] {
        let error = connect(host, trust_it, |_| {}).expect_err("not trusted");
        assert!(matches!(error, WireError::Tls { .. }) && error.to_string().contains("certificate"), "{error}");
    }
}

#[test]
fn checks_that_are_switched_off_are_not_made() {
    connect("other.example", true, |files| files.verify_name = false).expect("any name");
    connect("localhost", false, |files| files.verify = false).expect("anybody");
}

#[test]
fn files_that_cannot_be_used_are_named_by_their_setting() {
    let missing = || Some(PathBuf::from("/nowhere.pem"));
    let error = connect("localhost", true, |files| files.ca = missing()).expect_err("no such file");
    assert!(error.to_string().starts_with("ssl.ca.location = /nowhere.pem"), "{error}");
    let error = connect("localhost", true, |files| {
        files.certificate = files.ca.clone();
        files.key = missing();
    });
    assert!(error.expect_err("no such file").to_string().starts_with("ssl.key.location = /nowhere.pem"));
}
