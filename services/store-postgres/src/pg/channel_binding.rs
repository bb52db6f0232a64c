//! Channel binding: a login with SCRAM proves that the client and the server see the same certificate, so a program
//! between them cannot relay the login.
//!
//! PostgreSQL has one type, `tls-server-end-point`: the server's certificate, hashed with the hash function of its
//! signature (<https://www.rfc-editor.org/rfc/rfc5929#section-4.1>).

use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};

/// The data that binds a login to this certificate (DER). `None` if the certificate's signature does not name one of the
/// hash functions below, as with Ed25519: RFC 5929 defines no channel binding then.
pub(super) fn tls_server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    Some(match hash_function(certificate)? {
        Hash::Sha224 => Sha224::digest(certificate).to_vec(),
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

#[derive(Clone, Copy)]
enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

// Object identifiers, or all but their last numbers (RFC 4055, RFC 5758).
const PKCS_1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
const ECDSA_WITH_SHA_1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1];
const ECDSA_WITH_SHA_2: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3];
const SHA_1: &[u8] = &[0x2b, 0x0e, 3, 2, 0x1a];
const SHA_2: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2];

// Tags of DER.
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const EXPLICIT_0: u8 = 0xa0;

/// The hash function for a certificate: that of its `signatureAlgorithm`, with SHA-256 in place of MD5 and SHA-1.
fn hash_function(certificate: &[u8]) -> Option<Hash> {
    let (certificate, _) = element(SEQUENCE, certificate)?;
    let (_to_be_signed, after) = element(SEQUENCE, certificate)?;
    let (algorithm, _) = element(SEQUENCE, after)?;
    let (name, parameters) = element(OBJECT_IDENTIFIER, algorithm)?;
    if name == ECDSA_WITH_SHA_1 {
        return Some(Hash::Sha256);
    }
    if let Some(number) = name.strip_prefix(ECDSA_WITH_SHA_2) {
        return match number {
            [1] => Some(Hash::Sha224),
            [2] => Some(Hash::Sha256),
            [3] => Some(Hash::Sha384),
            [4] => Some(Hash::Sha512),
            _ => None,
        };
    }
    match name.strip_prefix(PKCS_1)? {
        // MD5, SHA-1 and SHA-256.
        [4 | 5 | 11] => Some(Hash::Sha256),
        [10] => hash_function_of_pss(parameters),
        [12] => Some(Hash::Sha384),
        [13] => Some(Hash::Sha512),
        [14] => Some(Hash::Sha224),
        _ => None,
    }
}

/// The hash function in the parameters of RSA-PSS. Without one there it is SHA-1 (RFC 4055, section 3.1).
fn hash_function_of_pss(parameters: &[u8]) -> Option<Hash> {
    let (parameters, _) = element(SEQUENCE, parameters)?;
    if parameters.first() != Some(&EXPLICIT_0) {
        return Some(Hash::Sha256);
    }
    let (algorithm, _) = element(EXPLICIT_0, parameters)?;
    let (algorithm, _) = element(SEQUENCE, algorithm)?;
    let (name, _) = element(OBJECT_IDENTIFIER, algorithm)?;
    if name == SHA_1 {
        return Some(Hash::Sha256);
    }
    match name.strip_prefix(SHA_2)? {
        [1] => Some(Hash::Sha256),
        [2] => Some(Hash::Sha384),
        [3] => Some(Hash::Sha512),
        [4] => Some(Hash::Sha224),
        _ => None,
    }
}

/// The contents of the first DER element, which must have this tag, and what follows the element.
fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[found, length], rest) = der.split_first_chunk()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        // One to three bytes of length follow. TLS has no certificate over 16 MiB.
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            let length = bytes
                .iter()
                .fold(0, |length, &byte| (length << 8) | usize::from(byte));
            (length, rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    /// The content of an element, and what follows it.
    type Element<'a> = (&'a [u8], &'a [u8]);

    /// Certificates that OpenSSL made, each after a line with its signature algorithm.
    const SIGNATURES: &str = include_str!("../../tests/it/tls/signatures.pem");

    fn certificates() -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(SIGNATURES.as_bytes())
            .map(|certificate| certificate.expect("a certificate"))
            .collect()
    }

    #[test]
    fn the_signature_decides_the_hash_function() {
        // The number of bits, and the first bytes of what `openssl x509 -fingerprint` prints with that hash function.
        let expected = [
            ("RSA with MD5", Some((256, "e34015c59aa65a01"))),
            ("RSA with SHA-1", Some((256, "dfd8a7ca57f1668d"))),
            ("RSA with SHA-224", Some((224, "1af8f84af01e4b9f"))),
            ("RSA with SHA-256", Some((256, "6cc45e24e2df2591"))),
            ("RSA with SHA-384", Some((384, "80b6dcd15c5f24e4"))),
            ("RSA with SHA-512", Some((512, "66e8c750d56f0fe6"))),
            ("ECDSA with SHA-1", Some((256, "8a0a0cca6eb5de53"))),
            ("ECDSA with SHA-224", Some((224, "f462b04618a2c959"))),
            ("ECDSA with SHA-256", Some((256, "dd39e9551455026e"))),
            ("ECDSA with SHA-384", Some((384, "ba5e40adb9ae22bd"))),
            ("ECDSA with SHA-512", Some((512, "d41335572b5b457d"))),
            ("RSA-PSS with SHA-1", Some((256, "7acd3e2bc5e0e634"))),
            ("RSA-PSS with SHA-256", Some((256, "df462729e2f2c5c6"))),
            ("RSA-PSS with SHA-384", Some((384, "faa32e6e916e5dc9"))),
            ("RSA-PSS with SHA-512", Some((512, "0ae18c68bd974ed1"))),
            ("Ed25519", None),
            ("ECDSA with SHA3-256", None),
        ];
        assert_eq!(certificates().len(), expected.len());
        for (certificate, (name, expected)) in certificates().iter().zip(expected) {
            let found = tls_server_end_point(certificate).map(|hash| {
                let first: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
                (hash.len() * 8, first)
            });
            let expected = expected.map(|(bits, first)| (bits, first.to_owned()));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn a_truncated_certificate_has_no_channel_binding() {
        for certificate in certificates() {
            for length in 0..certificate.len() {
                assert_eq!(tls_server_end_point(&certificate[..length]), None);
            }
        }
    }

    #[test]
    fn an_element_ends_where_its_length_says() {
        let long = [&[SEQUENCE, 0x82, 1, 0][..], &[7; 256], b"after"].concat();
        let cases: [(&[u8], Option<Element<'_>>); 12] = [
            (b"\x30\x02abc", Some((b"ab", b"c"))),
            (b"\x30\x00", Some((b"", b""))),
            (b"\x30\x81\x01ab", Some((b"a", b"b"))),
            (&long, Some((&[7; 256], b"after"))),
            // Another tag, too short, without a length, of indefinite length, and longer than any certificate.
            (b"\x31\x02abc", None),
            (b"\x30\x04abc", None),
            (b"\x30\x82\x01", None),
            (b"\x30", None),
            (b"", None),
            (b"\x30\x80ab\x00\x00", None),
            (b"\x30\x84\x00\x00\x00\x01a", None),
            (b"\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
        ];
        for (der, expected) in cases {
            assert_eq!(element(SEQUENCE, der), expected, "{der:x?}");
        }
    }

    #[test]
    fn pss_may_name_the_hash_function_that_it_need_not_name() {
        let sha_1 = [&b"\x30\x0b\xa0\x09\x30\x07\x06\x05"[..], SHA_1].concat();
        let cases: [(&[u8], bool); 5] = [
            (&sha_1, true),
            // All defaults, and only the length of the salt.
            (b"\x30\x00", true),
            (b"\x30\x05\xa2\x03\x02\x01\x20", true),
            // Without parameters, and with those of RSA.
            (b"", false),
            (b"\x05\x00", false),
        ];
        for (parameters, is_sha_256) in cases {
            assert_eq!(
                matches!(hash_function_of_pss(parameters), Some(Hash::Sha256)),
                is_sha_256,
                "{parameters:x?}"
            );
        }
    }
}
