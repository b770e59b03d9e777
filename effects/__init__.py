"""Carries out the effects of conversations: model requests, recall, tools, timers and deliveries.

    dispatcher  starts the effects of a step in order, and hands their answers back
    model/      language models, and the requests to them
    recall/     what belongs to a turn: recent dialogue, older conversations, documents
    location    where the user is
    tools/      tools of the application; `mcp/` connects those of MCP servers
    wire/       the definitions of tools as they are sent to models
    channels/   ways to the user
    redaction/  finds secrets in texts

Nothing here knows the store, or which state a conversation is in.
"""
