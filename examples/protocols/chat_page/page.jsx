// A chat page: it shows which agent speaks, when control goes from one to another, and asks for approvals.
import { useState } from "react";
import { createRoot } from "react-dom/client";
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, getToolName, isToolUIPart } from "ai";

const transport = new DefaultChatTransport({
  api: "/api/chat/",
  // The server has the conversation: the last message is enough.
  prepareSendMessagesRequest: ({ id, messages, body, trigger, messageId }) => ({
    body: { ...body, id, trigger, messageId, messages: messages.slice(-1) },
  }),
});

function isDecided({ messages }) {
  const states = messages.at(-1)?.parts.map((part) => part.state) ?? [];
  return states.includes("approval-responded") && !states.includes("approval-requested");
}

function Tool({ part, decide }) {
  const results = { "output-available": part.output, "output-error": part.errorText, "output-denied": "denied" };
  return (
    <div className="tool">
      <code>{getToolName(part)}({JSON.stringify(part.input)})</code> {results[part.state]}
      {part.state === "approval-requested" && (
        <div>
          <p>{part.toolMetadata.agent} asks for your approval.</p>
          <button onClick={() => decide({ id: part.approval.id, approved: true })}>Approve</button>
          <button onClick={() => decide({ id: part.approval.id, approved: false })}>Deny</button>
        </div>
      )}
    </div>
  );
}

function Part({ part, role, decide }) {
  if (part.type === "data-handoff") return <p className="handoff">{part.data.from} → {part.data.to}</p>;
  if (isToolUIPart(part)) return <Tool part={part} decide={decide} />;
  const from = part.providerMetadata?.baton;
  if (part.type !== "text" || from?.discarded) return null;
  return (
    <>
      {role === "assistant" && <span className="agent">{from.agent}</span>}
      <span className="bubble">{part.text}</span>
    </>
  );
}

function Page() {
  const [text, setText] = useState("");
  const { messages, sendMessage, addToolApprovalResponse, status, stop, error, regenerate } = useChat({
    transport,
    sendAutomaticallyWhen: isDecided,
  });
  const isBusy = status === "submitted" || status === "streaming";
  const send = (event) => {
    event.preventDefault();
    sendMessage({ text });
    setText("");
  };
  return (
    <>
      <h1>Support desk</h1>
      {messages.map(({ id, role, parts }) => (
        <div key={id} className={`message ${role}`}>
          {parts.map((part, index) => (
            <Part key={index} part={part} role={role} decide={addToolApprovalResponse} />
          ))}
        </div>
      ))}
      {error && <p className="error">{error.message} <button onClick={() => regenerate()}>Try again</button></p>}
      <form onSubmit={send}>
        <input value={text} onChange={(event) => setText(event.target.value)} placeholder="Your message" aria-label="Your message" />
        {isBusy ? <button type="button" onClick={stop}>Stop</button> : <button disabled={!text}>Send</button>}
      </form>
    </>
  );
}

createRoot(document.getElementById("page")).render(<Page />);
