/** The status of a run as a sign. */

const GLYPHS: Record<string, string> = {
  completed: "M3.4 6.3 5.3 8.2 8.8 4",
  failed: "M4 4l4 4m0-4l-4 4",
  suspended: "M4.6 3.8v4.4M7.4 3.8v4.4",
  cancelled: "M3.6 6h4.8",
  waiting: "M6 3.4V6l1.8 1.2",
};

export const Status = ({ of }: { of: string }) => (
  <svg class={`status ${of}`} viewBox="0 0 12 12" role="img" aria-label={of}>
    <circle cx="6" cy="6" r="5.2" />
    {of === "running" ? (
      <circle class="pulse" cx="6" cy="6" r="2" />
    ) : (
      <path d={GLYPHS[of] ?? ""} />
    )}
  </svg>
);
