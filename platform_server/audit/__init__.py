"""What happened: the chained log of actions and the stream of events.

Not the capped log of enrollment attempts: that belongs to enrollment.
"""
