"""The machine's side: it joins, keeps its trust fresh, and answers as its node.

Two programs live here. `enlist worker …` is short-lived and run by a person; `enlist agent` runs
for years, unprivileged and small, and therefore imports neither pydantic nor an HTTP framework.
"""
