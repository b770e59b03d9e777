"""What watchers of a conversation see, in one vocabulary for programs, streams and pages.

Updates follow from the log, so one that was missed can be read again. Each has the id "seq.n": the step, and its
position in the step. Live updates come between them; they have no id and are never stored: `token`, `tool_progress`,
`delivered` and `delivery_failed`. The last two report what became of an attempt to deliver; a delivery that has not
arrived stays in the outbox.
"""
