"""Keys and certificates for ranks whose transport encrypts."""

import stat

import pytest
from gloo_bypass_tools.common import transports
from gloo_bypass_tools.compare_programs import encryption


def test_Settings_OfEncryptedTransports_NameFilesThatOnlyThisUserReads(tmp_path):
    made = encryption.settings(("TCP", "UDP", *transports.ENCRYPTED), tmp_path)
    assert set(made) == set(transports.ENCRYPTED)
    assert made["UDP/sealed"] == made["UDP/own/sealed"]
    for private in (made["UDP/sealed"]["GLOO_BYPASS_KEY_FILE"], made["TCP_TLS"]["GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY"]):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert "CERTIFICATE" in made["TCP_TLS"]["GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT"].read_text()


def test_Settings_OfOtherTransports_MakeNoFile(tmp_path):
    assert encryption.settings(("TCP", "UDP", "DPDK/own"), tmp_path) == {} and list(tmp_path.iterdir()) == []


def test_Settings_WithoutOpenssl_IsOneLine(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        encryption.EncryptionError, match="TCP_TLS needs a certificate: cannot run openssl: No such file"
    ):
        encryption.settings(("TCP_TLS",), tmp_path)


@pytest.mark.parametrize("name", transports.DEVICES + transports.OWN + transports.ENCRYPTED)
def test_Transports_NameAndSettings_SayTheSame(name):
    assert transports.name_by(transports.settings_of(name)) == name


def test_Transports_OfOneDevice_DifferInTheirSettings():
    assert transports.settings_of("UDP/own/sealed") == {
        "GLOO_DEVICE_TRANSPORT": "UDP",
        "GLOO_BYPASS_COLLECTIVES": "own",
        "GLOO_BYPASS_SECURITY": "encrypt",
    }
