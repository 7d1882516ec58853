"""Certificates and keys for a federation: an authority of its own, the server's certificate, and a key for each silo.

The authority's private key is not kept: whoever needs another certificate makes a new set. A silo's key proves that the
silo is one of those whose public keys the server was told; it is an elliptic curve key (P-384), as Flower takes it.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from majorant._extras import require
from majorant.app.files import atomic_write_bytes, write_synced
from majorant.app.folders import slug

DAYS = 3650
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PURPOSE = "a federation on Flower"


def make_certificates(folder: Path, hosts: Iterable[str] = ()) -> None:
    """``ca.crt``, ``server.pem`` and ``server.key`` for a server that goes by some names and addresses.

    Processes on the server's own machine reach it by the loopback, which is always among them.
    """
    hosts = dict.fromkeys([*hosts, *LOOPBACK])
    x509, crypto = require("cryptography.x509", "flower", PURPOSE), primitives()
    folder.mkdir(parents=True, exist_ok=True)
    authority, server = (crypto["ec"].generate_private_key(crypto["ec"].SECP384R1()) for _ in range(2))
    name = lambda text: x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])
    now, issuer = datetime.datetime.now(datetime.UTC), name("Majorant federation")

    def signed(subject: Any, key: Any, *extensions: tuple[Any, bool]) -> bytes:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=DAYS))
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        above = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
        for extension, critical in (*extensions, (identifier, False), (above, False)):
            builder = builder.add_extension(extension, critical)
        certificate = builder.sign(authority, crypto["hashes"].SHA384())
        return certificate.public_bytes(crypto["serialization"].Encoding.PEM)

    usage = {"content_commitment": False, "key_encipherment": False, "data_encipherment": False}
    usage |= {"key_agreement": False, "encipher_only": False, "decipher_only": False}
    signs = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage)
    serves = x509.KeyUsage(digital_signature=True, key_cert_sign=False, crl_sign=False, **usage)
    root = signed(issuer, authority, (x509.BasicConstraints(ca=True, path_length=0), True), (signs, True))
    names = x509.SubjectAlternativeName([alternative(x509, host) for host in hosts])
    purpose = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    plain = x509.BasicConstraints(ca=False, path_length=None)
    leaf = signed(name("Majorant server"), server, (plain, True), (serves, True), (names, False), (purpose, False))
    atomic_write_bytes(folder / "ca.crt", root)
    atomic_write_bytes(folder / "server.pem", leaf)
    write_private(folder / "server.key", private_bytes(server, "TraditionalOpenSSL"))


def make_node_key(folder: Path, name: str) -> Path:
    """A silo's key, and its public part beside it (``.pub``), which the server is told."""
    folder.mkdir(parents=True, exist_ok=True)
    crypto = primitives()
    key = crypto["ec"].generate_private_key(crypto["ec"].SECP384R1())
    serialization = crypto["serialization"]
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    place = folder / slug(name)
    write_private(place, private_bytes(key, "OpenSSH"))
    atomic_write_bytes(place.with_name(f"{place.name}.pub"), public + b"\n")
    return place


def alternative(x509: Any, host: str) -> Any:
    """A host's name or address, as a certificate says it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def private_bytes(key: Any, form: str) -> bytes:
    """A private key as a file holds it."""
    serialization = primitives()["serialization"]
    form = getattr(serialization.PrivateFormat, form)
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def write_private(path: Path, data: bytes) -> None:
    """Writes a file that its owner alone can read; one that is there is kept, and refused."""
    if os.path.lexists(path):
        raise FileExistsError(f"{path} is there already: choose another folder, or remove it")
    write_synced(path, data, mode=0o600)


def primitives() -> dict[str, Any]:
    """What is used of the package cryptography."""
    base = "cryptography.hazmat.primitives"
    load = lambda module: require(f"{base}.{module}", "flower", PURPOSE)
    return {
        "ec": require(f"{base}.asymmetric.ec", "flower", PURPOSE),
        "hashes": load("hashes"),
        "serialization": load("serialization"),
    }
