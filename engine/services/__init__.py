"""What every loop of an engine works with, made once by the engine and shared by its conversations."""
