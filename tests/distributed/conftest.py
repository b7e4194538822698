"""The script that the processes run is no module of tests."""

collect_ignore = ["trains.py"]
