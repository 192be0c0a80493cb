"""How is a server configured without flags, and does `config validate` find what a start refuses?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx2
import pytest

from tests.surface.conftest import Terminal
from tests.waiting import PATIENCE
from windlass import config
from windlass.errors import InvalidValue


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two certificates with their keys, a key that is encrypted, and what is neither."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("one", "two"):
        make = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ]
        more = ["-subj", "/CN=localhost", "-days", "2"]
        subprocess.run(
            [*make, "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem", *more],
            check=True,
            capture_output=True,
        )
    subprocess.run(
        [
            "openssl",
            "ec",
            "-aes256",
            "-passout",
            "pass:x",
            "-in",
            f"{folder}/one.key",
            "-out",
            f"{folder}/shut.key",
        ],
        check=True,
        capture_output=True,
    )
    (folder / "empty.pem").write_text("")
    return folder


def section(**values: str) -> str:
    return "[server]\n" + "\n".join(f"{name} = {value}" for name, value in values.items())


def test_variables_stand_above_the_file_and_flags_above_both(tmp_path: Path) -> None:
    (tmp_path / "windlass.toml").write_text(
        section(host='"10.0.0.1"', port="9000", trusted_proxies='["10.0.0.5"]', allowed_hosts='["a", "b"]')
    )
    environ = {"WINDLASS_SERVER_PORT": "9001", "WINDLASS_SERVER_TRUSTED_PROXIES": "10.0.0.6, 10.1.0.0/16"}
    found = config.load({"server.host": "0.0.0.0"}, environ=environ, folder=tmp_path).server()  # noqa: S104 - not opened
    assert (found.host, found.port) == ("0.0.0.0", 9001)  # noqa: S104 - not opened
    assert (found.trusted_proxies, found.allowed_hosts) == (("10.0.0.6", "10.1.0.0/16"), ("a", "b"))


def test_what_kubernetes_sets_for_a_service_is_no_port(tmp_path: Path) -> None:
    environ = {"WINDLASS_SERVER_PORT": "tcp://10.0.0.1:8080"}
    assert config.load(environ=environ, folder=tmp_path).server().port == 8080


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"port": "70000"}, "server.port (windlass.toml) must be between 0 and 65535, got 70000"),
        ({"port": '"x"'}, "server.port (windlass.toml) must be a whole number, got 'x'"),
        ({"tls_key": '"k.pem"'}, "server.tls_key (windlass.toml) must be given together with tls_cert"),
        (
            {"trusted_proxies": '["proxy.internal"]'},
            "server.trusted_proxies (windlass.toml) must be addresses",
        ),
        ({"insecure": '"maybe"'}, "server.insecure (windlass.toml) must be true or false"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(tmp_path: Path, values: dict[str, str], told: str) -> None:
    (tmp_path / "windlass.toml").write_text(section(**values))
    with pytest.raises(InvalidValue) as refused:
        config.load(environ={}, folder=tmp_path)
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize(
    ("cert", "key", "told"),
    [
        (
            "nix.pem",
            "one.key",
            "server.tls_cert (windlass.toml) must be a file that can be read (No such file",
        ),
        (
            "one.pem",
            "nix.key",
            "server.tls_key (windlass.toml) must be a file that can be read (No such file",
        ),
        ("one.pem", "two.key", "server.tls_cert (windlass.toml) must be a certificate with its key"),
        ("one.pem", "shut.key", "server.tls_cert (windlass.toml) must be a certificate with its key"),
        ("empty.pem", "one.key", "server.tls_cert (windlass.toml) must be a certificate with its key"),
        ("one.pem", None, "server.tls_cert (windlass.toml) must be a certificate with its key"),
    ],
)
def test_validate_finds_tls_files_that_a_start_refuses(
    windlass: Terminal, files: Path, cert: str, key: str | None, told: str
) -> None:
    values = {"tls_cert": f'"{files / cert}"'} | ({} if key is None else {"tls_key": f'"{files / key}"'})
    windlass.write("windlass.toml", section(port="0", **values))
    found = windlass("config", "validate")
    assert found.code == 1
    assert f"wrong: {told}" in found.out
    started = windlass.apart("serve")
    assert started.code == 2
    assert started.err.startswith(f"windlass: {told}")


def test_validate_accepts_what_a_start_accepts(windlass: Terminal, files: Path) -> None:
    values = {"tls_cert": f'"{files / "one.pem"}"', "tls_key": f'"{files / "one.key"}"'}
    windlass.write("windlass.toml", section(**values))
    assert "The configuration is valid." in windlass.ok("config", "validate").out


def test_validate_finds_an_address_that_is_not_this_machines(windlass: Terminal) -> None:
    for host in ("203.0.113.9", "nowhere.invalid"):
        windlass.write("windlass.toml", section(host=f'"{host}"', insecure="true"))
        found = windlass("config", "validate")
        assert found.code == 1
        assert "wrong: server.host (windlass.toml) must be an address of this machine" in found.out


def test_validate_finds_a_server_that_others_reach_without_a_key(windlass: Terminal) -> None:
    windlass.ok("run", "--", "true")
    windlass.write("windlass.toml", section(host='"0.0.0.0"'))
    found = windlass("config", "validate")
    assert found.code == 1
    assert "wrong: server.host is 0.0.0.0, and there is no API key" in found.out
    windlass.ok("keys", "create", "root", "--role", "admin")
    found = windlass.ok("config", "validate")
    assert "API keys and payloads are sent to 0.0.0.0 unencrypted" in found.out
    windlass.write("windlass.toml", section(host='"0.0.0.0"', trusted_proxies='["10.0.0.5"]'))
    assert "unencrypted" not in windlass.ok("config", "validate").out


def test_validate_finds_types_that_the_app_does_not_have(windlass: Terminal, shop: str) -> None:
    windlass.write("windlass.toml", f'app = "{shop}"\n[worker]\ntypes = ["nix.*"]')
    found = windlass("config", "validate")
    assert found.code == 1
    assert "wrong: types must be patterns that match a registered type" in found.out


def test_a_server_that_others_reach_without_tls_says_so(windlass: Terminal) -> None:
    windlass.ok("keys", "create", "root", "--role", "admin")
    with windlass.start("serve", "--host", "0.0.0.0", "--port", "0") as process:  # noqa: S104 - what is tested
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "serves" in line:
                break
        process.terminate()
        process.communicate()
    assert any("server.exposed" in line and "unencrypted" in line for line in lines), lines


def test_a_server_with_shell_takes_a_command(windlass: Terminal) -> None:
    with windlass.start("serve", "--shell", "--port", "0") as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "serves" in line)
        url = line.rpartition("; ")[2].strip().removesuffix("/docs")
        job = {"type": "shell", "payload": {"command": ["true"]}}
        with httpx2.Client(timeout=PATIENCE) as client:
            answer = client.post(f"{url}/api/v1/jobs", json=job)
        process.terminate()
        process.communicate()
    assert answer.status_code == 201, answer.text
