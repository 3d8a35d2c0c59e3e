"""Studio in a real browser."""

import base64
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.integration.browser import desk
from tests.integration.browser.pages import PHONE, SIZE, Open, selected_row
from tests.integration.browser.serving import Studio

from batonkit import Agent

AXE = Path(__file__).parents[3] / "studio" / "node_modules" / "axe-core" / "axe.min.js"


def test_a_link_leads_to_an_event_and_shows_what_the_receiver_read(open_page: Open) -> None:
    page = open_page("broken@8")
    selected_row(page, "Triage → Refunds").wait_for()
    page.get_by_role("tab", name="What Refunds read").click()
    expect(page.get_by_text("You settle order A-17: refund, priority 1.")).to_be_visible()
    header = page.locator("header.top")
    expect(header).to_contain_text("+1 refused")
    expect(header).to_contain_text("completed")
    expect(header).to_contain_text("team")


def test_a_handoff_is_shown_by_provenance(open_page: Open) -> None:
    page = open_page("broken@8")
    page.get_by_role("tab", name="Diff").click()
    facts = page.locator(".facts")
    expect(facts).to_contain_text("2 withheld")
    expect(facts).to_contain_text("2 rewritten")
    expect(page.locator(".cache")).to_contain_text("Prompt-cache prefix breaks at the tools")
    expect(page.locator(".msg.rewritten ins").first).to_be_visible()


def test_the_lanes_show_control_and_refusals(open_page: Open) -> None:
    page = open_page("broken")
    lanes = page.locator(".lanes")
    for text in ("User", "Triage", "Refunds", "Closer", "refused: Refunds", "→ Refunds", "Cost"):
        expect(lanes.locator(f'text:has-text("{text}")').first).to_be_visible()
    expect(lanes.locator(".bar.model")).to_have_count(6)
    page.get_by_role("button", name="Steps").click()
    expect(lanes.locator(".tick").first).to_contain_text("1")


def test_nested_agents_are_indented(open_page: Open) -> None:
    page = open_page("parallel")
    lanes = page.locator(".lanes text.lane")
    expect(lanes.filter(has_text="Fraud")).to_be_visible()
    left = [lanes.filter(has_text=name).first.get_attribute("x") for name in ("Checks", "Fraud")]
    assert float(left[1] or 0) > float(left[0] or 0)


@pytest.mark.parametrize("place", ["long@5000", "forked", "broken"])
def test_labels_do_not_overlap(open_page: Open, place: str) -> None:
    page = open_page(place)
    page.locator(".lanes .bar").first.wait_for()
    labels = page.locator(".lanes text.label, .lanes .tick text, .lanes .fold text")
    for _ in range(4):
        labels.first.wait_for(state="attached")
        boxes: list[dict[str, float]] = page.evaluate(
            "() => [...document.querySelectorAll('.lanes text.label, .lanes .tick text, .lanes .fold text')]"
            ".map(t => t.getBBox()).map(b => ({x: b.x, y: b.y, w: b.width, h: b.height}))"
        )
        assert boxes
        for number, a in enumerate(boxes):
            for b in boxes[number + 1 :]:
                is_apart_x = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
                assert is_apart_x or a["y"] + a["h"] <= b["y"] + 4 or b["y"] + b["h"] <= a["y"] + 4, (a, b)
        page.get_by_role("button", name="Zoom in").click()


def test_ten_thousand_events_are_drawn_in_part(open_page: Open) -> None:
    page = open_page("long@5000")
    page.locator("#event-5000[aria-selected=true]").wait_for()
    expect(page.locator(".inspector .msg").first).to_be_visible()
    assert page.locator(".row").count() < 80
    for _ in range(8):
        page.get_by_role("button", name="Zoom out").click()
    assert page.evaluate("() => document.querySelectorAll('*').length") < 2000


def test_keys_step_through_events_and_transfers(open_page: Open) -> None:
    page = open_page("broken")
    page.locator(".row").first.wait_for()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.locator("#event-3[aria-selected=true]").wait_for()
    page.keyboard.press("k")
    page.locator("#event-2[aria-selected=true]").wait_for()
    page.keyboard.press("]")
    selected_row(page, "Not transferred").wait_for()
    page.keyboard.press("]")
    selected_row(page, "Triage → Refunds").wait_for()
    page.keyboard.press("]")
    selected_row(page, "Refunds → Closer").wait_for()
    page.keyboard.press("[")
    selected_row(page, "Triage → Refunds").wait_for()
    page.keyboard.press("/")
    expect(page.get_by_label("Find runs")).to_be_focused()
    page.keyboard.type("C-9")
    expect(page.locator(".sidebar li a")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("C-9")


def test_a_failed_run_shows_its_error_first(open_page: Open) -> None:
    page = open_page("failed")
    expect(page.locator(".failure")).to_contain_text("the provider is overloaded")


def test_runs_are_filtered_and_threads_are_listed(open_page: Open) -> None:
    page = open_page("broken")
    page.get_by_role("button", name="Filter").click()
    page.get_by_label("Status").select_option("failed")
    expect(page.locator(".sidebar li a")).to_have_count(2)
    page.get_by_role("tab", name="Threads").click()
    expect(page.locator(".sidebar li code").first).to_contain_text("customer-")


def test_an_approval_is_answered_with_other_arguments_and_the_run_goes_on(open_page: Open) -> None:
    page = open_page("/new")
    page.get_by_label("Message").fill("Order A-99 came broken, I want my money back!")
    page.get_by_role("button", name="Send").click()
    question = page.locator(".question")
    expect(question).to_contain_text('refund(order: "A-99", amount: 80)')
    page.get_by_role("button", name="Edit arguments").click()
    question.locator("textarea").fill('{"order": "A-99", "amount": 70}')
    page.get_by_role("button", name="Allow").click()
    expect(page.locator(".title")).to_contain_text("completed")
    page.keyboard.press("t")
    page.keyboard.press("End")
    expect(page.locator('.row:has-text("70.00 EUR paid back")').first).to_be_visible()


def test_several_questions_are_answered_at_once(open_page: Open) -> None:
    page = open_page("/new")
    page.get_by_label("Message").fill("Order A-98 came broken, I want my money back! And here is my rating.")
    page.get_by_role("button", name="Send").click()
    questions = page.get_by_role("region", name="Open questions")
    expect(questions.locator(".question")).to_have_count(2)
    send = questions.get_by_role("button", name=re.compile("^Send"))
    expect(send).to_be_disabled()
    allow, answer = page.get_by_role("button", name="Allow"), page.get_by_role("button", name="Answer", exact=True)
    allow.click()
    expect(allow).to_have_attribute("aria-pressed", "true")
    expect(questions).to_contain_text("1 of 2 answered")
    page.get_by_label("Stars").fill("9")
    answer.click()
    # One refused answer leaves all questions open, with what was entered.
    send.click()
    expect(page.get_by_role("alert")).to_contain_text("9 is greater than the maximum of 5")
    # The message stays when the list of runs changes meanwhile.
    page.request.post(re.sub("#.*", "api/runs", page.url), data={"input": "Is my parcel lost? Order C-5."})
    expect(page.get_by_role("navigation", name="Runs")).to_contain_text("Order C-5")
    expect(page.get_by_role("alert")).to_contain_text("9 is greater than the maximum of 5")
    page.get_by_label("Stars").fill("4")
    expect(answer).to_have_attribute("aria-pressed", "false")
    expect(questions).to_contain_text("1 of 2 answered")
    answer.click()
    with page.expect_request("**/answers") as sent:
        send.click()
    assert list(json.loads(sent.value.post_data or "")["answers"].values()) == [True, {"stars": 4}]
    expect(page.locator(".title")).to_contain_text("completed")
    expect(questions).to_have_count(0)
    expect(page.locator(".chat .lines")).to_contain_text("The money is on its way, and thank you for the rating.")


def test_an_answer_that_was_not_sent_stays_with_its_run(open_page: Open) -> None:
    # The questions of two runs may have the same keys.
    page = open_page("/new")
    allow = page.get_by_role("button", name="Allow")
    runs: list[str] = []
    for order in ("A-96", "A-97"):
        page.goto(re.sub("#.*", "#/new", page.url))
        page.get_by_label("Message").fill(f"Order {order} came broken, I want my money back! And here is my rating.")
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".question").first).to_contain_text(order)
        runs.append(page.url.partition("#")[2].partition("@")[0])
    allow.click()
    expect(allow).to_have_attribute("aria-pressed", "true")
    page.goto(re.sub("#.*", f"#{runs[0]}", page.url))
    expect(page.locator(".question").first).to_contain_text("A-96")
    expect(allow).to_have_attribute("aria-pressed", "false")


def test_a_newcomer_finds_the_wrong_agent_and_forks_to_the_right_one(open_page: Open) -> None:
    # The steps of docs/guides/studio.md.
    page = open_page("wrong")
    page.locator(".row").first.wait_for()
    page.keyboard.press("]")
    selected_row(page, "Triage → Parcels").wait_for()
    expect(page.get_by_role("tab", name="What Parcels read")).to_be_visible()
    expect(page.locator(".body")).to_contain_text(desk.WRONG)
    page.goto(re.sub("#.*", "#wrong@3", page.url))
    page.keyboard.press("f")
    page.locator(".form fieldset select").select_option("transfer_to_refunds")
    page.locator(".form").get_by_label("Arguments (JSON)").fill('{"reason": "refund", "priority": 1, "order": "D-3"}')
    page.get_by_role("button", name="Fork and run").click()
    expect(page.locator(".question")).to_contain_text("refund(order")
    page.get_by_role("link", name="compare").click()
    expect(page.locator(".shared")).to_contain_text("The first 2 events are the same. Event 3 differs in message.")
    expect(page.locator(".numbers")).to_contain_text("Triage → Refunds")


@pytest.mark.parametrize(
    ("label", "text", "sent"),
    [
        (
            "New instructions for Triage",
            "Whoever wants a refund goes to Refunds.",
            {"at": 1, "agent_options": {"Triage": {"instructions": "Whoever wants a refund goes to Refunds."}}},
        ),
        ("Model of all agents", "desk:careful", {"at": 1, "model": "desk:careful"}),
    ],
    ids=["instructions", "model"],
)
def test_a_fork_runs_with_other_instructions_or_another_model(
    open_page: Open, label: str, text: str, sent: dict[str, Any]
) -> None:
    page = open_page("wrong@1")
    page.get_by_role("tab", name="Fork").click()
    page.get_by_text("Instructions and model").click()
    page.get_by_label(label).fill(text)
    with page.expect_request("**/fork") as request:
        page.get_by_role("button", name="Fork and run").click()
    assert request.value.post_data_json == sent
    expect(page.locator(".question")).to_contain_text('refund(order: "D-3", amount: 80)')
    page.get_by_role("button", name="Allow").click()
    # The refund must happen once, so the fork asks before it pays; it is not paid by default.
    expect(page.locator(".question")).to_contain_text("shall this fork call")
    expect(page.get_by_label("Do not call it: take this error")).to_be_checked()
    page.get_by_label("Call it: the fork acts").check()
    page.get_by_role("button", name="Answer").click()
    expect(page.locator(".title")).to_contain_text("completed")
    fork = page.url.partition("#")[2].partition("@")[0]
    page.goto(re.sub("#.*", f"#{fork}@3", page.url))
    page.get_by_role("tab", name="What Triage read").click()
    expect(page.locator(".inspector")).to_contain_text(text)
    page.get_by_role("link", name="compare").click()
    path = page.locator(".numbers tr", has_text="Path").locator("td")
    expect(path).to_have_text(["Triage → Parcels", "Triage → Refunds → Closer"])
    expect(page.locator(".shared")).to_contain_text(re.compile(r"Event \d+ differs in "))
    expect(page.locator(".msg ins").last).to_contain_text("EUR are on their way back.")


def test_a_replay_says_that_the_code_still_matches(open_page: Open) -> None:
    page = open_page("broken")
    page.get_by_role("button", name="Replay").click()
    expect(page.locator(".verdict")).to_contain_text("replay matches")
    page.goto(re.sub("#.*", "#late", page.url))
    expect(page.locator("h1")).to_contain_text("Where is my parcel?")
    expect(page.locator(".verdict")).to_have_count(0)


def test_a_replay_leads_to_the_first_event_that_the_code_does_not_produce(open_page: Open) -> None:
    # Triage of this team cannot hand over to Closer.
    parcels = Agent("Parcels", description="Finds parcels.", tools=[desk.find_order, desk.track])
    changed = Agent("Triage", description="Finds out what a customer wants.", handoffs=[parcels])
    page = open_page("thanks", changed)
    page.get_by_role("button", name="Replay").click()
    verdict = page.locator(".verdict.bad")
    expect(verdict).to_contain_text("differs at event 5: at `1/m2` the log has nothing")
    expect(verdict).to_contain_text("skips the recorded `1/to`")
    verdict.get_by_role("link", name="event 5").click()
    selected_row(page, "Triage → Closer").wait_for()
    assert page.url.endswith("#thanks@5")


def test_the_team_and_its_use_are_shown(open_page: Open) -> None:
    page = open_page("/team")
    expect(page.locator(".stage .node", has_text="Refunds")).to_be_visible()
    expect(page.locator(".stage .node .second").first).to_contain_text("call")
    page.goto(re.sub("#.*", "#/usage", page.url))
    page.get_by_role("button", name="edge").click()
    expect(page.locator(".numbers")).to_contain_text("Triage → Refunds")


def test_the_heat_of_the_team_follows_the_chosen_measure(open_page: Open) -> None:
    page = open_page("/team")
    api = f"{page.url.partition('#')[0]}api/usage?by="
    agents, edges = (
        {row["name"]: row for row in page.request.get(f"{api}{by}").json()["rows"]} for by in ("agent", "edge")
    )

    def opacity(agent: str) -> float:
        rect = page.locator(".stage .node", has=page.locator(f'text:text-is("{agent}")')).locator("rect")
        return rect.evaluate("rect => Number(rect.style.fillOpacity)")

    def second(agent: str) -> Locator:
        return page.locator(".stage .node", has=page.locator(f'text:text-is("{agent}")')).locator(".second")

    page.get_by_label("Heat").select_option("cost")
    cost = {name: row["usage"].get("cost", 0) for name, row in agents.items()}
    assert cost["Refunds"] > cost["Fraud"] > 0
    expect(second("Fraud")).to_have_text(f"${cost['Fraud']:.4f} cost")
    assert opacity("Refunds") > opacity("Fraud")
    page.get_by_label("Heat").select_option("failures")
    # The invalid tickets of Triage were refused; run `failed` ended while Refunds had control.
    expect(second("Triage")).to_have_text(re.compile(r"^\d+ failures?$"))
    expect(second("Refunds")).to_have_text(f"{agents['Refunds']['failures']} failure")
    expect(second("Fraud")).to_have_text("0 failures")
    assert agents["Refunds"]["failures"] == 1
    refused = edges["Triage → Refunds"]["failures"]
    assert refused >= 2
    assert opacity("Triage") > opacity("Refunds") > opacity("Fraud")
    edge = page.locator(".stage .edge", has=page.locator('title:text("Triage → Refunds")'))
    expect(edge.locator("title")).to_have_text(f"Triage → Refunds (handoff): {refused} failures")
    width = "path => Number.parseFloat(path.style.strokeWidth)"
    other = page.locator(".stage .edge", has=page.locator('title:text("Triage → Parcels")'))
    assert edge.evaluate(width) > other.evaluate(width)


def test_the_values_are_those_at_the_chosen_event(open_page: Open) -> None:
    page = open_page("warranty@20")
    page.get_by_role("tab", name="Values").click()
    values = page.locator(".values > div")
    expect(values).to_have_text(['draft"a longer warranty"'])
    page.keyboard.press("j")
    expect(values).to_have_count(2)
    expect(values.first).to_contain_text("warranty")
    expect(values.first).to_contain_text("set here")
    expect(values.first).to_contain_text('"years": 3')
    expect(values.last).to_have_text("draftdeleted here")
    page.keyboard.press("j")
    expect(values).to_have_count(1)
    expect(page.locator(".values")).not_to_contain_text("here")
    page.goto(re.sub("#.*", "#late", page.url))
    expect(page.locator(".body")).to_have_text("The run had no values at this event.")


def test_the_usage_is_sorted_by_a_column(open_page: Open) -> None:
    page = open_page("/usage")
    page.get_by_role("button", name="agent").click()
    heads = page.get_by_role("columnheader")
    expect(page.locator("th[aria-sort]")).to_have_count(0)
    names = page.locator(".numbers tbody tr td:first-child")

    def cells(column: int) -> list[int]:
        texts = page.locator(f".numbers tbody tr td:nth-child({column})").all_inner_texts()
        return [int(text.replace(",", "")) for text in texts]

    head = heads.filter(has_text="output")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert cells(6) == sorted(cells(6), reverse=True)
    head.get_by_role("button").press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert cells(6) == sorted(cells(6))
    heads.filter(has_text="agent").get_by_role("button").click()
    expect(heads.filter(has_text="agent")).to_have_attribute("aria-sort", "ascending")
    expect(page.locator("th[aria-sort]")).to_have_count(1)
    assert names.all_inner_texts() == sorted(names.all_inner_texts())


def test_a_question_mark_shows_the_keyboard_shortcuts(open_page: Open) -> None:
    page = open_page("broken")
    page.locator(".row").first.wait_for()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    expect(dialog).to_contain_text("Next transfer")
    # The keys do nothing behind the dialog.
    page.keyboard.press("j")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator("#event-1")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("j")
    expect(page.locator("#event-2")).to_have_attribute("aria-selected", "true")
    page.get_by_role("button", name="Keyboard shortcuts").click()
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_content_is_text(open_page: Open) -> None:
    page = open_page("/new")
    page.get_by_label("Message").fill("<img src=x onerror=alert(1)><b>bold</b>")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("h1")).to_have_text("<img src=x onerror=alert(1)><b>bold</b>")
    assert page.locator("h1 *").count() == 0


def test_nothing_inline_runs(open_page: Open) -> None:
    page = open_page("broken")
    page.locator(".row").first.wait_for()
    add = (
        "() => { const s = document.createElement('script'); s.textContent = 'window.x = 1'; document.head.append(s) }"
    )
    context = page.context
    other = context.new_page()
    other.goto(page.url)
    other.locator(".row").first.wait_for()
    other.evaluate(add)
    assert other.evaluate("() => window.x ?? null") is None


def test_without_the_token_nothing_is_shown(browser: Browser, studio: Studio) -> None:
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(f"{studio.url}/")
    assert answer is not None
    assert answer.status == 401
    assert page.request.get(f"{studio.url}/api/runs").status == 401
    url = studio.sign_in_url()
    page.goto(url)
    page.locator(".sidebar").wait_for()
    assert "token" not in page.url
    again = browser.new_context()
    answer = again.new_page().goto(url)
    assert answer is not None
    assert answer.status == 403
    again.close()
    context.close()


def _copy_test(page: Page) -> str:
    page.get_by_text("Copy and export").click()
    page.get_by_role("button", name="Copy as test").click()
    page.get_by_text("Copied test").wait_for()
    return page.evaluate("() => navigator.clipboard.readText()")


def _execute(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Execute a copied test in a thread of its own: Playwright's event loop runs in this one."""
    module: Any = ModuleType("desk")
    module.team = desk.make_desk()
    module.context = desk.Customer("gold")
    monkeypatch.setitem(sys.modules, "desk", module)
    namespace: dict[str, Any] = {}
    assert source.count("CONTEXT = None") == 1
    source = source.replace("CONTEXT = None", "from desk import context as CONTEXT")
    exec(compile(source, "test_copied.py", "exec"), namespace)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(namespace["test_the_recorded_run"]).result()


CLIPBOARD = ["clipboard-read", "clipboard-write"]


@pytest.mark.parametrize("run", ["broken", "open", "parallel", "forked", "failed", "warranty"])
def test_a_run_is_copied_as_a_test_that_passes(open_page: Open, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = open_page(run, permissions=CLIPBOARD)
    _execute(_copy_test(page), monkeypatch)


def test_a_run_that_was_answered_on_the_page_is_copied_as_a_test_that_passes(
    open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_page("/new", permissions=CLIPBOARD)
    page.get_by_label("Message").fill("Order A-95 came broken, I want my money back! And here is my rating.")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Edit arguments").click()
    page.get_by_label("Arguments (JSON)").fill('{"order": "A-95", "amount": 60}')
    page.get_by_role("button", name="Allow").click()
    page.get_by_label("Stars").fill("4")
    page.get_by_role("button", name="Answer", exact=True).click()
    page.get_by_role("button", name="Send the answers").click()
    expect(page.locator(".title")).to_contain_text("completed")
    source = _copy_test(page)
    assert '"amount": 60' in source
    _execute(source, monkeypatch)


def test_an_exported_run_opens_from_the_disk(open_page: Open, browser: Browser, tmp_path: Path) -> None:
    page = open_page("broken")
    page.locator(".row").first.wait_for()
    page.get_by_text("Copy and export").click()
    with page.expect_download() as started:
        page.get_by_role("link", name="Export as HTML").click()
    file = tmp_path / "run.html"
    started.value.save_as(file)
    context = browser.new_context(offline=True)
    alone = context.new_page()
    trouble: list[str] = []
    alone.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    alone.on("pageerror", lambda error: trouble.append(str(error)))
    alone.goto(f"{file.as_uri()}#broken@8")
    expect(alone.locator("h1")).to_contain_text("Order A-17 came broken")
    expect(alone.locator(".body")).to_contain_text("You settle order A-17")
    assert alone.evaluate("() => document.fonts.check('13px Inter')")
    context.close()
    assert trouble == []


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize(
    ("place", "keys", "size"),
    [
        ("open@8", "", SIZE),
        ("broken@3", "f", SIZE),
        ("warranty@21", "v", SIZE),
        ("warranty", "c", SIZE),
        ("broken", "?", SIZE),
        ("broken", "", PHONE),
        ("/team", "", SIZE),
        ("/usage", "", SIZE),
        ("/new", "", SIZE),
        ("/compare/broken/forked", "", SIZE),
    ],
)
def test_axe_finds_no_violations(open_page: Open, scheme: str, place: str, keys: str, size: Any) -> None:
    # Axe is injected, which the page's own policy forbids.
    page = open_page(place, color_scheme=scheme, bypass_csp=True, viewport=size)
    page.locator("main h1").first.wait_for()
    page.wait_for_load_state("load")
    page.locator(".row, .numbers, .composer").first.wait_for()
    if keys:
        page.keyboard.press(keys)
    page.locator(".body .msg, .form, .numbers, .composer, .values, .lines, dialog, .row").first.wait_for()
    page.evaluate(AXE.read_text())
    found = page.evaluate("() => axe.run()")["violations"]
    assert [(each["id"], [node["html"][:120] for node in each["nodes"][:3]]) for each in found] == []


def test_a_live_conversation_shows_speech_interruptions_and_silence(open_page: Open) -> None:
    page = open_page("live@9")
    lanes = page.locator(".lanes")
    expect(lanes.locator("text.lane", has_text="Speech")).to_be_visible()
    expect(lanes.locator(".bar.speech")).to_have_count(5)
    titles = lanes.locator(".bar.speech title").all_text_contents()
    assert [title.partition(":")[0] for title in titles] == [
        "User says",
        "Hotline says",
        "Billing says",
        "User says",
        "Billing says",
    ]
    expect(lanes.locator(".bar.gap title")).to_contain_text("silence before Billing speaks")
    expect(lanes.locator(".note.cut title")).to_contain_text("interrupted; heard: Invoice 5512")
    expect(page.locator("h1")).to_have_text("Hello, I have a question about an invoice.")
    expect(page.locator(".body")).to_contain_text("In a live conversation the model keeps what was said")
    # It is of another team than Studio's, whose graph would say nothing about it.
    expect(page.locator(".left svg.graph")).to_have_count(0)
    page.get_by_role("button", name="Steps").click()
    expect(lanes.locator(".bar.speech")).to_have_count(5)


def test_files_are_sent_with_a_message(open_page: Open, tmp_path: Path) -> None:
    note, picture = tmp_path / "note.txt", tmp_path / "lamp.png"
    note.write_text("The lamp is broken.")
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(70_000))
    page = open_page("/new")
    page.get_by_label("Attach").set_input_files([note, picture])
    expect(page.locator(".files")).to_have_text("note.txtlamp.png")
    page.get_by_label("Message").fill("Where is my parcel? Order B-8.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".title")).to_contain_text("completed")
    run = page.url.partition("#")[2].partition("@")[0]
    log = page.request.get(f"{page.url.partition('#')[0]}api/runs/{run}/log").json()
    (message,) = log["events"][0]["event"]["input"]
    text, file, image = message["content"]
    assert text["text"] == "Where is my parcel? Order B-8."
    assert (file["name"], base64.b64decode(file["data"])) == ("note.txt", note.read_bytes())
    assert (image["media_type"], base64.b64decode(image["data"])) == ("image/png", picture.read_bytes())
    expect(page.locator("h1")).to_contain_text("Where is my parcel? Order B-8.")
    page.get_by_role("tab", name="What Triage read").click()
    expect(page.locator(".body .msg").nth(1)).to_contain_text("note.txt")


def test_runs_are_filtered_by_agent_cost_and_time(open_page: Open) -> None:
    page = open_page("broken")
    page.get_by_role("button", name="Filter").click()
    runs = page.locator(".sidebar li a")
    page.get_by_label("Least cost").fill("1")
    expect(runs).to_have_count(1)
    expect(runs).to_contain_text("Round and round it goes")
    page.get_by_label("Least cost").fill("")
    page.get_by_label("Agent", exact=True).fill("Stock")
    expect(runs).to_have_count(1)
    page.get_by_label("Agent", exact=True).fill("")
    page.get_by_label("Thread", exact=True).fill("customer-42")
    expect(runs).to_have_count(1)
    page.get_by_label("Time", exact=True).select_option("Last hour")
    expect(runs).to_have_count(1)
    page.get_by_label("Owner").fill("someone else")
    expect(page.locator(".sidebar li.empty")).to_have_text("No run matches.")


def test_a_crash_report_opens_from_a_file(open_page: Open, tmp_path: Path) -> None:
    finding = {"event": 2, "place": "after event 2", "lines": ["- 20 EUR paid", "+ 40 EUR paid"]}
    log = [{"type": "RunStarted", "key": "run", "origin": ["", "", None], "timestamp": 0, "input": []}]
    report = {"format": "baton-report", "version": 1, "kind": "crashes", "counts": {"crashes": 7}}
    file = tmp_path / "report.json"
    file.write_text(json.dumps({**report, "findings": [finding], "log": log}))
    page = open_page("/report")
    page.get_by_label("Open a file").set_input_files(file)
    expect(page.locator(".finding")).to_contain_text("+ 40 EUR paid")
    expect(page.locator(".counts")).to_contain_text("7")
    page.get_by_label("Open a file").set_input_files(Path(__file__))
    expect(page.get_by_role("alert")).to_be_visible()
