"""Forms of Studio: what is wrong is said at the field that it concerns."""

import re

from playwright.sync_api import Locator, expect
from tests.integration.browser.pages import Open


def _expect_problem(field: Locator, message: str) -> None:
    """Expect a message right below a field, and nothing above the page."""
    expect(field).to_have_attribute("aria-invalid", "true")
    problem = field.page.get_by_role("alert")
    expect(problem).to_have_count(1)
    expect(problem).to_contain_text(message)
    above, below = field.bounding_box(), problem.bounding_box()
    assert above is not None
    assert below is not None
    assert 0 <= below["y"] - (above["y"] + above["height"]) < 24


def test_a_question_says_which_field_is_wrong(open_page: Open) -> None:
    page = open_page("/new")
    page.get_by_label("Message").fill("Thanks! Here is my rating.")
    page.get_by_role("button", name="Send").click()
    stars = page.get_by_label("Stars")
    stars.fill("9")
    page.get_by_role("button", name="Answer").click()
    _expect_problem(stars, "9 is greater than the maximum of 5")
    stars.fill("5")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("button", name="Answer").click()
    expect(page.locator(".title")).to_contain_text("completed")
    expect(page.locator(".question")).to_have_count(0)


def test_an_approval_says_that_its_arguments_are_not_json(open_page: Open) -> None:
    page = open_page("open")
    page.get_by_role("button", name="Edit arguments").click()
    arguments = page.locator(".question textarea")
    arguments.fill('{"order": A-17}')
    page.get_by_role("button", name="Allow").click()
    _expect_problem(arguments, "This is not JSON")
    expect(page.locator(".title")).to_contain_text("suspended")


def test_a_fork_says_which_arguments_are_wrong(open_page: Open) -> None:
    page = open_page("broken@11")
    page.keyboard.press("f")
    arguments = page.get_by_label("Arguments (JSON)")
    expect(arguments).to_have_count(2)
    arguments.nth(1).fill("{topic: 1}")
    fork = page.get_by_role("button", name="Fork and run")
    fork.click()
    _expect_problem(arguments.nth(1), "This is not JSON")
    # Nothing covers the button.
    arguments.nth(1).fill('{"topic": "parcels"}')
    fork.click()
    expect(page.locator(".title")).to_contain_text("fork of")


def test_a_fork_says_that_its_model_is_unknown(open_page: Open) -> None:
    page = open_page("wrong@1")
    page.get_by_role("tab", name="Fork").click()
    page.get_by_text("Instructions and model").click()
    field = page.get_by_label("Model of all agents")
    for model, message in (
        ("nowhere:x", "nowhere:x"),
        ("careful", "has no provider prefix; write it as `provider:name`"),
        ("desk:other", "the desk has no model `desk:other`"),
    ):
        field.fill(model)
        page.get_by_role("button", name="Fork and run").click()
        expect(page.get_by_role("alert")).to_contain_text(message)
        _expect_problem(field, message)
    assert page.url.endswith("#wrong@1")


def test_a_fork_shows_the_arguments_of_the_chosen_tool(open_page: Open) -> None:
    page = open_page("broken@11")
    page.keyboard.press("f")
    note = page.get_by_role("note")
    expect(note.first).to_have_attribute("aria-label", "Arguments of find_order")
    expect(note.first).to_contain_text("Look up an order.")
    expect(note.first.locator("dl > div")).to_have_text(["orderstring The order's number."])
    page.locator(".form fieldset select").first.select_option("refund")
    expect(note.first).to_have_attribute("aria-label", "Arguments of refund")
    expect(note.first.locator("dt code")).to_have_text(["order", "amount"])
    expect(note.first.locator("dd code")).to_have_text(["string", "number"])
    page.goto(page.url.replace("#broken@11", "#wrong@3"))
    ticket = page.get_by_role("note", name="Arguments of transfer_to_parcels")
    expect(ticket.locator("dd code")).to_have_text(
        ['"refund" or "late parcel" or "broken"', "integer from 1 to 3", "string"]
    )


def test_a_filter_says_that_its_cost_is_not_a_number(open_page: Open) -> None:
    page = open_page("broken")
    page.get_by_role("button", name="Filter").click()
    cost = page.get_by_label("Least cost")
    cost.fill("a lot")
    _expect_problem(cost, "`min_cost` must be a number")
    cost.fill("1")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".sidebar li a")).to_have_count(1)


def test_a_fork_lists_the_tools_that_will_act_and_asks_before_the_payment(open_page: Open) -> None:
    page = open_page("broken@1")
    page.get_by_role("tab", name="Fork").click()
    expect(page.locator(".acting").first).to_contain_text("refund must act once")
    page.get_by_role("button", name="Fork and run").click()
    expect(page.locator(".title")).to_contain_text("fork of")
    page.get_by_role("button", name="Allow").click()
    question = page.locator(".question")
    expect(question).to_contain_text("shall this fork call refund(")
    # What the original run paid is offered, so that nothing is paid again.
    expect(page.get_by_label("Do not call it: take this result")).to_be_checked()
    expect(question.get_by_label("Result", exact=True)).to_have_value(re.compile("EUR paid back"))
    page.get_by_role("button", name="Answer", exact=True).click()
    expect(page.locator(".title")).to_contain_text("completed")
