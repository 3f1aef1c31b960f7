"""Whom assertions are for, and those that somebody else writes into a file."""

import os
import pathlib

import pytest

from provisioning import federation, outcomes


def a_jwt(tail: str = "c2ln") -> str:
    return f"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.{tail}"


def test_a_file_is_read_anew_for_each_exchange(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "token"
    path.write_text(a_jwt("b2xk") + "\n")
    assertion = federation.FileAssertion(path, folder=tmp_path)
    assert assertion("api://any") == a_jwt("b2xk")
    path.write_text(a_jwt("bmV3"))
    assert assertion("api://any") == a_jwt("bmV3")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="no file"),
        pytest.param("", id="an empty file"),
        pytest.param("not a token", id="no token in it"),
        pytest.param(a_jwt("x" * 20_000), id="a token too long"),
    ],
)
def test_a_file_that_holds_no_token_pauses_the_connection_and_shows_nothing_of_it(
    tmp_path: pathlib.Path, content: str | None
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(outcomes.Fault) as caught:
        federation.FileAssertion(path, folder=tmp_path)("api://any")
    assert caught.value.outcome is outcomes.Outcome.AUTH_LOST
    assert str(path) in str(caught.value)
    assert not content or content not in str(caught.value)


def test_googles_audience_is_built_of_parts_that_cannot_lead_elsewhere() -> None:
    built = federation.gcp_audience(project_number="123", pool="ours", provider="enlist")
    assert built == (
        "//iam.googleapis.com/projects/123/locations/global/workloadIdentityPools/ours"
        "/providers/enlist"
    )
    with pytest.raises(ValueError, match="cannot be part"):
        federation.gcp_audience(project_number="123", pool="../x", provider="enlist")


def test_a_supplier_of_subject_tokens_asks_for_its_audience_alone() -> None:
    asked: list[str] = []

    def assertion(audience: str, /) -> str:
        asked.append(audience)
        return a_jwt()

    supplier = federation.SubjectTokens(assertion, audience="//iam/p")
    assert supplier.get_subject_token(None, None) == a_jwt()
    assert asked == ["//iam/p"]


def test_without_an_issuer_the_setting_is_named() -> None:
    with pytest.raises(outcomes.Fault, match=r"\[cloud\] issuer_url"):
        federation.needed(None)


def _why(path: pathlib.Path, *, folder: pathlib.Path | None) -> str:
    with pytest.raises(outcomes.Fault) as caught:
        federation.FileAssertion(path, folder=folder)("api://any")
    assert caught.value.outcome is outcomes.Outcome.AUTH_LOST
    return str(caught.value).replace(str(path), "FILE")


def test_a_token_file_that_is_no_file_is_refused_at_once(tmp_path: pathlib.Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)  # opened as a file it would wait for a writer, for ever
    assert "no regular file" in _why(fifo, folder=tmp_path)
    assert "no regular file" in _why(tmp_path, folder=tmp_path)


def test_a_token_file_outside_its_folder_is_refused_whether_it_exists_or_not(
    tmp_path: pathlib.Path,
) -> None:
    folder, elsewhere = tmp_path / "tokens", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.write_text(a_jwt())
    leading_out = folder / "link"
    leading_out.symlink_to(elsewhere)
    ways = [elsewhere, tmp_path / "never", folder / ".." / "elsewhere", leading_out]
    assert len({_why(path, folder=folder) for path in ways}) == 1
    assert "token_folder" in _why(elsewhere, folder=None)
    (folder / "data").write_text(a_jwt())
    (folder / "token").symlink_to("data")  # as what renews tokens by renaming does
    assert federation.FileAssertion(folder / "token", folder=folder)("api://any") == a_jwt()
