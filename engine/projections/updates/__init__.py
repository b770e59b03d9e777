"""What watchers of a conversation see, in one vocabulary for programs, streams and pages.

Updates follow from the log, so one that was missed can be read again. Each has the id "seq.n": the step, and its
position in the step. Live updates come between them; they have no id and are never stored: `token`, `tool_progress`,
`delivered` and `delivery_failed`. The last two report what became of an attempt to deliver; a delivery that has not
arrived stays in the outbox.

A client that shows an answer while it is written keeps the text of its tokens apart from the messages, with the
`(request, attempt)` that the text belongs to:

- a snapshot begins the text with its `streaming`, or empty;
- a token of another `(request, attempt)` empties it first; a token is added, or with `from_start` it replaces the text
  of its kind;
- a message of the assistant, or a thought, is the answer: it empties the text;
- a state_change empties it, unless the `request` and `attempt` of the state are those of the text.
"""
