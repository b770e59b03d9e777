"""Carries out the effects of conversations: model requests, recall, tools, timers and deliveries.

    model/      language models, and the requests to them
    recall/     what belongs to a turn: recent dialogue, older conversations, documents
    location/   where the user is
    tools/      tools of the application; `mcp/` connects those of MCP servers
    channels/   ways to the user
    redaction/  finds secrets in texts

Nothing here knows the store, or which state a conversation is in.
"""
