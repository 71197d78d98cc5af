"""The file of demands: the shipped one can be used, and a wrong one is refused with what is wrong."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from trmon.domain.capacity.architecture import DeploymentKind
from trmon.domain.capacity.demand_file import DemandFile, MeasuredDemands, decode_demand_file, shipped_demands
from trmon.domain.capacity.station import Activity, Station
from trmon.domain.model.errors import InvalidInput


def test_the_shipped_demands_of_each_deployment_are_known() -> None:
    file = shipped_demands()
    for kind in DeploymentKind:
        demands = file.demands(kind)
        assert demands.keys() == set(Station)
        assert 1e-5 < demands[Station.API][Activity.REPORT] < 1e-2
        assert demands[Station.NETWORK][Activity.SEQUENCE] == pytest.approx(370, rel=0.2)
    assert not file.demands(DeploymentKind.EMBEDDED)[Station.DATABASE]


def test_a_slower_machine_needs_more_time_and_as_many_bytes() -> None:
    file = shipped_demands()
    one, twice = file.demands(DeploymentKind.FLEET), file.demands(DeploymentKind.FLEET, cpu_factor=2.0)
    assert twice[Station.API][Activity.REPORT] == 2 * one[Station.API][Activity.REPORT]
    assert twice[Station.LOG] == one[Station.LOG]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"format": 2}, "has format 2; this version reads 1"),
        ({"deployments": {}}, "has no deployment 'embedded'"),
        ({"deployments": "fleet"}, "is not a file of measured demands"),
        ({"stations": {"api": {"report": -1.0}}}, "has a negative demand of fleet at api"),
        ({"stations": {"api": {"coffee": 1.0}}}, "names a station or an activity of fleet that this version does not"),
        ({"stations": {"kitchen": {"report": 1.0}}}, "that this version does not know: kitchen"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(changed: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        decode_demand_file(encoded(**changed))


def encoded(**changed: object) -> bytes:
    file: DemandFile = shipped_demands()
    if (stations := changed.pop("stations", None)) is not None:
        fleet: MeasuredDemands = structs.replace(file.deployments["fleet"], stations=stations)
        changed["deployments"] = {**file.deployments, "fleet": fleet}
    return msgspec.json.encode(msgspec.to_builtins(file) | msgspec.to_builtins(changed))
