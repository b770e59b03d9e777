"""What an engine is put together from, beside its store, models, tools and channels: performers, providers, memory."""
