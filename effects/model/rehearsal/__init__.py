"""The rehearsal model: fixed rules in place of a language model. Nothing here knows litellm or the performers."""
