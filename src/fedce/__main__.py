"""python -m fedce"""

from fedce.cli import main

main()
