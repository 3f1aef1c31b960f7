"""`scripts/release` to an S3 store that is not ours, which judges every signature."""

import pathlib

from installer.build import signing
from tests.support import moto_store, small_checkout


async def test_a_release_reads_back_from_s3_and_a_wrong_key_puts_nothing(
    tmp_path: pathlib.Path,
) -> None:
    checkout = small_checkout.make(tmp_path)
    key_file, out = tmp_path / "release.key", tmp_path / "out"
    signing.make(key_file)
    async with moto_store.running(tmp_path) as moto:

        def release(keys: dict[str, str]) -> tuple[int, str]:
            done = checkout.run(
                "release_command",
                *("--key", str(key_file), "--python", "3.12", "--out", str(out)),
                *("--to", f"s3://{moto_store.BUCKET}/enlist releases+more"),
                *("--s3-endpoint", moto.url, "--ca-file", str(moto.ca_file)),
                environment=checkout.environment() | keys,
            )
            return done.returncode, done.stderr

        code, said = release(moto.environment() | {"AWS_SECRET_ACCESS_KEY": "guessed"})
        assert (code, "SignatureDoesNotMatch" in said) == (2, True), said
        assert moto.held() == {}
        code, said = release(moto.environment())
        assert code == 0, said
        assert moto.held() == {
            f"enlist releases+more/{path.name}": path.read_bytes() for path in out.iterdir()
        }
        code, said = release(moto.environment())
        assert code == 0, said
        assert ">> install.sh\n" not in said  # it is there already
