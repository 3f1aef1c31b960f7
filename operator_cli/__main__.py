"""`python -m operator_cli` is `enlist`, for a checkout that is not installed."""

from operator_cli import main

main.main()
