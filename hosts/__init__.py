"""Programs that drive the engine. Nothing in turnwise imports them."""
