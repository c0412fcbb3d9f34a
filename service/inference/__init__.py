"""The model in use: the engine, its batches and shapes, and the fallbacks that need no engine."""
