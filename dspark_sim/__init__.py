"""dspark-sim: a discrete-event simulator of LLM serving with speculative decoding."""

__version__ = "0.1.0"
