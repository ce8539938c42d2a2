"""What `import fedce` gives: functions that run, load and ask, and what they return. The command line uses them too."""
