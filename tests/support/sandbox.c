/* A sandbox of tests, preloaded: what the variable SANDBOX names is denied, as by seccomp or by an old system. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static int denied(const char *what, int code) {
    const char *list = getenv("SANDBOX");
    if (!list || !strstr(list, what)) return 0;
    errno = code;
    return 1;
}

#define NEXT(name) dlsym(RTLD_NEXT, name)

int link(const char *a, const char *b) {
    if (denied("links", EPERM)) return -1;
    return ((int (*)(const char *, const char *))NEXT("link"))(a, b);
}

int linkat(int d, const char *a, int e, const char *b, int flags) {
    if (denied("links", EPERM)) return -1;
    return ((int (*)(int, const char *, int, const char *, int))NEXT("linkat"))(d, a, e, b, flags);
}

int renameat2(int d, const char *a, int e, const char *b, unsigned flags) {
    if (denied("renameat2", ENOSYS)) return -1;
    return ((int (*)(int, const char *, int, const char *, unsigned))NEXT("renameat2"))(d, a, e, b, flags);
}

#define OPENER(name, parameters, values)                                                        \
    int name parameters {                                                                       \
        mode_t mode = 0;                                                                        \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                  \
            va_list rest;                                                                       \
            va_start(rest, flags);                                                              \
            mode = va_arg(rest, mode_t);                                                        \
            va_end(rest);                                                                       \
        }                                                                                       \
        if ((flags & O_TMPFILE) == O_TMPFILE && denied("unnamed", EOPNOTSUPP)) return -1;       \
        return ((int (*) parameters)NEXT(#name)) values;                                        \
    }

OPENER(open, (const char *path, int flags, ...), (path, flags, mode))
OPENER(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENER(openat, (int d, const char *path, int flags, ...), (d, path, flags, mode))
OPENER(openat64, (int d, const char *path, int flags, ...), (d, path, flags, mode))

#define LOCKER(name)                                                                            \
    int name(int fd, int command, ...) {                                                        \
        va_list rest;                                                                           \
        va_start(rest, command);                                                                \
        void *argument = va_arg(rest, void *);                                                  \
        va_end(rest);                                                                           \
        if ((command == F_OFD_GETLK || command == F_OFD_SETLK) && denied("ofd", EINVAL)) return -1; \
        return ((int (*)(int, int, ...))NEXT(#name))(fd, command, argument);                    \
    }

LOCKER(fcntl)
LOCKER(fcntl64)

int posix_fallocate(int fd, off_t start, off_t size) {
    if (denied("fallocate", 0)) return EOPNOTSUPP;
    return ((int (*)(int, off_t, off_t))NEXT("posix_fallocate"))(fd, start, size);
}

int posix_fallocate64(int fd, off_t start, off_t size) {
    return posix_fallocate(fd, start, size);
}
