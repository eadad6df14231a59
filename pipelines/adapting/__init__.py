"""`cotbert adapt` and `quickstart`: choosing, by the user's own texts, how to adapt an encoder."""
