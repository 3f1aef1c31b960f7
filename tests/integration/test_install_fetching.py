"""install.sh fetches its release: from a Platform by its pin, from a mirror by public roots."""

import pathlib
import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.support import installing, small_releases, web_folder

WRONG_PIN = "sha256:" + "0" * 64
WITHOUT_CURL = (
    *("awk", "cat", "chmod", "comm", "cut", "date", "dirname", "grep", "head", "id", "mkdir"),
    *("mktemp", "mv", "rm", "rmdir", "sed", "sh", "sha256sum", "sleep", "sort", "tail", "tar"),
    *("tr", "uname", "wc", "openssl", "apt-get"),
)


@pytest.fixture(scope="module")
def place() -> Iterator[pathlib.Path]:
    with installing.open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def small(place: pathlib.Path) -> small_releases.Small:
    return small_releases.make(place / "release", key=small_releases.make_key())


@pytest.fixture
def mirror(small: small_releases.Small, tmp_path: pathlib.Path) -> Iterator[web_folder.WebFolder]:
    """A released folder on an https server, as it stands."""
    folder = tmp_path / "mirror"
    shutil.copytree(small.folder, folder)
    with web_folder.serving(folder, scratch=tmp_path) as web:
        yield web


@pytest.fixture
def platform(mirror: web_folder.WebFolder, small: small_releases.Small) -> web_folder.WebFolder:
    """The same as a Platform serves it: archives by their hash alone."""
    sha256 = (mirror.folder / f"worker-{small.release.arch}").read_text().split()[0]
    by_hash = mirror.folder / "bundles" / "sha256" / sha256
    by_hash.parent.mkdir(parents=True)
    (mirror.folder / small.archive.name).rename(by_hash)
    return mirror


def fetch(
    small: small_releases.Small,
    place: pathlib.Path,
    source: str,
    *options: str,
    environment: dict[str, str] | None = None,
) -> installing.Ended:
    """A dry run, which fetches and checks all."""
    return installing.run(
        ["sh", small.install_sh, "--role", "worker", "--prefix", place / "own" / "e", "--yes",
         "--dry-run", "--from", source, *options],
        environment={"ENLIST_NETWORK_SECONDS": "0", **(environment or {})},
    )  # fmt: skip


def trusting(web: web_folder.WebFolder, place: pathlib.Path) -> dict[str, str]:
    """Surroundings in which the server's certificate counts as one of the public roots."""
    roots = place / "own" / "roots.pem"
    roots.write_text(web.certificate.pem)
    return {"CURL_CA_BUNDLE": str(roots), "SSL_CERT_FILE": str(roots)}


PINS: dict[str, Callable[[str], str]] = {
    "as the Platform shows it": lambda pin: pin,
    "in upper case": lambda pin: "sha256:" + pin.removeprefix("sha256:").upper(),
    "with colons": lambda pin: "sha256:" + ":".join(
        pin.removeprefix("sha256:")[at : at + 2] for at in range(0, 64, 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("spelling", PINS)
def test_a_platform_is_believed_by_its_pin(
    spelling: str,
    small: small_releases.Small,
    place: pathlib.Path,
    platform: web_folder.WebFolder,
) -> None:
    pin = PINS[spelling](platform.certificate.pin)
    done = fetch(small, place, platform.url, "--pin", pin)
    assert done.code == 0, done
    assert f"would put the release {small.release.id}" in done.out
    assert [path.split("/")[1] for path in platform.asked] == [
        f"worker-{small.release.arch}", "bundles"
    ]  # fmt: skip


def test_a_wrong_pin_is_refused_before_anything_is_asked(
    small: small_releases.Small, place: pathlib.Path, platform: web_folder.WebFolder
) -> None:
    done = fetch(small, place, platform.url, "--pin", WRONG_PIN)
    assert done.code == 6
    assert "another key than the pin says" in done.err
    assert platform.asked == []
    # Also where the certificate itself would be believed: the pin beats public roots.
    done = fetch(
        small, place, platform.url, "--pin", WRONG_PIN, environment=trusting(platform, place)
    )
    assert done.code == 6
    assert platform.asked == []


def test_without_a_pin_only_public_roots_are_believed(
    small: small_releases.Small, place: pathlib.Path, mirror: web_folder.WebFolder
) -> None:
    done = fetch(small, place, mirror.url)
    assert done.code == 6
    assert "cannot be believed" in done.err
    assert "clock" in done.err
    assert mirror.asked == []
    done = fetch(small, place, mirror.url, environment=trusting(mirror, place))
    assert done.code == 0, done


def without_curl(place: pathlib.Path) -> dict[str, str]:
    tools = place / "without-curl"
    if not tools.exists():
        tools.mkdir()
        for name in WITHOUT_CURL:
            (tools / name).symlink_to(f"/usr/bin/{name}")
    return {"PATH": str(tools)}


def test_without_curl_python_fetches_and_believes_the_same(
    small: small_releases.Small, place: pathlib.Path, mirror: web_folder.WebFolder
) -> None:
    bare = without_curl(place)
    done = fetch(small, place, mirror.url, environment=bare)
    assert done.code == 6, done
    assert "cannot be believed" in done.err
    assert mirror.asked == []
    done = fetch(small, place, mirror.url, environment={**trusting(mirror, place), **bare})
    assert done.code == 0, done
    mirror.answers[f"/worker-{small.release.arch}"] = web_folder.Answer(
        status=302, headers={"Location": f"{mirror.url}/elsewhere"}
    )
    done = fetch(small, place, mirror.url, environment={**trusting(mirror, place), **bare})
    assert done.code == 2, done


def test_a_pin_without_curl_says_that_curl_is_needed(
    small: small_releases.Small, place: pathlib.Path, mirror: web_folder.WebFolder
) -> None:
    done = fetch(
        small, place, mirror.url, "--pin", mirror.certificate.pin, environment=without_curl(place)
    )
    assert done.code == 0
    assert "would run: apt-get install --no-install-recommends curl" in done.out
    assert mirror.asked == []


def test_one_archive_may_be_named(
    small: small_releases.Small, place: pathlib.Path, mirror: web_folder.WebFolder
) -> None:
    url = f"{mirror.url}/{small.archive.name}"
    pin = mirror.certificate.pin
    assert fetch(small, place, url, "--pin", pin).code == 0
    gone = fetch(small, place, f"{mirror.url}/gone.tar", "--pin", pin)
    assert gone.code == 5
    wrong = fetch(small, place, url, "--pin", pin, "--sha256", "1" * 64)
    assert wrong.code == 3


def test_a_version_that_is_not_there_is_told(
    small: small_releases.Small, place: pathlib.Path, mirror: web_folder.WebFolder
) -> None:
    options = ["--pin", mirror.certificate.pin, "--version"]
    assert fetch(small, place, mirror.url, *options, "0.1.0").code == 0
    done = fetch(small, place, mirror.url, *options, "7.0.0")
    assert done.code == 5
    assert "enlist-worker-7.0.0-" in done.err


def test_an_older_release_under_a_newer_name_is_refused(
    small: small_releases.Small, place: pathlib.Path, mirror: web_folder.WebFolder
) -> None:
    newer = small.archive.name.replace("0.1.0", "9.9.9")
    (mirror.folder / newer).write_bytes(small.archive.read_bytes())
    latest = mirror.folder / f"worker-{small.release.arch}"
    pin = ["--pin", mirror.certificate.pin]
    done = fetch(small, place, mirror.url, *pin, "--version", "9.9.9")
    assert done.code == 3, done
    latest.write_text(latest.read_text().replace("0.1.0", "9.9.9"))
    done = fetch(small, place, mirror.url, *pin)
    assert done.code == 3, done
    assert f"{newer} holds {small.archive.name}: refused" in done.err


def test_no_curlrc_turns_the_check_of_certificates_off(
    small: small_releases.Small, place: pathlib.Path, mirror: web_folder.WebFolder
) -> None:
    home = place / "own" / "home"
    home.mkdir(exist_ok=True)
    (home / ".curlrc").write_text("insecure\n")
    done = fetch(small, place, mirror.url, environment={"HOME": str(home), "CURL_HOME": str(home)})
    assert done.code == 6, done
    assert mirror.asked == []


def test_an_address_stands_in_no_argument(
    small: small_releases.Small, place: pathlib.Path, mirror: web_folder.WebFolder
) -> None:
    tools = place / "spying"
    tools.mkdir(exist_ok=True)
    seen = place / "own" / "arguments"
    spy = tools / "curl"
    spy.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>{seen}\nexec /usr/bin/curl "$@"\n')
    spy.chmod(0o755)
    done = fetch(
        small, place, mirror.url, "--pin", mirror.certificate.pin,
        environment={"PATH": f"{tools}:/usr/bin:/bin"},
    )  # fmt: skip
    assert done.code == 0, done
    assert "--pinnedpubkey" in seen.read_text()
    assert "localhost" not in seen.read_text()


@pytest.mark.parametrize("with_curl", [True, False])
def test_more_than_a_release_is_refused_also_where_no_length_is_said(
    with_curl: bool,  # noqa: FBT001 - a parameter of the test
    small: small_releases.Small,
    place: pathlib.Path,
    mirror: web_folder.WebFolder,
) -> None:
    mirror.answers[f"/worker-{small.release.arch}"] = web_folder.Answer(
        status=200, body=b"0" * 4_000_000, says_length=False
    )
    bare = {} if with_curl else without_curl(place)
    done = fetch(small, place, mirror.url, environment={**trusting(mirror, place), **bare})
    assert done.code == 3, done
    assert "larger than Enlist's releases" in done.err


def test_a_server_that_sends_a_byte_now_and_then_is_not_waited_for_for_ever(
    small: small_releases.Small, place: pathlib.Path, mirror: web_folder.WebFolder
) -> None:
    mirror.answers[f"/worker-{small.release.arch}"] = web_folder.Answer(
        status=200, body=b"0" * 300, pace_seconds=0.2
    )
    for bare in ({}, without_curl(place)):
        done = fetch(
            small, place, mirror.url,
            environment={**trusting(mirror, place), **bare, "ENLIST_FETCH_SECONDS": "1"},
        )  # fmt: skip
        assert done.code == 75, done


ANSWERS = {
    "a redirect": (web_folder.Answer(status=302, headers={"Location": "/x"}), 2, "not followed"),
    "no such role": (web_folder.Answer(status=404), 5, "offers no release for worker"),
    "a refusal": (web_folder.Answer(status=403), 6, "it answers 403"),
    "too many requests": (web_folder.Answer(status=429), 75, "it answers 429"),
    "a Platform that starts": (web_folder.Answer(status=503), 75, "it answers 503"),
    "a page instead": (web_folder.Answer(status=200, body=b"<html>"), 3, "refused"),
    "an archive with a path": (
        web_folder.Answer(status=200, body=b"0" * 64 + b"  ../enlist-worker-1.0.0-x86_64.tar\n"),
        3,
        "refused",
    ),
    "a name that a program would take for many": (
        web_folder.Answer(status=200, body=b"0" * 64 + b"  enlist-worker-[1-9].0.0-x86_64.tar\n"),
        3,
        "names something that is no archive for worker",
    ),
    "a name that commands a terminal": (
        web_folder.Answer(
            status=200, body=b"0" * 64 + b"  enlist-worker-\x1b]0;x\x07-x86_64.tar\n"
        ),
        3,
        "names something that is no archive for worker",
    ),
    "far too much": (web_folder.Answer(status=200, body=b"0" * 100_000), 3, "larger"),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_odd_answers(
    what: str,
    small: small_releases.Small,
    place: pathlib.Path,
    mirror: web_folder.WebFolder,
) -> None:
    answer, code, said = ANSWERS[what]
    mirror.answers[f"/worker-{small.release.arch}"] = answer
    done = fetch(small, place, mirror.url, "--pin", mirror.certificate.pin)
    assert done.code == code, done
    assert said in done.err


def test_a_server_that_is_not_there_yet_is_tried_again(
    small: small_releases.Small, place: pathlib.Path, mirror: web_folder.WebFolder
) -> None:
    mirror.answers[f"/worker-{small.release.arch}"] = web_folder.Answer(status=503, times=1)
    done = fetch(
        small, place, mirror.url, "--pin", mirror.certificate.pin,
        environment={"ENLIST_NETWORK_SECONDS": "30"},
    )  # fmt: skip
    assert done.code == 0, done
    assert "trying for 30 s" in done.err


def test_no_server_at_all_is_temporary(small: small_releases.Small, place: pathlib.Path) -> None:
    done = fetch(small, place, "https://localhost:1", "--pin", WRONG_PIN)
    assert done.code == 75
    assert "cannot be reached" in done.err


def test_an_archive_other_than_the_index_says_is_refused(
    small: small_releases.Small, place: pathlib.Path, mirror: web_folder.WebFolder
) -> None:
    mirror.answers[f"/{small.archive.name}"] = web_folder.Answer(status=200, body=b"other")
    done = fetch(small, place, mirror.url, "--pin", mirror.certificate.pin)
    assert done.code == 3
    assert "not the one that was asked for" in done.err
