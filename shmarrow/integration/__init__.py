"""The JSON form of Arrow's integration tests, and the commands of its tester."""
