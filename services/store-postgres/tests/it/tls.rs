//! Encrypted connections, through a server in front of PostgreSQL that terminates TLS.
//!
//! `tls/` holds the certificate of an authority that exists only for these tests, and a certificate that it issued for
//! `localhost`, with its key.

use std::sync::Arc;

use context_store::Store as _;
use context_store_postgres::{Config, OpenError, Parts, PostgresStore, SslMode, Target};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::arrange::{config, database};
use super::proxy::authority;

const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls/authority.pem");

/// Starts a server that accepts TLS and passes what it decrypts to PostgreSQL. Returns its port.
async fn terminator(url: &str) -> u16 {
    let certificate =
        CertificateDer::from_pem_slice(include_bytes!("tls/server.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/server.key")).expect("a key");
    let settings = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .expect("protocol versions")
    .with_no_client_auth()
    .with_single_cert(vec![certificate], key)
    .expect("certificate and key belong together");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(settings));
    let server = authority(url);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (acceptor, server) = (acceptor.clone(), server.clone());
            tokio::spawn(async move {
                let mut request = [0; 8];
                client.read_exact(&mut request).await?;
                // An SSLRequest: https://www.postgresql.org/docs/current/protocol-message-formats.html
                if request != [0, 0, 0, 8, 4, 210, 22, 47] {
                    return Ok(());
                }
                client.write_all(b"S").await?;
                let mut client = acceptor.accept(client).await?;
                let mut server = TcpStream::connect(server).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await?;
                std::io::Result::Ok(())
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mode_trusts_what_it_promises() {
    let Some(database) = database().await else {
        return;
    };
    let port = terminator(database.url()).await;
    let to = |host: &str, parameters: &str| {
        let url = database
            .url()
            .replacen(&authority(database.url()), &format!("{host}:{port}"), 1);
        config(&format!("{url}?{parameters}"))
    };
    let own = format!("sslrootcert={AUTHORITY}");
    for (host, parameters) in [
        ("localhost", "sslmode=require".to_owned()),
        ("127.0.0.1", "sslmode=prefer".to_owned()),
        ("localhost", format!("sslmode=verify-full&{own}")),
        ("127.0.0.1", format!("sslmode=verify-ca&{own}")),
        ("127.0.0.1", format!("sslmode=require&{own}")),
    ] {
        let store = PostgresStore::open(to(host, &parameters))
            .await
            .unwrap_or_else(|error| panic!("{host} {parameters}: {error}"));
        store.check().await.expect("it responds");
    }
    for (host, parameters, words) in [
        // The certificate is valid only for localhost.
        (
            "127.0.0.1",
            format!("sslmode=verify-full&{own}"),
            "not valid for name",
        ),
        ("localhost", "sslmode=verify-full".to_owned(), ""),
        ("localhost", "sslmode=verify-ca".to_owned(), ""),
        (
            "localhost",
            "sslmode=verify-ca&sslrootcert=/no/such/file.pem".to_owned(),
            "/no/such/file.pem",
        ),
    ] {
        let refused = PostgresStore::open(to(host, &parameters))
            .await
            .expect_err("it is not trusted");
        assert!(
            matches!(refused, OpenError::Connect { .. } | OpenError::Tls(_)),
            "{refused:?}"
        );
        assert!(
            refused.to_string().contains(words),
            "{host} {parameters}: {refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_when_it_is_required() {
    let Some(database) = database().await else {
        return;
    };
    let client = database.connect().await;
    let has_tls: String = client
        .query_one("SHOW ssl", &[])
        .await
        .expect("the server shows its setting")
        .get(0);
    if has_tls == "on" {
        return;
    }
    let refused = PostgresStore::open(config(&format!("{}?sslmode=require", database.url())))
        .await
        .expect_err("it has no TLS");
    assert!(
        refused.to_string().contains("does not support TLS"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_setting_verifies_where_the_string_names_no_mode() {
    let Some(database) = database().await else {
        return;
    };
    let port = terminator(database.url()).await;
    let to = |host: &str, parameters: &str, mode: SslMode| {
        let url = database
            .url()
            .replacen(&authority(database.url()), &format!("{host}:{port}"), 1);
        let url = format!("{url}?{parameters}");
        Config::new(Target::parse_with(&url, Some(mode)).expect("a proper URL"))
    };
    let own = format!("sslrootcert={AUTHORITY}");
    for (host, mode) in [
        ("localhost", SslMode::VerifyFull),
        ("127.0.0.1", SslMode::VerifyCa),
    ] {
        let store = PostgresStore::open(to(host, &own, mode))
            .await
            .unwrap_or_else(|error| panic!("{host} {mode:?}: {error}"));
        store.check().await.expect("it answers");
    }
    let refused = PostgresStore::open(to("127.0.0.1", &own, SslMode::VerifyFull))
        .await
        .expect_err("the certificate is for localhost only");
    assert!(
        refused.to_string().contains("not valid for name"),
        "{refused}"
    );
    // Without its file, the tests' authority is unknown.
    let refused =
        PostgresStore::open(to("localhost", "connect_timeout=9", SslMode::VerifyFull)).await;
    assert!(
        matches!(refused, Err(OpenError::Connect { .. } | OpenError::Tls(_))),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_setting_verifies_a_server_that_separate_settings_name() {
    let Some(database) = database().await else {
        return;
    };
    let encrypted = terminator(database.url()).await;
    let url: tokio_postgres::Config = database.url().parse().expect("a proper URL");
    let password = String::from_utf8_lossy(url.get_password().unwrap_or_default()).into_owned();
    let plain = authority(database.url());
    let (plain_host, plain_port) = plain.rsplit_once(':').expect("host and port");
    let plain_port = plain_port.parse().expect("a port");
    let open = |host: &str, port: u16, ssl_mode: SslMode| {
        PostgresStore::open(Config::new(Target::from_parts(&Parts {
            host,
            port,
            user: url.get_user().expect("a user"),
            password: &password,
            database: url.get_dbname().expect("a database"),
            ssl_mode,
        })))
    };
    open("localhost", encrypted, SslMode::Require)
        .await
        .expect("require accepts any certificate");
    let refused = open("localhost", encrypted, SslMode::VerifyFull).await;
    assert!(
        matches!(refused, Err(OpenError::Connect { .. } | OpenError::Tls(_))),
        "the system does not know the authority: {refused:?}"
    );
    let client = database.connect().await;
    let has_tls: String = client
        .query_one("SHOW ssl", &[])
        .await
        .expect("the server shows its setting")
        .get(0);
    if has_tls == "on" {
        return;
    }
    open(plain_host, plain_port, SslMode::Prefer)
        .await
        .expect("prefer accepts a server without TLS");
    for mode in [SslMode::Require, SslMode::VerifyFull] {
        let refused = open(plain_host, plain_port, mode)
            .await
            .expect_err("it has no TLS");
        assert!(
            refused.to_string().contains("does not support TLS"),
            "{mode:?}: {refused}"
        );
    }
}
