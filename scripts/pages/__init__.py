"""Makes the parts of docs/ that the code already says: settings, routes, states.

Each such part stands in its page between two marks; what stands around it is written by hand.
`scripts/docs` writes the parts anew, and a test in tests/repo compares them, so that a page cannot
drift from what is built. Not shipped; nothing here runs in the product.
"""
