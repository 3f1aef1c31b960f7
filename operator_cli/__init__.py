"""The command line, standing on the SDK: one file a noun, each loaded only when it is asked for."""
