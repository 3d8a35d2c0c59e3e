// Chats of the package `ai`, as a page has them: plays the steps of its argument and prints what the page would show.
import { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";

const { api, id, token, steps } = JSON.parse(process.argv[2]);
const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

class Page extends AbstractChat {
  constructor(onText = () => {}) {
    const state = {
      status: "ready",
      error: undefined,
      messages: [],
      pushMessage: (message) => (state.messages = [...state.messages, message]),
      popMessage: () => (state.messages = state.messages.slice(0, -1)),
      replaceMessage: (index, message) => {
        state.messages = state.messages.with(index, structuredClone(message));
        onText(textOf(message));
      },
      snapshot: structuredClone,
    };
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    super({
      id,
      state,
      transport: new DefaultChatTransport({ api, headers }),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
      onFinish: ({ isAbort }) => {
        this.isAbort = isAbort;
        this.finished?.();
      },
    });
  }

  find(predicate) {
    return this.messages.at(-1).parts.find(predicate);
  }
}

const textOf = (message) => message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");

let seen;
let page = new Page((text) => seen?.(text));
for (const step of steps) {
  if (step.send && step.leave) {
    const left = new Promise((resolve) => (seen = (text) => text.includes(step.leave) && resolve(page.stop())));
    await Promise.all([page.sendMessage({ text: step.send }), left]);
  } else if (step.send) {
    await page.sendMessage({ text: step.send });
  } else if (step.decide) {
    const finished = new Promise((resolve) => (page.finished = resolve));
    const { approval } = page.find((part) => part.state === "approval-requested");
    await page.addToolApprovalResponse({ id: approval.id, ...step.decide });
    await finished;
  } else if (step.answer !== undefined) {
    const question = page.find((part) => part.type === "data-question");
    await page.sendMessage(undefined, { body: { answers: { [question.id]: step.answer } } });
  } else if (step.regenerate) {
    await page.regenerate();
  } else if (step.resume) {
    page = new Page((text) => seen?.(text));
    seen = (text) => text.includes(step.resume) && print({ saw: step.resume });
    await page.resumeStream();
  }
  seen = undefined;
  print({ messages: page.messages, status: page.status, error: page.error?.message, isAbort: page.isAbort });
}
