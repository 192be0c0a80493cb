"""Is the server as good over HTTPS, and is what makes no certificate said at once?"""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.server.conftest import serving, shop, visitor
from windlass import Client
from windlass.clock import SystemClock, from_micros
from windlass.config import ServerConfig
from windlass.errors import InvalidValue, StoreUnavailable
from windlass.server.run import Server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that signs itself, for this machine, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = from_micros(SystemClock().micros())
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    cert, secret = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert, secret


def test_jobs_go_over_https_and_only_to_who_has_the_certificate(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate
    with (
        shop(f"sqlite:///{tmp_path}/jobs.db") as queue,
        serving(queue, host="localhost", tls_cert=str(cert), tls_key=str(key)) as house,
    ):
        assert house.url.startswith("https://localhost:")
        with Client(house.url, patience=0) as stranger, pytest.raises(StoreUnavailable, match="certificate"):
            stranger.enqueue("add", {"a": 1})
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        with Client(house.url) as client:
            job = client.enqueue("add", {"a": 1})
            assert client.get(job.id).payload is not None
        trusting = ssl.create_default_context(cafile=str(cert))
        with visitor(house.url, verify=trusting) as browser:
            assert browser.get("/health").status_code == 200
        plain = house.url.replace("https://", "http://")
        with visitor(plain) as mistaken, pytest.raises(httpx2.TransportError):
            mistaken.get("/health")


def test_what_makes_no_certificate_is_said_before_anybody_connects(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, _ = certificate
    with pytest.raises(InvalidValue, match="tls_key must be given together with tls_cert"):
        ServerConfig(tls_key="key.pem")
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    with shop(f"sqlite:///{tmp_path}/jobs.db") as queue:
        for wrong in (tmp_path / "none.pem", nothing, cert):
            server = Server(queue, ServerConfig(port=0, tls_cert=str(wrong)))
            with pytest.raises(InvalidValue, match="tls_cert must be a"):
                server.listen()
