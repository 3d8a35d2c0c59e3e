/** What the forms of questions have in common. */
import type { Event } from "../log/events";

/** With several questions, the buttons only keep an answer until all are sent; a change of the form retracts it. */
export interface QuestionProps {
  event: Event;
  isOne: boolean;
  isBusy: boolean;
  ready: unknown;
  /** What the server said about the answer. */
  problem: string;
  answer: (answer: unknown) => void;
  retract: () => void;
}

/** A button that keeps an answer shows whether it has done so. */
export const pressed = (isOne: boolean, is: boolean): { "aria-pressed"?: boolean } =>
  isOne ? {} : { "aria-pressed": is };
