"""Where conversations are kept: one SQLite file that holds every step of each, so that a crash loses nothing.

Four jobs, one module or two for each. `rows` is a step as it stands in the table, `outbox` what goes out with it.
`codec` turns steps into rows and back; `entry` is a step that was read. `recorder` is the SQL by which conversations go
on; what is done to whole ones stands in `whole`, and with what does it. `store` and `log` are what the rest of turnwise
talks to: `Store` opens a database and hands out a `ConversationLog` for each conversation, which takes its steps one by
one; `summary` is a conversation in a list. `port` says what they promise, for stores of other kinds.

`database` is the file with its two threads: `thread` is either of them, `writer` the one that writes, which stores the
steps that wait together, each time by one `transaction`, with the `receipts` of what was delivered; `promise` tells
the tasks. The others see to the file: `address`, `lock`, `identity`, `connection`, `migrate`.

What is stored can be looked at and carried about: `replay` takes a log through its steps again, `audit` and `doctor`
look for what is wrong, `fork` copies, `export` writes conversations as text, and `export_reader` and `imports` take
them in again; `whole` is a conversation with all of its steps at once.

SQLAlchemy is imported nowhere else in turnwise.
"""
