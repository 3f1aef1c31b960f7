"""What is said of machines that stay."""

import pytest

from platform_server.cloud import staying
from provisioning import providers


@pytest.mark.parametrize("name", [*sorted(providers.PROVIDERS), "local"])
def test_a_machine_costs_money_where_its_provider_takes_some_and_nowhere_else(name: str) -> None:
    is_paid = providers.get(name).costs_money
    assert is_paid is not name.startswith("local")
    for said in (staying.kept(name), staying.goes_on(name)):
        assert ("money" in said) is is_paid


def test_a_provider_that_nobody_knows_is_taken_to_charge() -> None:
    assert "money" in staying.kept("elsewhere")
