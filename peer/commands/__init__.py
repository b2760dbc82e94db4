"""What each command does. Imported when the command runs, so that ``swarm --help`` stays fast."""
