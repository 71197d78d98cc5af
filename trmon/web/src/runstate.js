// The states of a run.

/** Whether a run's trainer has sent its end, well or ill. */
export const hasEnded = ({ state }) => state === "finished" || state === "crashed";
