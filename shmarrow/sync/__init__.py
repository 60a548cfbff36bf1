"""How processes exclude, wake and wait for each other: locks of bytes, and words of shared memory on which they wait.

Stores and rings differ in what they lock and wait for; how they do it is here.
"""
