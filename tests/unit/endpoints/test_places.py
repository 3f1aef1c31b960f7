"""The places for strangers' requests on the API port."""

import pytest

from platform_server.endpoints import enroll_server, refusals


async def test_a_request_past_the_places_is_told_to_come_again() -> None:
    places = enroll_server.Places(2, wait_seconds=0.01)
    async with places.taken(), places.taken():
        with pytest.raises(refusals.Refusal) as caught:
            async with places.taken():
                raise AssertionError
    assert (caught.value.code, caught.value.retry_after_seconds) == ("unavailable", 1)
    async with places.taken():
        pass
