"""Certificates for a consortium's server: an authority of its own, and a certificate that the authority signed."""

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS, SERVER_DAYS = 730, 365
SKEW = datetime.timedelta(hours=1)
"""Valid from an hour ago: clocks at hospitals may be behind."""
NO_USE = dict.fromkeys(
    (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
        *("encipher_only", "decipher_only", "key_cert_sign", "crl_sign"),
    ),
    False,
)


@dataclass(frozen=True)
class Certificates:
    """Four files in PEM form; the keys are secret."""

    authority_key: bytes
    authority: bytes
    server_key: bytes
    server: bytes


def certificates_for(name: str, host: str, days: int = SERVER_DAYS) -> Certificates:
    """An authority called `name`, and a certificate for `host` and for the server's own machine."""
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    signs = x509.KeyUsage(**{**NO_USE, "digital_signature": True, "key_cert_sign": True, "crl_sign": True})
    serves = x509.KeyUsage(**{**NO_USE, "digital_signature": True})
    root = (
        _begun(name, name, authority, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signs, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    names = dict.fromkeys(map(_name, (host, "localhost", "127.0.0.1")))
    leaf = (
        _begun(host, name, server, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(serves, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(server.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    return Certificates(_key(authority), root.public_bytes(Encoding.PEM), _key(server), leaf.public_bytes(Encoding.PEM))


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _begun(name: str, issuer: str, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)

    def common(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    return (
        x509.CertificateBuilder()
        .subject_name(common(name))
        .issuer_name(common(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + datetime.timedelta(days=days)) - SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )
