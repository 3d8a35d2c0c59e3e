/** The difference of two texts. */
import { diffWords } from "diff";

/** The words of both forms: those that were dropped are struck out, new ones are marked. */
export const Words = ({ before, after }: { before: string; after: string }) => (
  <p>
    {diffWords(before, after).map((part) =>
      part.added ? <ins>{part.value}</ins> : part.removed ? <del>{part.value}</del> : part.value,
    )}
  </p>
);
