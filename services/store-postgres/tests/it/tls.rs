//! Encrypted connections, most of them through a server in front of PostgreSQL that terminates TLS.
//!
//! `tls/` holds the certificate of an authority that exists only for these tests, and a certificate that it issued for
//! `localhost`, with its key. `tls/signatures.pem` belongs to the tests in `src/pg/channel_binding.rs`.

use std::io;
use std::sync::Arc;

use context_store::Store as _;
use context_store_postgres::{Config, OpenError, Parts, PostgresStore, SslMode, Target};
use context_test_postgres::{Server, programs};
use context_test_support::Deadline;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::arrange::{config, database};
use super::proxy::authority;

const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls/authority.pem");

/// The `tls-server-end-point` of `tls/server.pem`, as the `c=` of SCRAM: base64 of `p=tls-server-end-point,,` and the
/// SHA-256 that `openssl x509 -fingerprint -sha256` prints.
const BINDING: &str =
    "cD10bHMtc2VydmVyLWVuZC1wb2ludCwsXWttAZO5rhw0altSQMVu4vb8xWCVkaVt7jOZUU0PfRE=";

/// The words for an authority that is not known: either the system knows only others, or it knows none.
const UNKNOWN_AUTHORITY: [&str; 2] = ["UnknownIssuer", "no certificates of authorities"];

/// The store was not opened, because it does not trust the server's certificate.
fn assert_refused(opened: Result<PostgresStore, OpenError>, words: &[&str], case: &str) {
    let refused = opened.expect_err("it is not trusted");
    assert!(
        matches!(refused, OpenError::Connect { .. } | OpenError::Tls(_)),
        "{case}: {refused:?}"
    );
    let sentence = refused.to_string();
    assert!(
        words.iter().any(|words| sentence.contains(*words)),
        "{case}: {sentence}"
    );
}

/// Accepts TLS with the certificate for `localhost`.
fn acceptor() -> TlsAcceptor {
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
    TlsAcceptor::from(Arc::new(settings))
}

/// Encrypts a connection whose client asks for it as PostgreSQL's clients do.
async fn encrypted(
    mut client: TcpStream,
    acceptor: &TlsAcceptor,
) -> io::Result<TlsStream<TcpStream>> {
    let mut request = [0; 8];
    client.read_exact(&mut request).await?;
    // An SSLRequest: https://www.postgresql.org/docs/current/protocol-message-formats.html
    if request != [0, 0, 0, 8, 4, 210, 22, 47] {
        return Err(io::ErrorKind::InvalidData.into());
    }
    client.write_all(b"S").await?;
    acceptor.accept(client).await
}

/// Starts a server that accepts TLS and passes what it decrypts to PostgreSQL. Returns its port.
async fn terminator(url: &str) -> u16 {
    let acceptor = acceptor();
    let server = authority(url);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (acceptor, server) = (acceptor.clone(), server.clone());
            tokio::spawn(async move {
                let mut client = encrypted(client, &acceptor).await?;
                let mut server = TcpStream::connect(server).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await?;
                io::Result::Ok(())
            });
        }
    });
    port
}

/// Reads the length and the body of a message of the protocol.
async fn body(client: &mut TlsStream<TcpStream>) -> io::Result<String> {
    let length = client.read_u32().await?.saturating_sub(4);
    let mut body = vec![0; length as usize];
    client.read_exact(&mut body).await?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// Sends a message, and reads the response if it is one of the login's.
async fn ask(client: &mut TlsStream<TcpStream>, tag: u8, message: &[u8]) -> io::Result<String> {
    let length = u32::try_from(message.len() + 4).expect("a short message");
    client.write_u8(tag).await?;
    client.write_u32(length).await?;
    client.write_all(message).await?;
    client.flush().await?;
    let response = client.read_u8().await?;
    assert_eq!(response, b'p', "a response to the authentication");
    body(client).await
}

/// Offers SCRAM with and without channel binding to one client. Returns the mechanism that the client chose, and the
/// binding that it sent (`c=`).
async fn login(listener: TcpListener) -> io::Result<(String, String)> {
    let (client, _) = listener.accept().await?;
    let client = &mut encrypted(client, &acceptor()).await?;
    let _startup = body(client).await?;
    let offer = b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0";
    let first = ask(client, b'R', offer).await?;
    let (mechanism, _) = first.split_once('\0').expect("a mechanism");
    let (_, nonce) = first.rsplit_once(",r=").expect("a nonce");
    let challenge = format!("\0\0\0\x0br={nonce}1,s=AAAA,i=1");
    let last = ask(client, b'R', challenge.as_bytes()).await?;
    let (binding, _) = last.split_once(",r=").expect("the nonce again");
    let binding = binding.strip_prefix("c=").expect("a binding");
    Ok((mechanism.to_owned(), binding.to_owned()))
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
            &["not valid for name"][..],
        ),
        (
            "localhost",
            "sslmode=verify-full".to_owned(),
            &UNKNOWN_AUTHORITY[..],
        ),
        (
            "localhost",
            "sslmode=verify-ca".to_owned(),
            &UNKNOWN_AUTHORITY[..],
        ),
        (
            "localhost",
            "sslmode=verify-ca&sslrootcert=/no/such/file.pem".to_owned(),
            &["/no/such/file.pem"][..],
        ),
    ] {
        let opened = PostgresStore::open(to(host, &parameters)).await;
        assert_refused(opened, words, &format!("{host} {parameters}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_bound_to_the_certificate() {
    for (parameters, mechanism, binding) in [
        ("sslmode=require", "SCRAM-SHA-256-PLUS", BINDING),
        (
            "sslmode=require&channel_binding=require",
            "SCRAM-SHA-256-PLUS",
            BINDING,
        ),
        // "n,,": the client does not support channel binding.
        (
            "sslmode=require&channel_binding=disable",
            "SCRAM-SHA-256",
            "biws",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let login = tokio::spawn(login(listener));
        let url = format!("postgres://u:p@127.0.0.1:{port}/d?{parameters}");
        PostgresStore::open(config(&url))
            .await
            .expect_err("the server ends the login");
        let sent = login.await.expect("no panic").expect("a login");
        let expected = (mechanism.to_owned(), binding.to_owned());
        assert_eq!(sent, expected, "{parameters}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_accepts_a_login_that_is_bound_to_its_certificate() {
    let Some(programs) = programs() else { return };
    let server = Server::start(&programs).await;
    let client = server.connect().await;
    if client
        .batch_execute("ALTER SYSTEM SET ssl = on")
        .await
        .is_err()
    {
        eprintln!("SKIPPED: the PostgreSQL in CONTEXT_TEST_POSTGRES_BIN was built without TLS");
        return;
    }
    for (file, text) in [
        ("server.crt", include_str!("tls/server.pem")),
        ("server.key", include_str!("tls/server.key")),
        (
            "pg_hba.conf",
            "hostssl all bound 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n",
        ),
    ] {
        // PostgreSQL refuses a key that others can read.
        let copy = format!(
            "COPY (SELECT string_to_table('{text}', E'\\n')) TO PROGRAM 'umask 077; cat > {file}'"
        );
        client.batch_execute(&copy).await.expect("a file");
    }
    for statement in [
        "CREATE ROLE bound SUPERUSER LOGIN PASSWORD 'secret'",
        "SELECT pg_reload_conf()",
    ] {
        client.batch_execute(statement).await.expect("it runs");
    }
    let deadline = Deadline::new();
    while client
        .query_one("SHOW ssl", &[])
        .await
        .expect("the server shows its setting")
        .get::<_, &str>(0)
        != "on"
    {
        deadline.pause(|| "TLS stays off".to_owned()).await;
    }
    let to = |user: &str, parameters: &str| {
        let address = server.address();
        config(&format!(
            "postgres://{user}@{address}/postgres?sslmode=require&{parameters}"
        ))
    };
    for binding in ["require", "prefer", "disable"] {
        let store = PostgresStore::open(to("bound:secret", &format!("channel_binding={binding}")))
            .await
            .unwrap_or_else(|error| panic!("{binding}: {error}"));
        store.check().await.expect("it responds");
        store.close().await;
    }
    // The server lets this user in without SCRAM.
    let refused = PostgresStore::open(to("postgres", "channel_binding=require"))
        .await
        .expect_err("nothing is bound");
    assert!(refused.to_string().contains("channel binding"), "{refused}");
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
    let opened = PostgresStore::open(to("127.0.0.1", &own, SslMode::VerifyFull)).await;
    assert_refused(opened, &["not valid for name"], "for localhost only");
    // Without its file, the tests' authority is unknown.
    let opened =
        PostgresStore::open(to("localhost", "connect_timeout=9", SslMode::VerifyFull)).await;
    assert_refused(opened, &UNKNOWN_AUTHORITY, "without its file");
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
    let opened = open("localhost", encrypted, SslMode::VerifyFull).await;
    assert_refused(opened, &UNKNOWN_AUTHORITY, "separate settings");
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
