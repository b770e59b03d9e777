// What the page knows of the states of the machine, by their types. A state of a later version counts as busy.

const RESTS = new Set(["idle", "failed", "closed"]);
const WAITS_FOR_PERSON = new Set(["awaiting_user_response", "awaiting_approval", "in_doubt"]);

const LABELS = {
  idle: "Ready",
  profile_selecting: "Choosing a profile",
  memory_recalling: "Remembering",
  llm_requesting: "Thinking",
  retry_waiting: "Waiting to try again",
  tool_executing: "Running a tool",
  awaiting_user_response: "Needs an answer",
  awaiting_approval: "Needs approval",
  awaiting_sub_agents: "Sub-agents at work",
  verifying: "Checking the work",
  summarizing: "Summing up",
  compacting: "Condensing",
  cancelling: "Stopping",
  in_doubt: "Needs a decision",
  failed: "Failed",
  closed: "Closed",
};

/** Return whether a conversation rests in this state: no turn is under way. */
export function isRest(type) {
  return RESTS.has(type);
}

/** Return whether a person is asked in this state `{type, data}`. A sub-agent may ask, too. */
export function asksPerson({ type, data }) {
  return WAITS_FOR_PERSON.has(type) || Boolean(data.questions?.length);
}

/** Return how a state is coloured: "rest", "busy", "person", "failed" or "closed". */
export function stateTone(type) {
  if (WAITS_FOR_PERSON.has(type)) return "person";
  if (type === "idle") return "rest";
  return isRest(type) ? type : "busy";
}

/** Return what a state is called, for people who chat. One of a later version is called by its type. */
export function stateLabel(type) {
  return LABELS[type] ?? type.replaceAll("_", " ");
}
