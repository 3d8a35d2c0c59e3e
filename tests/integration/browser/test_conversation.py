"""The conversation of a run as a main view of Studio."""

import re

from playwright.sync_api import expect
from tests.integration.browser.pages import Open, selected_row


def test_a_conversation_streams_and_continues(open_page: Open) -> None:
    page = open_page("/new")
    page.get_by_label("Thread").fill("customer-99")
    page.get_by_label("Message").fill("Where is my parcel? Order B-7.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".title")).to_contain_text("completed")
    expect(page.locator(".chat .lines")).to_contain_text("Your parcel was delivered yesterday at 14:02.")
    page.get_by_label("Message").fill("Is it in my parcel box?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("h1")).to_contain_text("parcel box")
    expect(page.locator(".title")).to_contain_text("customer-99")
    page.get_by_role("button", name="Timeline").click()
    expect(page.locator(".lanes text.lane", has_text="Parcels")).to_be_visible()


def test_the_conversation_is_large_and_leads_to_events(open_page: Open) -> None:
    page = open_page("broken")
    page.keyboard.press("c")
    chat = page.get_by_role("region", name="Conversation")
    box = chat.bounding_box()
    assert box is not None
    assert box["width"] > 600
    assert box["height"] > 700
    assert page.locator(".lanes").count() == 0
    chat.get_by_text("Your 80.00 EUR are on their way back.").click()
    expect(page).to_have_url(re.compile("#broken@[0-9]+$"))
    expect(page.get_by_role("tab", name="What Closer read")).to_be_visible()
    # The view is remembered, and leads back to the same event.
    page.reload()
    expect(chat.locator("[aria-current]")).to_contain_text("Your 80.00 EUR are on their way back.")
    page.keyboard.press("t")
    selected_row(page, "Your 80.00 EUR are on their way back.").wait_for()


def test_questions_and_answers_are_part_of_the_conversation(open_page: Open) -> None:
    page = open_page("broken")
    page.keyboard.press("c")
    asked = page.locator(".line.asked")
    expect(asked).to_contain_text('allow refund(order: "A-17", amount: 80)?')
    expect(page.locator(".line.asked + .line.user")).to_contain_text("allowed")


def test_the_words_of_an_agent_in_a_tool_call_are_folded_under_the_call(open_page: Open) -> None:
    page = open_page("warranty")
    page.keyboard.press("c")
    inside = page.locator(".lines > details")
    expect(inside.locator("summary")).to_contain_text(
        'Warranty called ask_expert(request: "Is the lamp of A-5 covered?")'
    )
    said = inside.get_by_text("A loose cable is a fault of the maker")
    expect(said).to_be_hidden()
    inside.locator("summary").click()
    expect(said).to_be_visible()
    expect(page.locator(".line[aria-current]")).to_have_count(1)
    speakers = page.locator(".lines > .line .chip").all_inner_texts()
    assert {*speakers} == {"Warranty"}


def test_agents_inside_another_do_not_stand_for_the_run(open_page: Open) -> None:
    page = open_page("parallel@12")
    expect(page.locator('.sidebar a[href="#parallel"] em')).to_have_text("Checks")
    # Event 12 is of Stock, which runs inside Checks.
    selected_row(page, "Three lamps are in stock.").wait_for()
    expect(page.get_by_role("img", name="The team; Checks is active")).to_be_visible()
    page.keyboard.press("c")
    expect(page.locator(".lines > .line.agent")).to_have_text(re.compile("^Checks.*Three lamps are in stock"))
    inside = page.locator(".lines > details")
    expect(inside.locator("summary")).to_have_text("Inside ChecksFraud, Stock")
    inside.locator("summary").click()
    expect(inside.locator(".line .chip")).to_have_text(["Fraud", "Stock"])
