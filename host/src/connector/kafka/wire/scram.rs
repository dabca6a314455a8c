//! The client's side of SCRAM (RFC 5802, RFC 7677), without channel binding, as Kafka has it.
//!
//! Pure: messages in, messages out; the nonce comes from outside.
//!
//! Invariant: the server is believed only if it proves at the end that it knows the password too.

use openssl::base64::{decode_block, encode_block};
use openssl::error::ErrorStack;
use openssl::hash::{MessageDigest, hash};
use openssl::memcmp;
use openssl::pkcs5::pbkdf2_hmac;
use openssl::pkey::PKey;
use openssl::sign::Signer;

/// Kafka has no fewer (RFC 7677 neither); with fewer, what was overheard is soon guessed.
const ITERATIONS_MIN: usize = 4_096;
/// Kafka has at most 16,384; more only keeps this machine busy.
const ITERATIONS_MAX: usize = 1_000_000;

/// "No channel binding", in base64.
const GS2_HEADER: &str = "n,,";
const GS2_HEADER_BASE64: &str = "biws";

pub(super) struct Scram<'a> {
    digest: MessageDigest,
    password: &'a [u8],
    nonce: String,
    first_bare: String,
}

/// What the server must still prove.
pub(super) struct Expected {
    signature: Vec<u8>,
}

impl<'a> Scram<'a> {
    /// `nonce`: random, printable, without a comma.
    pub fn new(digest: MessageDigest, user: &str, password: &'a [u8], nonce: &str) -> Scram<'a> {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Scram { digest, password, nonce: nonce.to_owned(), first_bare: format!("n={user},r={nonce}") }
    }

    pub fn first(&self) -> String {
        format!("{GS2_HEADER}{}", self.first_bare)
    }

    /// Answers the server's first message.
    ///
    /// # Errors
    /// Says in words what is wrong with that.
    pub fn last(&self, server_first: &str) -> Result<(String, Expected), String> {
        let (nonce, salt, iterations) = self.parse(server_first)?;
        let without_proof = format!("c={GS2_HEADER_BASE64},r={nonce}");
        let signed = format!("{},{server_first},{without_proof}", self.first_bare);
        let (proof, signature) = self.sign(&salt, iterations, signed.as_bytes()).map_err(|error| error.to_string())?;
        Ok((format!("{without_proof},p={}", encode_block(&proof)), Expected { signature }))
    }

    fn parse<'m>(&self, server_first: &'m str) -> Result<(&'m str, Vec<u8>, usize), String> {
        let mut parts = server_first.split(',');
        let mut part = |name: &str| {
            let value = parts.next().and_then(|part| part.strip_prefix(name));
            value.ok_or_else(|| format!("its first message has no '{name}'"))
        };
        // An extension (`m=`) before the nonce would have to be understood, so it is refused here too.
        let (nonce, salt, iterations) = (part("r=")?, part("s=")?, part("i=")?);
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("its nonce doesn't go on from ours".to_owned());
        }
        let salt = decode_block(salt).ok().filter(|salt| !salt.is_empty());
        let salt = salt.ok_or("its salt isn't base64")?;
        match iterations.parse::<usize>() {
            Ok(iterations @ ITERATIONS_MIN..=ITERATIONS_MAX) => Ok((nonce, salt, iterations)),
            Ok(_) | Err(_) => {
                Err(format!("it asks for {iterations} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are usual"))
            }
        }
    }

    /// The client's proof, and the signature that the server must show.
    fn sign(&self, salt: &[u8], iterations: usize, signed: &[u8]) -> Result<(Vec<u8>, Vec<u8>), ErrorStack> {
        let mut salted = vec![0; self.digest.size()];
        pbkdf2_hmac(self.password, salt, iterations, self.digest, &mut salted)?;
        let client_key = self.hmac(&salted, b"Client Key")?;
        let stored_key = hash(self.digest, &client_key)?;
        let client_signature = self.hmac(&stored_key, signed)?;
        let proof = client_key.iter().zip(client_signature).map(|(key, signature)| key ^ signature).collect();
        let server_key = self.hmac(&salted, b"Server Key")?;
        Ok((proof, self.hmac(&server_key, signed)?))
    }

    fn hmac(&self, key: &[u8], signed: &[u8]) -> Result<Vec<u8>, ErrorStack> {
        let key = PKey::hmac(key)?;
        Signer::new(self.digest, &key)?.sign_oneshot_to_vec(signed)
    }
}

impl Expected {
    /// Reads the server's last message.
    ///
    /// # Errors
    /// If it refuses, or doesn't prove that it knows the password.
    pub fn check(&self, server_last: &str) -> Result<(), String> {
        if let Some(refused) = server_last.strip_prefix("e=") {
            return Err(refused.chars().take(200).collect());
        }
        let shown = server_last.strip_prefix("v=").and_then(|rest| rest.split(',').next());
        let shown = shown.and_then(|shown| decode_block(shown).ok()).unwrap_or_default();
        match shown.len() == self.signature.len() && memcmp::eq(&shown, &self.signature) {
            true => Ok(()),
            false => {
                Err("it doesn't prove that it knows the password, so it isn't the broker that it seems".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Vector {
        digest: MessageDigest,
        nonce: &'static str,
        server_first: &'static str,
        client_last: &'static str,
        server_last: &'static str,
    }

    fn vectors() -> [Vector; 3] {
        [
            // RFC 5802, section 5.
            Vector {
                digest: MessageDigest::sha1(),
                nonce: "fyko+d2lbbFgONRv9qkxdawL",
                server_first: "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
                client_last: "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
                server_last: "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
            },
            // RFC 7677, section 3.
            Vector {
                digest: MessageDigest::sha256(),
                nonce: "rOprNGfwEbeRWgbNEkqO",
                server_first: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
                client_last: "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
                server_last: "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            },
            // No RFC has one for SHA-512. Computed by Python's hashlib and hmac.
            Vector {
                digest: MessageDigest::sha512(),
                nonce: "rOprNGfwEbeRWgbNEkqO",
                server_first: "r=rOprNGfwEbeRWgbNEkqO02ePsZXhWrCo1K7ZC2XrDmiR,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
                client_last: "c=biws,r=rOprNGfwEbeRWgbNEkqO02ePsZXhWrCo1K7ZC2XrDmiR,\
                    p=wco3QuK+KNytML33QxKi32fZWrYLbAzRL4AZfzXbL/xRTH3Db3EJuOxqOa+X+FbyvuZhoZlKnsamLhTwMWOHMw==",
                server_last: "v=GTYs05mH7kUEt4wP5ALTT6gpeB1mK1xNmUXvdw8ArHgbUNHOaX+csZ+eFkZUvkV/h0Jn+JSOWYXH1zP6lbYR6w==",
            },
        ]
    }

    #[test]
    fn the_published_exchanges_come_out_as_published() {
        for vector in vectors() {
            let scram = Scram::new(vector.digest, "user", b"pencil", vector.nonce);
            assert_eq!(scram.first(), format!("n,,n=user,r={}", vector.nonce));
            let (last, expected) = scram.last(vector.server_first).expect("a good first message");
            assert_eq!(last, vector.client_last);
            assert_eq!(expected.check(vector.server_last), Ok(()));
        }
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_not_believed() {
        let [_, vector, other] = vectors();
        let scram = Scram::new(vector.digest, "user", b"pencil", vector.nonce);
        let (_, expected) = scram.last(vector.server_first).expect("a good first message");
        for lie in ["", "v=", "v=%", "v=AAAA", other.server_last, "x=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="] {
            assert!(expected.check(lie).expect_err(lie).contains("prove"), "{lie}");
        }
        assert_eq!(expected.check("e=invalid-proof"), Err("invalid-proof".to_owned()));
    }

    proptest::proptest! {
        #[test]
        fn bytes_from_outside_are_no_proof_of_a_server(first in "(r=N[a-z]?,s=[A-Z=+/]{0,9},i=4[0-9]{0,3}.?)|.{0,40}", last in "(v=)?[A-Za-z=+/,]{0,60}") {
            let scram = Scram::new(MessageDigest::sha256(), "user", b"pencil", "N");
            if let Ok((_, expected)) = scram.last(&first) {
                proptest::prop_assert!(expected.check(&last).is_err());
            }
        }
    }

    #[test]
    fn a_first_message_that_lies_is_refused() {
        let scram = Scram::new(MessageDigest::sha256(), "user", b"pencil", "abc");
        for (first, says) in [
            ("", "r="),
            ("r=xyz1,s=AAAA,i=4096", "nonce"),
            ("r=abc,s=AAAA,i=4096", "nonce"),
            ("r=abc1,s=,i=4096", "salt"),
            ("r=abc1,s=!,i=4096", "salt"),
            ("r=abc1,s=AAAA,i=1", "iterations"),
            ("r=abc1,s=AAAA,i=4294967295", "iterations"),
            ("r=abc1,s=AAAA,i=-1", "iterations"),
            ("r=abc1,s=AAAA", "i="),
            ("m=x,r=abc1,s=AAAA,i=4096", "r="),
        ] {
            let refused = scram.last(first).err().unwrap_or_else(|| panic!("'{first}' is believed"));
            assert!(refused.contains(says), "{first}: {refused}");
        }
    }

    #[test]
    fn a_user_with_commas_and_equals_signs_stays_one_field() {
        assert_eq!(Scram::new(MessageDigest::sha256(), "a=b,c", b"", "N").first(), "n,,n=a=3Db=2Cc,r=N");
    }
}
