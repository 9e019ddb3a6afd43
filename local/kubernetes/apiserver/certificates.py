"""A certificate authority and the server certificate that it signs, so that clients can verify TLS.

Both are new for each run. Keys are kept in memory and in one temporary file that OpenSSL requires.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shared.base.struct import Struct

_VALIDITY = timedelta(days=3650)
_AUTHORITY_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Identity(Struct):
    """PEM texts: the authority's certificate, the server's certificate, and the server's key."""

    authority: str
    certificate: str
    key: str

    def context(self) -> ssl.SSLContext:
        """The TLS context of a server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with tempfile.TemporaryDirectory() as folder:
            key_and_certificate = Path(folder) / "pair.pem"
            key_and_certificate.touch(mode=0o600)
            key_and_certificate.write_text(self.key + self.certificate)
            context.load_cert_chain(key_and_certificate)
        return context


def make_identity(host: str = "127.0.0.1", *, key_identifiers: bool = True) -> Identity:
    """A new authority, and a server certificate for the address, ``localhost`` and the in-cluster names.

    Without ``key_identifiers`` they are as Kubernetes 1.16 made them: RFC 5280 demands both extensions.
    """
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    begin = datetime.now(UTC) - timedelta(days=1)
    authority = (
        _builder(issuer, issuer, authority_key.public_key(), begin)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_AUTHORITY_USAGE, critical=True)
    )
    names = [
        x509.IPAddress(ipaddress.ip_address(host)),
        *(x509.DNSName(n) for n in ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")),
    ]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    certificate = (
        _builder(subject, issuer, server_key.public_key(), begin)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    if key_identifiers:
        public_key = authority_key.public_key()
        authority = authority.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        certificate = certificate.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(public_key), critical=False
        )
    key = server_key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    signed = (authority.sign(authority_key, hashes.SHA256()), certificate.sign(authority_key, hashes.SHA256()))
    return Identity(_pem(signed[0]), _pem(signed[1]), key.decode())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begin: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + _VALIDITY)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
