from tests.encoders.conftest import checkpoint, config, one_thread, recordings

__all__ = ["checkpoint", "config", "one_thread", "recordings"]
