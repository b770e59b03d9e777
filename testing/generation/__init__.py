"""Generated events, answers, requests, policies, states and effects: one source of them for everybody.

A generator is a function of a `Chance`, which makes its choices, and of a `Vocabulary`, which says what may be chosen.
Hypothesis strategies (`strategies`), walks (`walking`) and simulations (`simulation/`) are three ways to use the
generators. What decides when a generated event happens, and what must hold afterwards, does not belong here.
"""
