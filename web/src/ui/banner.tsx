/** The banner that is shown on every view, and in every sheet, while the gateway cannot record. */

import { useRecordingProblem } from "../api/hooks.ts";

export function RecordingBanner() {
  const problem = useRecordingProblem();
  return problem === null ? null : <RecordingProblem problem={problem} />;
}

export function RecordingProblem({ problem }: { problem: string }) {
  return (
    <div className="banner" role="alert">
      <strong>The gateway cannot record what it does: {problem}</strong>
      <p>
        Calls and changes that must be recorded are refused. They are accepted again as soon as records can be
        written, for example once the disk has free space.
      </p>
    </div>
  );
}
