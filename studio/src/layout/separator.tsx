/** The border of a pane, which can be dragged with a pointer and moved with the arrow keys. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { reset, resize, type Pane } from "./sizes";

const STEP = 24;

interface SeparatorProps {
  pane: Pane;
  label: string;
  /** Whether the pane is beside the border ("x") or above or below it ("y"). */
  axis: "x" | "y";
  /** The place of the pane in relation to its border: the element before or after it, or the one around it. */
  resizes: "previous" | "next" | "around";
}

export function Separator({ pane, label, axis, resizes }: SeparatorProps) {
  const border = useRef<HTMLDivElement>(null);
  const [percent, setPercent] = useState(50);
  const [isDragged, setDragged] = useState(false);
  const side = axis === "x" ? "width" : "height";
  const sign = resizes === "next" ? -1 : 1;
  const element = (): Element => {
    const { previousElementSibling, nextElementSibling, parentElement } = border.current!;
    return { previous: previousElementSibling, next: nextElementSibling, around: parentElement }[
      resizes
    ]!;
  };
  const size = (): number => element().getBoundingClientRect()[side];
  const room = (): number => element().parentElement!.getBoundingClientRect()[side];
  const growBy = (pixels: number): void =>
    resize(pane, Math.min(Math.max(size() + pixels, 0), room()));
  useLayoutEffect(() => {
    const measure = (): void => setPercent(Math.round((size() / Math.max(room(), 1)) * 100));
    const observer = new ResizeObserver(measure);
    observer.observe(element());
    return () => observer.disconnect();
  }, [pane]);

  const onPointerDown = (down: PointerEvent): void => {
    if (down.button !== 0) return;
    down.preventDefault();
    border.current!.setPointerCapture(down.pointerId);
    const position = (event: PointerEvent): number =>
      axis === "x" ? event.clientX : event.clientY;
    const before = size();
    const onMove = (move: PointerEvent): void => {
      const wanted = before + sign * (position(move) - position(down));
      resize(pane, Math.min(Math.max(wanted, 0), room()));
    };
    const onEnd = (): void => {
      setDragged(false);
      border.current?.removeEventListener("pointermove", onMove);
    };
    setDragged(true);
    border.current!.addEventListener("pointermove", onMove);
    border.current!.addEventListener("lostpointercapture", onEnd, { once: true });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const away = axis === "x" ? "ArrowRight" : "ArrowDown";
    const back = axis === "x" ? "ArrowLeft" : "ArrowUp";
    if (event.key === away) growBy(sign * STEP);
    else if (event.key === back) growBy(-sign * STEP);
    else if (event.key === "Home") resize(pane, 0);
    else if (event.key === "End") resize(pane, room());
    else if (event.key === "Enter") reset(pane);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div
      ref={border}
      class={`separator ${axis} ${isDragged ? "dragged" : ""}`}
      role="separator"
      tabIndex={0}
      aria-label={label}
      aria-orientation={axis === "x" ? "vertical" : "horizontal"}
      aria-valuenow={percent}
      aria-valuemin={0}
      aria-valuemax={100}
      title="Drag, or use the arrow keys; double-click for the first size"
      onPointerDown={onPointerDown}
      onKeyDown={onKeyDown}
      onDblClick={() => reset(pane)}
    />
  );
}
