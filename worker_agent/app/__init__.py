"""The long-running Agent: one composition root, named tasks, and little memory."""
