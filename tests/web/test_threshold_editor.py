"""Bounds tried by hand on a run's page, and the history of its policy."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.fixtures.running_service import RecordedRuns
from tests.fixtures.service import ThreadedService
from tests.web.conftest import Visiting, box_of

PATH = "/runs/math/stale-8b"
POLICY = f"/api/v1{PATH}/policy"
SHADOWS = ["trm_max", "geo_mask", "token_veto"]


@pytest.fixture(scope="module")
def own_service(recorded: RecordedRuns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """A service with the recorded runs, whose policies tests may change."""
    service = recorded.serve(recorded.running, tmp_path_factory.mktemp("editor") / "data")
    yield service
    service.stop()


@pytest.fixture
def service(own_service: ThreadedService) -> ThreadedService:
    """The service; the run's policy, which each test may change, is trm_auto, pinned, with the shadows of a new run."""
    with own_service.client() as client:
        client.put(POLICY, json={"policy": "trm_auto", "pinned": True, "shadows": SHADOWS}).raise_for_status()
        client.put(f"/api/v1{PATH}/adaptation", json={"mode": "off"}).raise_for_status()
    return own_service


@pytest.fixture
def client(service: ThreadedService) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


def editing(visiting: Visiting, service: ThreadedService) -> Page:
    """Open the run's page with the editor, which has read what today's bounds would reject."""
    page = visiting(service.url).go(PATH)
    expect(page.get_by_role("img", name=re.compile(r"sequences of 40 steps"))).to_be_visible()
    page.get_by_label("Criterion").select_option("max_abs_d")
    page.get_by_text("Try other bounds").click()
    expect(page.locator(".editor")).to_contain_text(re.compile(r"Would reject \S+ of 3,840 sequences in 40 steps; was"))
    return page


def asked_of(client: httpx.Client, bound: float) -> dict[str, object]:
    policy = client.get(POLICY).json()["policy"]
    policy.pop("calibrate", None)
    criteria = [one | {"upper": bound} if one["statistic"] == "max_abs_d" else one for one in policy["criteria"]]
    answer = client.post(f"/api/v1{PATH}/whatif", json={"policy": policy | {"criteria": criteria}})
    found: dict[str, object] = answer.raise_for_status().json()
    return found


def test_a_bound_is_typed_moved_or_dragged(service: ThreadedService, visiting: Visiting, client: httpx.Client) -> None:
    page = editing(visiting, service)
    field, slider = page.get_by_label("Upper bound, number"), page.get_by_label("Upper bound", exact=True)
    before = float(slider.get_attribute("aria-valuetext") or "nan")
    field.fill("0.01")
    found = asked_of(client, 0.01)
    share = round(100 * found["total"]["mask_rate"])  # type: ignore[index]
    expect(page.locator(".editor")).to_contain_text(f"Would reject {share}% of 3,840 sequences in 40 steps")
    expect(page.locator(".editor")).to_contain_text(re.compile(r"Reasons: .*max_abs_d [\d,]+"))
    expect(page.locator(".editor")).to_contain_text(re.compile(r"By length in tokens: \d+–\d+: \S+"))

    page.get_by_role("button", name="Back to today's").click()
    expect(slider).to_have_attribute("aria-valuetext", re.compile(re.escape(f"{before:g}")))
    slider.focus()
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    moved = float(slider.get_attribute("aria-valuetext") or "nan")
    assert moved < before
    expect(field).to_have_value(re.compile(r"^[\d.e-]+$"))

    canvas = page.locator(".heat canvas")
    canvas.scroll_into_view_if_needed()
    height = page.evaluate(f"document.querySelector('.heat canvas').heightOf({field.input_value()})")
    box = box_of(canvas)
    page.mouse.move(box["x"] + 200, box["y"] + height)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + height + 60, steps=5)
    page.mouse.up()
    expect(field).not_to_have_value(f"{moved:g}")
    assert float(field.input_value()) < moved
    expect(page.locator(".step")).to_be_hidden()


def test_no_bound_can_be_typed_until_the_chosen_criterion_is_read(service: ThreadedService, visiting: Visiting) -> None:
    page = editing(visiting, service)
    field = page.get_by_label("Upper bound, number")
    held: list[Route] = []
    page.route(re.compile("/distribution"), lambda route: held.append(route))
    with page.expect_request(re.compile("/distribution")):
        page.get_by_label("Criterion").select_option("mean_k3")
    expect(field).to_be_disabled()
    held.pop().continue_()
    expect(field).to_be_enabled()

    page.get_by_text("Try other bounds").click()
    with page.expect_request(re.compile("/distribution")):
        page.get_by_label("Criterion").select_option("max_abs_d")
    page.get_by_text("Try other bounds").click()
    page.wait_for_timeout(200)  # The page handles the click in a separate task.
    expect(field).to_be_disabled()
    for route in held:
        route.continue_()
    expect(field).to_be_enabled()


def test_a_soft_policy_shows_its_weights(service: ThreadedService, visiting: Visiting, client: httpx.Client) -> None:
    policy = client.get(POLICY).json()["policy"]
    client.put(POLICY, json={"policy": policy | {"soft_tau": 5.0}, "pinned": True}).raise_for_status()
    page = visiting(service.url).go(PATH)
    page.get_by_label("Criterion").select_option("max_abs_d")
    page.get_by_text("Try other bounds").click()
    page.get_by_label("Upper bound, number").fill("0.02")
    weights = asked_of(client, 0.02)["weights"]
    mean, share = (f"{100 * weights[name]:.0f}%" for name in ("mean", "effective_share"))  # type: ignore[index]
    expect(page.locator(".editor")).to_contain_text(f"Mean weight {mean}, effective share {share} of 3,840 sequences")
    expect(page.locator(".editor")).to_contain_text(re.compile(r"A soft policy: \S+ are beyond the bounds"))


def test_a_draft_is_kept_in_the_address_and_opened_by_it(service: ThreadedService, visiting: Visiting) -> None:
    page = editing(visiting, service)
    page.get_by_label("Upper bound, number").fill("0.01")
    page.get_by_role("button", name="Closer").click()
    expect(page).to_have_url(re.compile(r"try=max_abs_d,[a-z_,]+&upper=0\.01&from=\d+&to=\d+$"))
    expect(page.locator(".editor")).to_contain_text(re.compile(r"Would reject .+ in 20 steps"))
    shared = page.url
    other = visiting(service.url)
    page = other.go(shared.removeprefix(service.url))
    expect(page.get_by_label("Upper bound, number")).to_have_value("0.01")
    expect(page.get_by_label("Criterion")).to_have_value(re.compile(r"\d"))
    expect(page.get_by_label("Criterion").locator("option:checked")).to_have_text("max_abs_d")
    expect(page.locator(".editor")).to_contain_text(re.compile(r"Would reject .+ in 20 steps"))
    page.get_by_role("button", name="Back to today's").click()
    expect(page).to_have_url(re.compile(r"stale-8b\?from=\d+&to=\d+$"))


def test_a_draft_of_a_criterion_that_no_policy_has_says_so(service: ThreadedService, visiting: Visiting) -> None:
    tab = visiting(service.url)
    page = tab.go(f"{PATH}?try=token_kl,mismatch&upper=0.5")
    tab.expect_complaints("400")
    expect(page.locator(".editor")).to_contain_text(
        "The address tries token_kl (mismatch), which no policy of these steps bounds."
    )
    expect(page).to_have_url(re.compile("stale-8b$"))


def test_a_draft_that_cannot_be_read_is_left_out(service: ThreadedService, visiting: Visiting) -> None:
    tab = visiting(service.url)
    for address in ("try=max_abs_d&upper=1", "try=max_abs_d,mismatch&upper=many", "upper=0.5"):
        page = tab.go(f"{PATH}?{address}")
        expect(page.get_by_role("img", name=re.compile(r"sequences of 40 steps"))).to_be_visible()
        expect(page.locator(".editor")).not_to_have_attribute("open", "")


def test_a_draft_is_put_in_force_after_asking(
    service: ThreadedService, visiting: Visiting, client: httpx.Client
) -> None:
    page = editing(visiting, service)
    before = client.get(POLICY).json()
    page.get_by_label("Upper bound, number").fill("0.03")
    page.get_by_role("button", name="Save as shadow").click()
    expect(page.get_by_label("Policies")).to_contain_text("trm_auto_by_hand · shadow")
    after = client.get(POLICY).json()
    assert (after["hash"], after["pinned"]) == (before["hash"], True)
    assert [one["name"] for one in after["shadows"]] == [*SHADOWS, "trm_auto_by_hand"]
    assert {one["statistic"]: one.get("upper") for one in after["shadows"][-1]["criteria"]}["max_abs_d"] == 0.03

    page.get_by_label("Upper bound, number").fill("0.02")
    expect(page.locator(".editor")).to_contain_text("Would reject")
    page.get_by_role("button", name="Put in force").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile(r"max_abs_d: at most \S+ → at most 0\.02"))
    dialog.get_by_role("button", name="Put in force").click()
    history = page.locator(".history")
    expect(history.locator(".versions > li .strong").first).to_have_text("trm_auto_by_hand")
    after = client.get(POLICY).json()
    assert (after["name"], after["pinned"]) == ("trm_auto_by_hand", True)
    history.get_by_text(re.compile("^History:")).click()
    expect(history).to_contain_text(re.compile(r"upper bound of max_abs_d, .+: \S+ → 0\.02"))
    expect(history.locator("li .pill").first).to_have_text("in force")
    history.locator("li").filter(has_text=re.compile(r"^trm_auto ·")).get_by_role(
        "button", name="Roll back to this"
    ).first.click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(history).to_contain_text("rolled back to")
    assert client.get(POLICY).json()["hash"] == before["hash"]


def test_a_proposal_is_put_in_force(service: ThreadedService, visiting: Visiting, client: httpx.Client) -> None:
    client.put(POLICY, json={"policy": "trm_auto", "pinned": False}).raise_for_status()
    client.put(f"/api/v1{PATH}/adaptation", json={"mode": "recommend"}).raise_for_status()
    proposed = client.get(f"/api/v1{PATH}/adaptation").json()["recommended"]
    shares = [f"{round(100 * proposed[name])}%" for name in ("mask_rate_after", "mask_rate_before")]
    page = visiting(service.url).go(PATH)
    page.get_by_text(re.compile(r"^History: \d+ versions, \d+ proposals?$")).click()
    entry = page.locator(".history .proposal").filter(has_text="target share of rejected sequences")
    expect(entry.locator(".pill")).to_have_text("proposed")
    expect(entry).to_contain_text(re.compile(r"upper bound of max_abs_d, .+: 5 → \S+"))
    expect(entry).to_contain_text(f"Would reject {shares[0]} instead of {shares[1]} of the newest 3,840 sequences.")
    expect(entry).to_contain_text("Target mask rate")
    entry.get_by_role("button", name="Put in force").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Would reject {shares[0]}")
    dialog.get_by_role("button", name="Put in force").click()
    expect(page.locator(".history")).to_contain_text("proposed bounds, put in force on the page")
    now = client.get(POLICY).json()
    assert (now["policy"], now["author"]) == (proposed["policy"], "local")
    expect(page.locator(".versions > li:not(.proposal) .pill").first).to_have_text("in force")


def test_what_is_applied_has_no_button(service: ThreadedService, visiting: Visiting, client: httpx.Client) -> None:
    client.put(POLICY, json={"policy": "trm_auto", "pinned": False}).raise_for_status()
    client.put(f"/api/v1{PATH}/adaptation", json={"mode": "apply"}).raise_for_status()
    page = visiting(service.url).go(PATH)
    page.get_by_text(re.compile("^History:.*proposal")).click()
    entry = page.locator(".history .proposal").filter(has_text="target share of rejected sequences")
    expect(entry).to_contain_text("The worker puts it in force by itself.")
    expect(entry.get_by_role("button")).to_have_count(0)


def test_a_newer_policy_is_not_overwritten(service: ThreadedService, visiting: Visiting, client: httpx.Client) -> None:
    page = editing(visiting, service)
    page.get_by_label("Upper bound, number").fill("0.02")
    client.put(POLICY, json={"policy": "geo_mask"}).raise_for_status()
    page.get_by_role("button", name="Put in force").click()
    expect(page.locator(".editor [role=alert]").filter(has_text="The policy is geo_mask by")).to_be_visible()
    assert client.get(POLICY).json()["name"] == "geo_mask"
