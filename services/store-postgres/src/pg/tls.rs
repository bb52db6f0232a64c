//! TLS to the server, with rustls.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslNegotiation;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};

use crate::pg::channel_binding::tls_server_end_point;
use crate::pg::target::{Target, Trust};

/// Makes TLS connections according to a target's settings.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file in `sslrootcert` cannot be used.
    #[error("the certificates in {path} cannot be read: {source}")]
    RootCertificate {
        /// The file.
        path: String,
        /// The error.
        source: context_store::BoxError,
    },
    /// The system has no root certificates.
    #[error("this system has no certificates of authorities; name a file with sslrootcert")]
    NoAuthorities,
    /// A defect of the build.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] Error),
    /// The root certificates cannot be used.
    #[error("the certificates of authorities cannot be used: {0}")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
}

impl Tls {
    pub fn new(target: &Target) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let mut config = match target.trust {
            Trust::Anyone => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
                .with_no_client_auth(),
            Trust::ThisHost => builder
                .with_root_certificates(authorities(target)?)
                .with_no_client_auth(),
            Trust::KnownAuthority => {
                let verifier = WebPkiServerVerifier::builder_with_provider(
                    Arc::new(authorities(target)?),
                    provider,
                )
                .build()?;
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(AnyName(verifier)))
                    .with_no_client_auth()
            }
        };
        // A resumed session has the certificate of its first handshake. Once the server has a new one, a login that is
        // bound to the old one fails.
        config.resumption = Resumption::disabled();
        if target.config.get_ssl_negotiation() == SslNegotiation::Direct {
            // PostgreSQL rejects `sslnegotiation=direct` without this protocol (ALPN).
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(Self(Arc::new(config)))
    }
}

fn authorities(target: &Target) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &target.root_certificate {
        let failed = |source: context_store::BoxError| TlsError::RootCertificate {
            path: path.display().to_string(),
            source,
        };
        for certificate in CertificateDer::pem_file_iter(path).map_err(|e| failed(e.into()))? {
            roots
                .add(certificate.map_err(|e| failed(e.into()))?)
                .map_err(|e| failed(e.into()))?;
        }
        if roots.is_empty() {
            return Err(failed("the file holds no certificate".into()));
        }
        return Ok(roots);
    }
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        Err(TlsError::NoAuthorities)
    } else {
        Ok(roots)
    }
}

/// Accepts any certificate: `sslmode=require` promises encryption, not identity.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// `sslmode=verify-ca`: the certificate must be signed by a known authority, for any name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self
            .0
            .verify_server_cert(certificate, intermediates, name, ocsp, now)
        {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = TlsStream<S>;
    type TlsConnect = Connector;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Connector, Self::Error> {
        // A Unix socket has neither a name nor TLS.
        let host = if host.is_empty() || host.starts_with('/') {
            "localhost"
        } else {
            host
        };
        Ok(Connector {
            config: Arc::clone(&self.0),
            host: ServerName::try_from(host)?.to_owned(),
        })
    }
}

pub(crate) struct Connector {
    config: Arc<ClientConfig>,
    host: ServerName<'static>,
}

impl<S> TlsConnect<S> for Connector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = TlsStream<S>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<TlsStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            tokio_rustls::TlsConnector::from(self.config)
                .connect(self.host, stream)
                .await
                .map(TlsStream)
        })
    }
}

pub(crate) struct TlsStream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for TlsStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let (_, session) = self.0.get_ref();
        session
            .peer_certificates()
            .and_then(|certificates| tls_server_end_point(certificates.first()?))
            .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_negotiation_names_the_protocol() {
        for (options, protocols) in [
            ("sslmode=require", vec![]),
            (
                "sslmode=require sslnegotiation=direct",
                vec![b"postgresql".to_vec()],
            ),
        ] {
            let target = Target::parse(&format!("host=h user=u {options}")).unwrap();
            let Tls(config) = Tls::new(&target).unwrap();
            assert_eq!(config.alpn_protocols, protocols, "{options}");
        }
    }
}
