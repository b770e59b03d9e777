"""The texts that the machine itself uses: results of calls that did not run, nudges, and endings without an answer.

They are rules like any other: an application words them for its users, and they are stored in the log, so a replay
shows the words that were read then.
"""

from __future__ import annotations

from typing import ClassVar

from ..values.value import Text
from .rules import Rules


class Texts(Rules):
    """The words of the machine, by their readers.

    The model reads *results* in place of the result of a call, and *nudges* once: they are never stored as dialogue,
    and in them `respond_to_user` and `mark_work_complete` stand for whatever tools a request offers that speak to the
    user or claim that the work is complete. Where it offers none, `claim_missing`, `fallback` or `fallback_result` is
    read in place of a nudge that names one. `claim_missing` and `fallback_result` are also those for turns in which no
    user waits for an answer. *Guidance* is part of the system message of each request that offers the tool it is about,
    or whose agent has the role it is about; `{tool}` stands for the tool's name, `{plain_text}` for what the rules make
    of plain text (`plain_text_reply`, `plain_text_fallback` or `plain_text_thought`), and `{profiles}` for the list of
    the profiles. People read *endings* and *reasons*. An empty ending or an empty guidance is left out.
    """

    ADDED: ClassVar = (
        "transcription_note",
        "tool_protocol",
        "tools_guidance",
        "wake_up",
        "too_many_children",
        "too_deep",
        "unknown_profile",
        "nothing_left",
        "act_not_for_role",
        "question_not_for_role",
        "claim_missing",
        "imported",
        "fallback_result",
        "foreground_guidance",
        "background_guidance",
        "sub_agent_guidance",
        "user_message_guidance",
        "agent_message_guidance",
        "transfer_guidance",
        "spawn_guidance",
        "overdue",
        "plain_text_reply",
        "plain_text_fallback",
        "plain_text_thought",
        "words_withheld",
        "instructions_refused",
    )

    # Results
    cancelled: Text = "Cancelled by user"
    skipped: Text = "Skipped: the turn was cancelled"
    question_cancelled: Text = "User cancelled the question"
    declined: Text = "The user declined to answer. Use your own judgment and go on."
    unanswered: Text = "No answer came in time. Use your own judgment and go on."
    question_not_alone: Text = (
        "Not run: a question to the user must be the only call in a response. Ask it alone, then go on."
    )
    question_not_exclusive: Text = "This tool may not ask the user: other tools were running beside it."
    act_not_declared: Text = "The tool did something that it does not declare; none of it was carried out."
    act_not_exclusive: Text = "The tool may not do this beside other tools; none of it was carried out."
    unknown_profile: Text = "There is no profile of this name; nothing was carried out."
    nothing_said: Text = "text is required"
    no_message: Text = "message is required"
    denied: Text = "Denied by the user"
    denied_in_time: Text = "Not run: nobody allowed it in time."
    cut_off: Text = "Not run: the response was cut off before this call was complete. Try again with shorter arguments."
    not_run: Text = "Not run: the limit of this turn is reached."
    no_room: Text = "Not run: the conversation had to be condensed first. Call the tool again if you still need it."
    repeated: Text = "Not run: you made the same call before. Reuse its earlier result."
    child: Text = "Sub-agent"
    child_late: Text = "It did not finish in time."
    child_cancelled: Text = "It was cancelled."
    too_many_children: Text = "Not started: one turn may start no more than {number} sub-agents."
    too_deep: Text = "Not started: sub-agents may not be nested any deeper."
    nothing_left: Text = "Not started: nothing is left of the limits of this turn."
    act_not_for_role: Text = "An agent of this kind may not do this; none of it was carried out."
    question_not_for_role: Text = "This agent has no user to ask. Use your own judgment and go on."
    in_doubt: Text = "It is unknown whether this ran: the program stopped while it was running."
    did_run: Text = "This ran, but its result is lost: the program stopped while it was running."
    did_not_run: Text = "This did not run: the program stopped before it could."
    interrupted: Text = "Not run: the program was interrupted too often."
    undelivered: Text = "(The user did not receive this.)"
    acknowledgement: Text = "Message delivered to user"
    recorded: Text = "Recorded: the user receives it when the turn ends."
    recorded_last: Text = "Recorded: the user receives it when the turn ends, unless you say something else by then."
    claimed: Text = "Noted. It counts unless another call of this response fails or a check finds something missing."

    # Nudges
    nudge: Text = (
        "If you are done, first call respond_to_user with what the user should receive, then call mark_work_complete "
        "with a concise summary. Otherwise go on working."
    )
    speak: Text = (
        "Nothing has reached the user in this turn. Say to the user, with respond_to_user, what they should know."
    )
    answer_missing: Text = (
        "You marked the work as complete, but nothing was said to the user. Call respond_to_user with your answer now."
    )
    relay: Text = "A message for the user is waiting. Present it to the user now, in your own words."
    overdue: Text = (
        "These messages for the user came before, and the user has not heard of them yet. Tell the user about them in "
        "your next answer, in your own words."
    )
    fallback: Text = "Answer the user now, from the results above, in plain words and without calling tools."
    claim_missing: Text = "If you are done, call mark_work_complete with a concise summary. Otherwise go on working."
    fallback_result: Text = (
        "State your result now, from the results of the tools above, in plain words and without calling tools."
    )

    # Tasks
    wake_up: Text = "It is time for your scheduled work: do it now, as your instructions say."

    # Guidance
    how_to_respond: Text = (
        "# How the user hears from you\n"
        "What you say with the tool {tool} reaches the user: it is spoken aloud where they listen, and sent as a "
        "message where they read. {plain_text}\n"
        "Call {tool} whenever something is meant for the user: when you answer a question, read content back to them, "
        "give a result or a summary, confirm an action, or have anything else to tell them.\n"
        "Write in natural sentences, the way people talk, with no Markdown, lists, code or other markup."
    )
    how_to_talk: Text = (
        "# How the user hears from you\n"
        "The user hears what you say with the tool {tool}, at once and in the order in which you say it. {plain_text}\n"
        "Call {tool} for every word that is meant for the user: when you greet them, answer a question, read content "
        "back, tell what you are about to do, give a result or a summary, confirm an action, or have anything else to "
        "tell them.\n"
        "Write in natural sentences, the way people talk, with no Markdown, lists, code or other markup."
    )
    plain_text_reply: Text = (
        "Plain text that you write outside of {tool} reaches the user as well, when the turn ends with it. Do not say "
        "the same thing twice."
    )
    plain_text_fallback: Text = (
        "Plain text that you write outside of {tool} stays with you and is not delivered. Only if you say nothing with "
        "{tool} in a turn, the user receives the text with which the turn ends."
    )
    plain_text_thought: Text = (
        "Plain text that you write outside of {tool} is your own thinking and is not delivered: if you never call "
        "{tool}, the user hears nothing at all."
    )
    foreground_guidance: Text = (
        "# Messages of other agents\n"
        "Other agents work in the background for your user, and write to you. Each of their messages stands between "
        "tags, in which origin names the agent.\n"
        '<message_for_user origin="…">…</message_for_user> holds something that the user has to learn. You must '
        "present it to the user in your next answer, also if they asked for something else: in your own words, as fits "
        "the conversation, with all facts that matter to them, and without the tags or anything else internal.\n"
        '<system_message origin="…">…</system_message> is an internal update and no request of the user. Never show it '
        "to the user, quote it or mention it. Take it into account, do what your task requires because of it, and if "
        "that is nothing, write no answer."
    )
    background_guidance: Text = (
        "# Your role\n"
        "You work in the background, for an agent who talks with a user. Neither of them sees your text: it is your "
        "own thinking. When your work is done for now, end it with a short text and call no tool; new messages wake "
        "you.\n"
        'A message between tags, <system_message origin="…">…</system_message>, comes from another agent or from your '
        "schedule. It is an internal update or a task, and no request of the user."
    )
    sub_agent_guidance: Text = (
        "# Your role\n"
        "Another agent has given you the task in the first message, and waits for your result. Work until the task is "
        "done; then write the result as text and call no tool. Your last text is all that the other agent receives, "
        "so it must be complete and understandable by itself: what you found or did, and what you could not do and "
        "why. No user reads it.\n"
        'A message between tags, <system_message origin="…">…</system_message>, is an internal update of another agent.'
    )
    user_message_guidance: Text = (
        "# How the user hears from you\n"
        "Call {tool} when the user should learn something: a result they wait for, a finding that matters to them, or "
        "something that only they can decide or provide. Write the plain facts, complete and without a greeting: "
        "the agent who talks with the user presents them in its own words. Do not call it for intermediate steps, or "
        "for what the user was told before."
    )
    agent_message_guidance: Text = (
        "# How other agents hear from you\n"
        "Call {tool} to tell another agent something that it needs for its own work. The user does not see it, and the "
        "other agent need not answer. What the user has to learn does not belong there."
    )
    transfer_guidance: Text = (
        "# Profiles\n"
        "These profiles describe ways for you to work. When another one suits what the user needs now, call {tool} "
        "with its name: from then on you work by it, with the same user and the same conversation.\n"
        "{profiles}"
    )
    spawn_guidance: Text = (
        "# Sub-agents\n"
        "A task that you hand over with {tool} may name one of these profiles, by which its sub-agent then works:\n"
        "{profiles}"
    )
    transcription_note: Text = (
        "The user speaks, and their words reach you through speech recognition: words may be misheard, missing or "
        "spelled in another way. Read a message as it was most likely meant. If it stays unclear, answer with one "
        "short question."
    )
    tool_protocol: Text = (
        "You work in steps. In each step you either call tools or answer the user.\n"
        "Call a tool by its name, with arguments that fit its schema; write no calls into your text. You see the "
        "results before your next step. When a call fails, try another way, or offer the user an alternative. Do not "
        "repeat a call whose result you already have.\n"
        "When you have what you need, answer in text and call no tool: this text is your reply and ends the turn. If "
        "you cannot tell what the user wants, reply with one short question."
    )
    tools_guidance: Text = (
        "Prefer the data that these tools return over what you remember, and a tool made for a task over shell "
        "commands that do the same. State only what the results support."
    )

    # Endings
    ending: Text = "I have no answer to that."
    limit: Text = "I stopped here: the limit of this turn is reached."
    error: Text = "I could not answer:"

    # Reasons that people read
    full: Text = "The conversation does not fit into the model's window, even when it is condensed."
    imported: Text = "This turn was under way elsewhere when the conversation was imported."
    died_too_often: Text = "The program stopped too often in the middle of this turn."
    words_withheld: Text = "What was said in this turn is not shown to the model any more. Say it in other words."
    instructions_refused: Text = "As this happens again and again, it may be the instructions that are refused."
