"""The ledger's head outside the ledger: what was attested can be neither cut off nor rewritten."""

import json
import os
import shutil
import subprocess
from base64 import b64decode
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope as TheirEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from fedce.base.errors import RunError
from fedce.base.identity import Identity, coordinator
from fedce.record.attestations import Attestation, Attested, attach_stamp, attest
from fedce.record.envelope import Envelope
from fedce.record.folder import RunFolder
from fedce.record.verify import verify
from support import chained, contents_of, rewrite

ANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def run(tmp_path: Path, tiny_run: Path) -> RunFolder:
    shutil.copytree(tiny_run, tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture
def member(tmp_path: Path) -> Identity:
    return Identity.at(tmp_path / "member.pem")


@pytest.fixture
def attested(run: RunFolder) -> Attestation:
    return attest(run)


def found_in(run: RunFolder) -> list[str]:
    """What the attestations alone show, so that the chain and the signatures can't be what is found."""
    return Attested(run.attestation_files, run.lines(), coordinator().public, lambda n: {}, None).problems


def their_key(public: str) -> SSlibKey:
    return SSlibKey(public, "ed25519", "ed25519", {"public": b64decode(public).hex()})


def test_the_verifier_of_securesystemslib_accepts_it_and_no_other_key(attested: Attestation, member: Identity):
    attested.envelope.signed_by(member).write(attested.path)
    theirs = TheirEnvelope.from_dict(json.loads(attested.path.read_text()))
    assert theirs.pae() == attested.envelope.pae.encode()
    both = [their_key(coordinator().public), their_key(member.public)]
    assert set(theirs.verify(both, threshold=2)) == {coordinator().public, member.public}
    theirs.payload += b" "
    with pytest.raises(VerificationError):
        theirs.verify(both, threshold=1)


def test_the_statement_says_what_other_programs_print(run: RunFolder, attested: Attestation):
    content = run.ledger_file.read_bytes()
    head, (subject,) = attested.head, attested.statement.subject
    assert subject.digest == {"sha256": sha256(content).hexdigest()}
    assert head.n_lines == content.count(b"\n") == len(run.ledger())
    assert head.head == sha256(content.splitlines()[-1]).hexdigest()
    assert head.n_rounds == 4
    assert head.versions == run.ledger().begun.versions


def test_lines_that_were_added_since_are_no_contradiction(run: RunFolder, attested: Attestation, fedce):
    assert fedce("publish", run.path, "--epsilon", 1).exit_code == 0
    verdict = verify(run)
    assert verdict.problems == ()
    (fact,) = [fact for fact in verdict.facts if attested.path.name in fact]
    assert f"the first {attested.head.n_lines} lines are those of" in fact
    assert "countersigned by no known member; 1 lines were added since" in fact


def test_what_a_coordinator_cuts_off_its_attestation_shows(run: RunFolder, fedce):
    """After the end nothing but an attestation shows that a publication is missing."""
    assert fedce("publish", run.path, "--epsilon", 1).exit_code == 0
    n = attest(run).head.n_lines
    rewrite(run, run.lines()[:-1])
    assert verify(run).problems == (
        f"the end was cut off: attestation-{n}.json attests {n} lines, and the ledger has {n - 1}",
    )


def test_a_coordinator_who_signs_everything_again_is_found_by_what_a_member_kept(run: RunFolder, tmp_path: Path, fedce):
    kept = tmp_path / "kept.json"
    shutil.move(attest(run).path, kept)
    n = len(run.ledger())
    entries = contents_of(run)
    entries[-1]["time"] += 1
    rewrite(run, chained(entries, coordinator()))
    assert verify(run).problems == ()
    problems = verify(run, attestations=[kept]).problems
    assert problems == (f"lines were rewritten: line {n} is not the one that kept.json attests",)
    entries[0]["time"] += 1
    rewrite(run, chained(entries, coordinator()))
    (problem,) = verify(run, attestations=[kept]).problems
    assert "kept.json attests another first line" in problem
    result = fedce("ledger", "verify", run.path, "--attestation", kept)
    assert result.exit_code == 1
    assert "WRONG: kept.json attests another first line" in result.output


def test_a_ledger_that_is_gone_was_attested(run: RunFolder, attested: Attestation):
    run.ledger_file.unlink()
    assert any("attests another first line" in problem for problem in verify(run).problems)


@ANY
@given(data=st.data())
def test_any_cut_and_any_changed_byte_is_found(run: RunFolder, attested: Attestation, data):
    content = run.ledger_file.read_bytes()
    try:
        place = data.draw(st.integers(0, len(content) - 1))
        run.ledger_file.write_bytes(content[:place])
        assert found_in(run), "cut"
        changed = bytearray(content)
        changed[place] ^= data.draw(st.integers(1, 255))
        run.ledger_file.write_bytes(changed)
        assert found_in(run), "changed"
        run.ledger_file.write_bytes(content + data.draw(st.binary(max_size=50)).replace(b"\n", b"") + b"\n")
        assert found_in(run) == [], "extended"
    finally:
        run.ledger_file.write_bytes(content)


@ANY
@given(data=st.data())
def test_any_changed_byte_of_an_attestation_is_found(run: RunFolder, attested: Attestation, data):
    content = attested.path.read_bytes()
    try:
        changed = bytearray(content)
        changed[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        attested.path.write_bytes(changed)
        # White space may differ, and bits of base64 that mean nothing.
        assert found_in(run) or Attestation.read(attested.path).envelope == attested.envelope
    finally:
        attested.path.write_bytes(content)


def test_a_statement_that_others_signed_is_not_the_coordinators(run: RunFolder, attested: Attestation, member):
    Envelope(attested.envelope.payload).signed_by(member).write(attested.path)
    (problem,) = verify(run).problems
    assert problem == f"{attested.path.name} is not signed by the coordinator {coordinator().public}"


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        "no json",
        '{"payload": "!", "payloadType": "application/vnd.in-toto+json", "signatures": []}',
        '{"payload": "e30=", "payloadType": "application/vnd.in-toto+json", "signatures": []}',
        '{"payload": "/w==", "payloadType": "application/vnd.in-toto+json", "signatures": []}',
        '{"payload": "e30=", "payloadType": "text/plain", "signatures": []}',
        '{"payload": "e30=", "payloadType": "application/vnd.in-toto+json", '
        '"signatures": [{"keyid": "a", "sig": ""}, {"keyid": "a", "sig": ""}]}',
    ],
)
def test_a_file_that_attests_nothing_is_one_problem(run: RunFolder, content: str):
    path = run.path / "attestation-3.json"
    path.write_text(content)
    (problem,) = verify(run).problems
    assert str(path) in problem


def test_members_countersign_and_are_named(run: RunFolder, attested: Attestation, tmp_path: Path, fedce):
    keys, copies = {}, []
    for name in ("north", "south"):
        keys[name] = Identity.at(tmp_path / f"{name}.pem").public
        copies.append(Path(shutil.copy(attested.path, tmp_path / f"{name}.json")))
        signed = fedce(
            *("ledger", "attest", run.path, "--attestation", copies[-1], "--countersign", tmp_path / f"{name}.pem")
        )
        assert signed.exit_code == 0, signed.output
        assert keys[name] in signed.output
    added = fedce("ledger", "attest", run.path, "--add", copies[0], "--add", copies[1])
    assert "3 signatures" in added.output
    assert len([reason for reason in verify(run).unchecked if "no member had this key then" in reason]) == 2
    pinned = [part for name, key in keys.items() for part in ("--site", f"{name}={key}")]
    verdict = verify(run, keys=keys)
    assert any("countersigned by north, south" in fact for fact in verdict.facts)
    assert fedce("ledger", "verify", run.path, *pinned).exit_code == 1, "on the local engine no site joined with a key"
    wrong = json.loads(copies[0].read_text())
    wrong["signatures"][1]["sig"] = wrong["signatures"][0]["sig"]
    copies[0].write_text(json.dumps(wrong))
    refused = fedce("ledger", "attest", run.path, "--add", copies[0])
    assert refused.exit_code == 2
    assert "does not fit" in refused.output
    shutil.copy(copies[0], attested.path)
    assert any(f"the signature of {keys['north']} does not fit" in problem for problem in verify(run).problems)


def test_a_member_does_not_sign_what_is_wrong(run: RunFolder, attested: Attestation, tmp_path: Path, fedce):
    Identity.at(tmp_path / "member.pem")
    rewrite(run, run.lines()[:-1])
    before = attested.path.read_bytes()
    refused = fedce("ledger", "attest", run.path, "--countersign", tmp_path / "member.pem")
    assert refused.exit_code == 2
    assert "not signed: " in refused.output
    assert attested.path.read_bytes() == before


def test_only_the_coordinator_attests(run: RunFolder, monkeypatch, tmp_path: Path, fedce):
    monkeypatch.setenv("FEDCE_KEY", str(tmp_path / "other.pem"))
    refused = fedce("ledger", "attest", run.path)
    assert refused.exit_code == 2
    assert "only its coordinator can attest it" in refused.output
    assert run.attestation_files == []


def test_the_same_lines_are_attested_once(run: RunFolder, attested: Attestation):
    before = attested.path.read_bytes()
    assert attest(run).path == attested.path
    assert attested.path.read_bytes() == before
    entries = contents_of(run)
    entries[-1]["time"] += 1
    rewrite(run, chained(entries, coordinator()))
    with pytest.raises(RunError, match="exists, and lines were rewritten"):
        attest(run)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--countersign", "a", "--timestamp", "b"], "give one of --countersign, --add and --timestamp"),
        (["--attestation", "a"], "--attestation is for --countersign, --add and --timestamp"),
        (["--countersign", "nowhere.pem"], "there is no file nowhere.pem; expected your private key"),
        (["--timestamp", "nowhere.tsr"], "can't read nowhere.tsr"),
        (["--add", "nowhere.json"], "can't read nowhere.json"),
    ],
)
def test_bad_options_are_one_line(run: RunFolder, attested: Attestation, fedce, options, words):
    result = fedce("ledger", "attest", run.path, *options)
    assert result.exit_code == 2
    assert words in result.output


def test_without_an_attestation_the_check_says_what_it_can_not_know(run: RunFolder):
    verdict = verify(run)
    assert verdict.problems == ()
    assert any("no attestation is here" in reason for reason in verdict.unchecked)
    hashed = verify(run, head=sha256(run.lines()[2].encode()).hexdigest())
    assert not any("no attestation is here" in reason for reason in hashed.unchecked)


def test_a_new_run_in_the_same_folder_has_no_attestation_of_the_old(run: RunFolder, attested: Attestation):
    attested.stamp.write_bytes(b"")
    run.remove()
    assert list(run.path.iterdir()) == []


class Authority:
    """A time-stamping authority of RFC 3161, by openssl."""

    SETTINGS = """
[req]
distinguished_name = name
x509_extensions = root
[name]
[root]
basicConstraints = critical, CA:true
[stamps]
extendedKeyUsage = critical, timeStamping
[tsa]
default_tsa = it
[it]
serial = serial
crypto_device = builtin
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
accuracy = secs:1
"""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.certificates = folder, folder / "ca.pem"
        (folder / "settings").write_text(self.SETTINGS)
        (folder / "serial").write_text("01\n")
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-config", "settings")
        self.call("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=root", "-days", "2")
        self.call("req", *curve, "-keyout", "tsa.key", "-out", "tsa.csr", "-subj", "/CN=stamps")
        issue = (
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-extfile",
            "settings",
            "-extensions",
            "stamps",
        )
        self.call("x509", "-req", "-in", "tsa.csr", *issue, "-out", "tsa.pem", "-days", "2")

    def call(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def stamped(self, digest: str) -> Path:
        """The authority's reply for a digest, as docs/attest.md asks for it."""
        self.call("ts", "-query", "-sha256", "-cert", "-digest", digest, "-out", "query.tsq")
        signer = ("-signer", "tsa.pem", "-inkey", "tsa.key")
        self.call("ts", "-reply", "-config", "settings", "-queryfile", "query.tsq", *signer, "-out", f"{digest}.tsr")
        return self.folder / f"{digest}.tsr"


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine; install it to test time stamps")
    return Authority(tmp_path_factory.mktemp("authority") / "tsa")


def test_a_time_stamp_is_attached_and_checked(run: RunFolder, attested: Attestation, authority, member, fedce):
    reply = authority.stamped(attested.digest)
    attached = fedce("ledger", "attest", run.path, "--timestamp", reply)
    assert attached.output.strip() == str(attested.stamp)
    attested.envelope.signed_by(member).write(attested.path)  # A later countersignature leaves the stamp valid.
    assert any("give its authority's certificates" in reason for reason in verify(run).unchecked)
    verdict = verify(run, authority=authority.certificates)
    assert verdict.problems == ()
    (fact,) = [fact for fact in verdict.facts if "by the authority's stamp" in fact]
    assert "GMT" in fact
    assert not any(attested.stamp.name in reason for reason in verdict.unchecked)


def der(tag: int, content: bytes) -> bytes:
    """A value in the encoding of certificates and time stamps."""
    n = len(content)
    size = bytes([n]) if n < 128 else bytes([0x82]) + n.to_bytes(2, "big")
    return bytes([tag]) + size + content


def after_header(encoded: bytes) -> tuple[int, int]:
    """Where the content of the first value begins and ends."""
    n, begins = encoded[1], 2
    if n > 127:
        begins = 2 + n - 128
        n = int.from_bytes(encoded[2:begins], "big")
    return begins, begins + n


def test_nobody_but_the_authority_can_state_the_time(run: RunFolder, attested: Attestation, authority, tmp_path: Path):
    """The status text of a reply is not signed."""
    reply = authority.stamped(attested.digest).read_bytes()
    begins, _ = after_header(reply)
    token = reply[begins + after_header(reply[begins:])[1] :]
    text = der(0x0C, b"ok\nTime stamp: Jan  1 00:00:00 2020 GMT\n")
    forged = tmp_path / "forged.tsr"
    forged.write_bytes(der(0x30, der(0x30, der(0x02, b"\0") + der(0x30, text)) + token))
    attach_stamp(attested, forged)
    verdict = verify(run, authority=authority.certificates)
    assert verdict.problems == ()
    assert not any("2020" in fact for fact in verdict.facts)
    assert any("by the authority's stamp" in fact for fact in verdict.facts)


def test_a_time_stamp_of_something_else_is_refused(run: RunFolder, attested: Attestation, authority):
    other = authority.stamped("00" * 32)
    with pytest.raises(RunError, match="not a time stamp of this attestation"):
        attach_stamp(attested, other)
    shutil.copy(other, attested.stamp)
    (problem,) = verify(run, authority=authority.certificates).problems
    assert "proves nothing" in problem


def test_a_time_stamp_by_another_authority_or_a_changed_one_proves_nothing(
    run: RunFolder, attested: Attestation, authority, tmp_path: Path
):
    attach_stamp(attested, authority.stamped(attested.digest))
    stranger = Authority(tmp_path / "stranger")
    (problem,) = verify(run, authority=stranger.certificates).problems
    assert "openssl refuses it" in problem
    content = bytearray(attested.stamp.read_bytes())
    content[-5] ^= 1
    attested.stamp.write_bytes(content)
    (problem,) = verify(run, authority=authority.certificates).problems
    assert f"the time stamp {attested.stamp.name} proves nothing" in problem


def test_what_a_stamps_check_needs_is_asked_for(run: RunFolder, attested: Attestation, authority, fedce, monkeypatch):
    attach_stamp(attested, authority.stamped(attested.digest))
    missing = fedce("ledger", "verify", run.path, "--authority", "nowhere.pem")
    assert missing.exit_code == 2
    assert "there is no file nowhere.pem" in missing.output
    monkeypatch.setenv("PATH", os.devnull)
    without = fedce("ledger", "verify", run.path, "--authority", authority.certificates)
    assert without.exit_code == 2
    assert "openssl, which can't be started" in without.output
