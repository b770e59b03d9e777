"""Ledgers: what is known of effects, messages, speech, spending and sub-agents from events and effects alone.

Each ledger is given every step, in order, and looks at no state, so that what a state says of itself can be compared
with it. The comparison belongs in `laws/`.
"""
