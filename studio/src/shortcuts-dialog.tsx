/** The keyboard shortcuts, in a dialog. */
import { useEffect, useRef } from "preact/hooks";
import { isHelpOpen, SHORTCUTS } from "./keyboard";

const SHOWN: Record<string, string> = { ArrowDown: "↓", ArrowUp: "↑" };

export function ShortcutsDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (isHelpOpen.value) dialog.current!.showModal();
    else dialog.current!.close();
  }, [isHelpOpen.value]);
  const close = (): void => {
    isHelpOpen.value = false;
  };
  return (
    <dialog ref={dialog} class="shortcuts" aria-labelledby="shortcuts-title" onClose={close}>
      <header>
        <h2 id="shortcuts-title">Keyboard shortcuts</h2>
        <button class="plain" aria-label="Close" onClick={close}>
          ✕
        </button>
      </header>
      <dl>
        {SHORTCUTS.map(({ keys, text }) => (
          <div>
            <dt>
              {keys.map((key) => (
                <kbd>{SHOWN[key] ?? key}</kbd>
              ))}
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <p>The borders of panes can be dragged, or moved with the arrow keys.</p>
    </dialog>
  );
}
