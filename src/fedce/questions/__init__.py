"""Questions about one run or many: doctor, compare, value, allocate, audit, predict."""
