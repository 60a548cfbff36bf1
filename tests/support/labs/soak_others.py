"""Attempts of users in the soak who may read a store, or not even that; given to processes as text, too."""

import fcntl
import itertools
import os
import random

import shmarrow as sa


def attack(where, mine, say, hear, member):
    """Try what a user must not, who may read at most, thirty times whenever told to; say what went well for them."""
    folder = os.path.join(mine, str(os.getpid()))
    os.makedirs(folder)

    def locked(file, kind, start, length):
        fd = os.open(f"{where}/{file}", os.O_RDWR if kind == fcntl.LOCK_EX else os.O_RDONLY)
        try:
            fcntl.lockf(fd, kind | fcntl.LOCK_NB, length, start)
        finally:
            os.close(fd)

    def opened(file, flags):
        os.close(os.open(file, flags, 0o666))

    def planted(name):
        os.close(os.open(f"{where}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))

    def used():
        with sa.Store(where, accept_users=True, create=False) as store:
            store.put("planted", 1, overwrite=True)

    def tries(file):
        found = {
            "write": lambda: opened(file, os.O_WRONLY),
            "truncate": lambda: opened(file, os.O_RDONLY | os.O_TRUNC),
            "remove": lambda: os.unlink(file),
            "rename": lambda: os.rename(file, f"{where}/other"),
            "hide": lambda: os.rename(where, f"{where}-hidden"),
            "exchange": lambda: os.rename(folder, where),
            "chmod": lambda: os.chmod(file, 0o666),
            "chmod folder": lambda: os.chmod(where, 0o777),
            "plant": lambda: planted("f" * 16),
            "plant link": lambda: os.symlink("/etc/passwd", f"{where}/{'e' * 16}"),
            "commit lock": lambda: locked("commit", fcntl.LOCK_EX, 0, 1),
            "commit read": lambda: locked("commit", fcntl.LOCK_SH, 0, 0),
            "pins lock": lambda: locked("pins", fcntl.LOCK_EX, 0, 0),
            "put": used,
        }
        if not member:
            found |= {
                "read": lambda: opened(file, os.O_RDONLY),
                "list": lambda: os.listdir(where),
                "pin": lambda: locked("pins", fcntl.LOCK_SH, 0, 0),
                "open": lambda: sa.Store(where, accept_users=True, create=False).names(),
            }
        return found

    choice = random.Random(os.getpid())
    for turn in itertools.count():
        if turn % 30 == 0:
            hear()
        try:
            objects = [file for file in os.listdir(where) if len(file) == 16]
        except OSError:
            objects = [f"{choice.randrange(1, 500):016x}"]
        file = f"{where}/{choice.choice(['control', 'pins', 'commit', *objects[:10]])}"
        what, act = choice.choice([*tries(file).items()])
        try:
            act()
        except (OSError, sa.ShmarrowError):
            say("tried")
        else:
            say(f"{what} {file}")


def read(where, kept, say, hear, number_of):
    """Read as a member of the group, a hundred objects whenever told to; what is kept is always found."""
    choice = random.Random(os.getpid())
    with sa.Store(where, accept_users=True, create=False) as store:
        held = []
        for turn in itertools.count():
            if turn % 100 == 0:
                hear()
            name = choice.choice([f"kept/{choice.randrange(kept)}", *store.names()])
            try:
                held.append(store.get(name))
            except sa.ObjectNotFound:
                if name.startswith("kept/"):
                    say(f"hidden {name}")
                continue
            number = number_of(held[-1])
            wrong = number is None or (name.startswith("kept/") and number != int(name[5:]))
            say(f"torn {name}" if wrong else "read")
            while len(held) > choice.randrange(6):
                held.pop(0)
