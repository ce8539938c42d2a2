"""What is asked of one run or of many."""
