/* A second implementation of docs/protocol.md, for tests: it shares no code with the package.

store create DIR MODE [CAPACITY [DURABLE]]    store ls DIR        store get DIR NAME > FILE
store put DIR NAME FILE [--overwrite]         store rm DIR NAME   store hold DIR NAME SECONDS   store check DIR
store die DIR NAME FILE STEP                  a put that kills itself at the STEPth point; ends with 0 if there is none

Ends with 3 where there is no such object, 4 where the name is taken, 5 where there is no room, 1 for all else. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;
typedef uint32_t u32;
enum { VERSION = 8, SLOT_SIZE = 12, SLOTS_AT = 16, ID = 24, BOOT = 40, MODULUS = 56, CAPACITY = 64, MODE = 76, DURABLE = 80,
       SPILL_LENGTH = 84, SPILL = 1024, SEQUENCE = 128, JOURNAL = 136, ROOM = 144, BUCKETS = 152, FREE = 160, REMOVED = 168,
       GENERATION = 176, FILES = 184, OBJECTS = 200, BYTES = 208, REMOVED_BYTES = 216, DRAFT_BYTES = 224, SPILLED_BYTES = 232,
       EVENTS = 240, ADDING = 248, ADDING_SLOT = 256, REMOVING = 264, PUTS = 272, STATE_END = 320, RING = 12288,
       SLOTS = 86016, SLOT = 384, LIVE = 2, HAS_SUM = 4, SYNCED = 8, SPILLED = 2 };
struct slot {
    u64 generation, hash, file, size, allocated, published, expires, expires_wall, owner, sum;
    u32 state, flags, length, crc;
    u64 used;
    u32 head, next;
    uint8_t zeros[16], name[256];
};
struct event { u64 number, generation; u32 kind, length; uint8_t name[256], zeros[8]; };
_Static_assert(sizeof(struct slot) == SLOT && sizeof(struct event) == 288, "layout");

static int dir, control, pins, commits, mode, until = -1;     /* until: points to go before the process kills itself */
static uint8_t *shared, *m;                                   /* control as all see it, and the view that is worked on */
static struct { u64 at; u32 length, zero; } pieces[256];      /* what the commit that is being prepared changes in m */
static int changed;
static u64 pinned = -1ull;                                    /* the pin byte locked until the commit is done */
static const size_t SPAN = 1ull << 36;                        /* address space for control to grow in */

static _Noreturn void fail(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(code);
}
#define TRY(call) ({ __typeof__(call) r_ = (call); if (r_ == (__typeof__(call))-1) fail(1, "%s: %s", #call, strerror(errno)); r_; })
#define U64(at) (*(u64 *)(m + (at)))
#define U32(at) (*(u32 *)(m + (at)))
#define HEAD(bucket) (SLOTS + (u64)(bucket) * SLOT + 104)
#define NEXT(slot) (SLOTS + (u64)(slot) * SLOT + 108)
static struct slot *at(u64 slot) { return (struct slot *)(m + SLOTS + slot * SLOT); }
static void point(void) { if (until > 0 && !--until) kill(getpid(), SIGKILL); }
static u64 now(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }

static u32 crc32(u32 crc, const void *data, size_t length) {
    crc = ~crc;
    for (const uint8_t *p = data; length--; p++) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xEDB88320u & -(crc & 1));
    }
    return ~crc;
}
static u32 slot_crc(const struct slot *s) { return crc32(crc32(0, s, 92), s->name, s->length); }
static u64 hash(const char *name) {
    u64 r = 0;
    for (; *name; name++) r = ((unsigned __int128)r * 256 + (uint8_t)*name) % U64(MODULUS);
    return r;
}
static u64 bucket(u64 h, u64 n) {
    u64 power = 1;
    while (power < n) power *= 2;
    u64 i = h & (power - 1);
    return i < n ? i : i - power / 2;
}
/* Take or test a record lock. 0 if it was taken or, for F_GETLK, if nobody has it. */
static int lock(int fd, int type, u64 byte, int how) {
    struct flock l = {.l_type = type, .l_start = byte, .l_len = 1};
    int r;
    do r = fcntl(fd, how, &l); while (r && (errno == EINTR || errno == EDEADLK));   /* EDEADLK is false between threads */
    return how == F_GETLK ? l.l_type != F_UNLCK : r;
}
static int is_held(u64 slot) { return lock(pins, F_WRLCK, slot, F_GETLK) || lock(pins, F_WRLCK, (1ull << 40) + slot, F_GETLK); }
static char *number_name(u64 file) { static char text[17]; sprintf(text, "%016llx", (unsigned long long)file); return text; }
static int spill_directory(void) {
    char path[1100] = "";
    memcpy(path, m + SPILL, U32(SPILL_LENGTH) < 1024 ? U32(SPILL_LENGTH) : 0);
    strcat(path, "/");
    for (int i = 0; i < 16; i++) sprintf(path + strlen(path), "%02x", m[ID + i]);
    return open(path, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}
static int directory_of(const struct slot *s) { return s->flags & SPILLED ? TRY(spill_directory()) : dir; }
static void remove_file(u64 file) {
    unlinkat(dir, number_name(file), 0);
    int spill = U32(SPILL_LENGTH) ? spill_directory() : -1;
    if (spill >= 0) unlinkat(spill, number_name(file), 0), close(spill);
}

static int is_valid(const struct slot *s, const char *name, u64 h) {
    return s->state == LIVE && s->hash == h && s->length == strlen(name) && !memcmp(s->name, name, s->length) && s->crc == slot_crc(s);
}
static int is_expired(const struct slot *s) { return s->expires && s->expires <= now(CLOCK_BOOTTIME); }
static int64_t find(const char *name) {
    u64 h = hash(name), n = U64(BUCKETS), steps = n;
    if (n > U64(ROOM)) return -1;
    for (u64 i = n ? U32(HEAD(bucket(h, n))) : 0; i && i <= n && steps--; i = at(i - 1)->next)
        if (is_valid(at(i - 1), name, h)) return i - 1;
    return -1;
}
/* Apply the journal that is whole and not applied yet, if there is one, to a view. */
static void apply_journal(uint8_t *view) {
    u64 n = *(u64 *)(view + JOURNAL) + 1;
    uint8_t *area = view + 4096 + n % 2 * 4096;
    u32 length = *(u32 *)(area + 8);
    if (*(u64 *)area != n || length > 4080 || *(u32 *)(area + 12) != crc32(crc32(0, &n, 8), area + 16, length)) return;
    for (u32 i = 0, size; i < length; i += 16 + (size + 7) / 8 * 8) {
        size = *(u32 *)(area + 16 + i + 8);
        memcpy(view + *(u64 *)(area + 16 + i), area + 16 + i + 16, size);
    }
}
static u64 sequence(void) { return __atomic_load_n((u64 *)(shared + SEQUENCE), __ATOMIC_ACQUIRE); }
static void store(u64 at, u64 value) { __atomic_store_n((u64 *)(shared + at), value, __ATOMIC_RELEASE); }
static uint8_t *map(int flags) { return TRY(mmap(NULL, SPAN, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, control, 0)); }

static void check_size(void) {
    struct stat st;
    TRY(fstat(control, &st));
    if (!st.st_nlink) fail(1, "the store was removed");
    if ((u64)st.st_size < SLOTS || ((u64)st.st_size - SLOTS) / SLOT < *(u64 *)(shared + ROOM)) fail(1, "control is cut off");
}
static void unpin(void) { if (pinned != -1ull) lock(pins, F_UNLCK, pinned, F_SETLK), pinned = -1; }
/* Take the commit lock, repair what a killed writer left, and prepare changes in a private view. */
static void begin(void) {
    TRY(lock(commits, F_WRLCK, 0, F_SETLKW));
    check_size();
    u64 before = *(u64 *)(shared + JOURNAL), events;
    apply_journal(m = shared);
    if (sequence() % 2) store(SEQUENCE, sequence() + 1);
    events = U64(EVENTS);
    if (before != U64(JOURNAL)) TRY(pwrite(pins, &events, 8, 0));
    if (U64(ADDING) && U64(ADDING_SLOT) <= U64(ROOM) && at(U64(ADDING_SLOT) - 1)->file != U64(ADDING)) remove_file(U64(ADDING));
    if (U64(REMOVING)) remove_file(U64(REMOVING));
    store(ADDING, 0), store(ADDING_SLOT, 0), store(REMOVING, 0);
    m = map(MAP_PRIVATE);
    changed = 0;
}
static void end(void) {
    unpin();
    munmap(m, SPAN);
    m = shared;
    lock(commits, F_UNLCK, 0, F_SETLK);
}
static void change(u64 offset, u32 length) { pieces[changed].at = offset, pieces[changed++].length = length; }
static void set32(u64 offset, u32 value) { U32(offset) = value, change(offset, 4); }
static void commit(void) {
    uint8_t area[4096] = {0};
    u64 n = ++U64(JOURNAL), events = U64(EVENTS);
    u32 length = 0, crc;
    change(JOURNAL, STATE_END - JOURNAL);
    for (int i = 0; i < changed; length += 16 + (pieces[i++].length + 7) / 8 * 8) {
        if (length + 16 + pieces[i].length > 4080) fail(1, "more changes than a journal holds");
        memcpy(area + 16 + length, &pieces[i], 16);
        memcpy(area + 32 + length, m + pieces[i].at, pieces[i].length);
    }
    crc = crc32(crc32(0, &n, 8), area + 16, length);
    memcpy(area, &n, 8), memcpy(area + 8, &length, 4), memcpy(area + 12, &crc, 4);
    TRY(pwrite(control, area + 16, length / 2 / 8 * 8, 4096 + n % 2 * 4096 + 16)), point();
    TRY(pwrite(control, area + 16, length, 4096 + n % 2 * 4096 + 16)), point();
    TRY(pwrite(control, area, 16, 4096 + n % 2 * 4096)), point();
    if (U32(DURABLE)) TRY(fdatasync(control)), point();
    store(SEQUENCE, sequence() + 1), point();
    for (int i = 0; i < changed; i++) memcpy(shared + pieces[i].at, m + pieces[i].at, pieces[i].length), point();
    store(SEQUENCE, sequence() + 1), point();
    TRY(pwrite(pins, &events, 8, 0)), point();
    changed = 0;
}
static void link_slot(u64 slot) {
    u64 b = bucket(at(slot)->hash, U64(BUCKETS));
    set32(NEXT(slot), U32(HEAD(b)));
    set32(HEAD(b), slot + 1);
}
static void unlink_slot(u64 slot) {
    u64 link = HEAD(bucket(at(slot)->hash, U64(BUCKETS)));
    while (U32(link) != slot + 1) link = NEXT(U32(link) - 1);
    set32(link, at(slot)->next);
}
static void retire(u64 slot, u64 list, int state) {
    *at(slot) = (struct slot){.hash = at(slot)->hash, .file = at(slot)->file, .allocated = at(slot)->allocated, .state = state,
                              .flags = at(slot)->flags, .head = at(slot)->head, .next = U64(list)};
    at(slot)->crc = slot_crc(at(slot));
    change((u64)((uint8_t *)at(slot) - m), SLOT);
    U64(list) = slot + 1;
}
/* Free the first removed slots that nobody holds any more. */
static void sweep(void) {
    for (u64 slot; U64(REMOVED) && !is_held(slot = U64(REMOVED) - 1);) {
        U64(REMOVED) = at(slot)->next;
        if (!(at(slot)->flags & SPILLED)) U64(REMOVED_BYTES) -= at(slot)->allocated;
        retire(slot, FREE, 0);
        commit();
    }
}
/* A slot that is free, or a new one, which splits a bucket. */
static u64 take_slot(void) {
    u64 slot = U64(FREE) - 1, n = U64(BUCKETS), top = 1;
    if (U64(FREE)) return U64(FREE) = at(slot)->next, slot;
    if (n == U64(ROOM)) {
        if ((errno = posix_fallocate(control, 0, SLOTS + (n * 2 + 1) * SLOT))) fail(5, "no room for control to grow");
        U64(ROOM) = n * 2 + 1;
    }
    U64(BUCKETS) = n + 1;
    if (n == 0) return n;
    while (top * 2 <= n) top *= 2;
    for (u64 link = HEAD(n - top), i; (i = U32(link));)
        if ((at(i - 1)->hash & (top * 2 - 1)) == n)
            set32(link, at(i - 1)->next), set32(NEXT(i - 1), U32(HEAD(n))), set32(HEAD(n), i);
        else
            link = NEXT(i - 1);
    return n;
}
static void add_event(int kind, const struct slot *s) {
    u64 number = ++U64(EVENTS), offset = RING + number % 256 * 288;
    struct event event = {.number = number, .generation = s->generation, .kind = kind, .length = s->length};
    memcpy(event.name, s->name, s->length);
    memcpy(m + offset, &event, sizeof event);
    change(offset, sizeof event);
}
static void remove_object(u64 slot) {
    struct slot *s = at(slot);
    int taken = !lock(pins, F_WRLCK, slot, F_SETLK);     /* so that nobody attaches it in this moment */
    int held = !taken || lock(pins, F_WRLCK, (1ull << 40) + slot, F_GETLK);
    if (taken) pinned = slot;
    unlink_slot(slot);
    U64(OBJECTS)--;
    U64(s->flags & SPILLED ? SPILLED_BYTES : BYTES) -= s->allocated;
    if (held && !(s->flags & SPILLED)) U64(REMOVED_BYTES) += s->allocated;
    U64(REMOVING) = s->file;
    retire(slot, held ? REMOVED : FREE, held ? 3 : 0);
}
static void finish(void) {
    u64 old = *(u64 *)(shared + REMOVING);
    if (old) remove_file(old), point();
    store(ADDING, 0), point();
    store(ADDING_SLOT, 0), store(REMOVING, 0), point();
    end();
}
static u64 check_room(u64 wanted) {
    u64 used = U64(BYTES) + U64(REMOVED_BYTES) + U64(DRAFT_BYTES);
    if (U64(CAPACITY) && used + wanted > U64(CAPACITY)) fail(5, "no room: %llu bytes are used", (unsigned long long)used);
    return wanted;
}
static void check_free(const char *name, int overwrite) {
    int64_t old = find(name);
    if (old >= 0 && !overwrite && !is_expired(at(old))) fail(4, "%s is taken", name);
}
static void put(const char *name, const char *path, int overwrite) {
    static uint64_t block[8192];
    struct stat st;
    struct slot s = {.length = strlen(name), .state = 1, .crc = 0};
    int from = TRY(open(path, O_RDONLY)), to = -1, durable = U32(DURABLE);
    u64 slot = 0, reserved = 0;
    if (s.length < 1 || s.length > 255) fail(1, "names have 1 to 255 bytes");
    memcpy(s.name, name, s.length);
    TRY(fstat(from, &st));
    if (U64(CAPACITY) && st.st_size > 1 << 20) {         /* large: counted as a draft while it is being written */
        begin(), sweep(), check_free(name, overwrite);
        s.allocated = reserved = check_room((st.st_size + 4095) / 4096 * 4096);
        slot = take_slot();
        TRY(lock(commits, F_WRLCK, (1ull << 41) + slot, F_SETLK));
        U64(DRAFT_BYTES) += reserved;
        s.file = ++U64(FILES), s.hash = hash(name), s.head = at(slot)->head, s.crc = slot_crc(&s);
        *at(slot) = s;
        change(SLOTS + slot * SLOT, SLOT);
        commit(), end();
        to = TRY(openat(dir, number_name(s.file), O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW, 0600));
        point();
    } else
        to = TRY(openat(dir, ".", O_TMPFILE | O_RDWR, 0600));
    for (ssize_t got; memset(block, 0, sizeof block), (got = TRY(read(from, block, sizeof block)));) {
        for (int i = 0; i < 8192; i++) s.sum += block[i];
        if (TRY(write(to, block, got)) != got) fail(5, "no room to write");
    }
    TRY(fchmod(to, mode & 0444));
    if (durable) TRY(fsync(to));
    TRY(fstat(to, &st));
    point();
    begin(), sweep(), check_free(name, overwrite);
    if (reserved)
        U64(DRAFT_BYTES) -= reserved;
    else {
        check_room(st.st_blocks * 512), slot = take_slot(), s.file = ++U64(FILES);
        store(ADDING_SLOT, U64(ADDING_SLOT) = slot + 1), point();
        store(ADDING, U64(ADDING) = s.file), point();
        char self[40];
        sprintf(self, "/proc/self/fd/%d", to);
        TRY(linkat(AT_FDCWD, self, dir, number_name(s.file), AT_SYMLINK_FOLLOW)), point();
    }
    if (durable) TRY(fsync(dir)), point();
    int64_t old = find(name);
    if (old >= 0) remove_object(old);
    s.generation = ++U64(GENERATION), s.hash = hash(name), s.size = st.st_size, s.allocated = st.st_blocks * 512;
    s.published = now(CLOCK_REALTIME), s.used = now(CLOCK_MONOTONIC), s.state = LIVE, s.flags = HAS_SUM | (durable ? SYNCED : 0);
    s.head = at(slot)->head, s.crc = slot_crc(&s);
    *at(slot) = s;
    change(SLOTS + slot * SLOT, SLOT);
    link_slot(slot);
    U64(OBJECTS)++, U64(PUTS)++, U64(BYTES) += s.allocated;
    add_event(1, &s);
    commit();
    finish();
    if (reserved) lock(commits, F_UNLCK, (1ull << 41) + slot, F_SETLK);
}
static void drop(const char *name) {
    begin(), sweep();
    int64_t slot = find(name);
    if (slot < 0) fail(3, "there is no %s", name);
    add_event(2, at(slot)), remove_object(slot), commit(), finish();
}
/* Look a name up without a lock. m is the view in which it was found. */
static int64_t look(const char *name) {
    for (int tries = 0;; tries++) {
        u64 before = sequence();
        m = shared;
        if (before % 2 && tries > 100) apply_journal(m = map(MAP_PRIVATE));     /* its writer is dead or stopped */
        int64_t slot = find(name);
        if (slot >= 0 || m != shared || (before % 2 == 0 && before == sequence())) return slot;
        if (before % 2) usleep(1000);
    }
}
static int attach(const char *name) {
    for (;;) {
        int64_t slot = look(name);
        if (slot < 0 || is_expired(at(slot))) fail(3, "there is no %s", name);
        u64 generation = at(slot)->generation;
        TRY(lock(pins, F_RDLCK, slot, F_SETLKW));
        if (look(name) == slot && at(slot)->generation == generation) {
            int fd = openat(directory_of(at(slot)), number_name(at(slot)->file), O_RDONLY | O_NOFOLLOW);
            if (fd >= 0) return fd;
            if (errno != ENOENT) fail(1, "%s: %s", name, strerror(errno));
        }
        lock(pins, F_UNLCK, slot, F_SETLK);
    }
}
static void list(void) {
    for (u64 before = 1, i; before % 2 || before != sequence();) {
        static char text[1 << 22];
        size_t end = 0;
        before = sequence();
        for (i = 0; i < U64(BUCKETS) && end < sizeof text - 400; i++)
            if (at(i)->state == LIVE && at(i)->crc == slot_crc(at(i)) && !is_expired(at(i)))
                end += sprintf(text + end, "%llu %llu %.*s\n", (unsigned long long)at(i)->generation,
                               (unsigned long long)at(i)->size, (int)at(i)->length, (char *)at(i)->name);
        if (before % 2 == 0 && before == sequence()) fwrite(text, 1, end, stdout);
    }
}
static int wrong;
static void expect(int right, const char *what, u64 slot) {
    if (!right) wrong = 1, printf("slot %lld: %s\n", (long long)slot, what);
}
static int by_number(const void *a, const void *b) { return (*(u64 *)a > *(u64 *)b) - (*(u64 *)a < *(u64 *)b); }
static void check(void) {
    begin();
    u64 n = U64(BUCKETS), objects = 0, sums[5] = {0}, files = 0, i, *generations = calloc(n + 1, 8);
    uint8_t *seen = calloc(n + 1, 1);
    expect(n <= U64(ROOM) && sequence() % 2 == 0 && !U64(ADDING) && !U64(REMOVING) && !U64(ADDING_SLOT), "header", -1);
    for (u64 b = 0; b < n; b++)
        for (i = U32(HEAD(b)); i; i = at(i - 1)->next) {
            if (i > n || seen[i - 1]++) fail(1, "chain %llu runs in a circle or out of the file", (unsigned long long)b);
            expect(at(i - 1)->state == LIVE && bucket(at(i - 1)->hash, n) == b, "not in its chain", i - 1);
        }
    for (int list = 0; list < 2; list++)
        for (i = U64(list ? REMOVED : FREE); i; i = at(i - 1)->next) {
            if (i > n || seen[i - 1]++) fail(1, "a list runs in a circle or out of the file");
            expect(at(i - 1)->state == (list ? 3 : 0), "in a list of another state", i - 1);
        }
    for (i = 0; i < n; i++) {
        struct slot *s = at(i);
        struct stat st;
        expect(seen[i] == (s->state != 1), "not reached once", i);
        expect(s->state <= 3 && (s->state == LIVE) == (s->generation > 0), "state and generation", i);
        if (s->state == 0) continue;
        sums[s->flags & SPILLED && s->state != 1 ? s->state == LIVE ? 4 : 0 : s->state] += s->allocated;
        expect(s->length <= 255 && s->crc == slot_crc(s) && s->file <= U64(FILES), "crc or file number", i);
        if (s->state == 1) files += !faccessat(dir, number_name(s->file), F_OK, 0);
        if (s->state != LIVE) continue;
        generations[objects++] = s->generation;
        char name[256] = "";
        memcpy(name, s->name, s->length < 256 ? s->length : 0);
        expect(s->hash == hash(name) && s->length == strlen(name) && find(name) == (int64_t)i, "name or hash", i);
        expect(!memcmp(s->name + s->length, (uint8_t[256]){0}, 256 - s->length), "name is not padded with zeros", i);
        expect(s->generation <= U64(GENERATION), "generation above the last one", i);
        expect(!fstatat(directory_of(s), number_name(s->file), &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) && st.st_nlink == 1
               && (st.st_mode & 07777) == ((u32)mode & 0444) && (u64)st.st_size == s->size && (u64)st.st_blocks * 512 == s->allocated, "file", i);
        if (s->flags & HAS_SUM) {
            u64 word, sum = 0;
            FILE *file = fdopen(TRY(openat(directory_of(s), number_name(s->file), O_RDONLY)), "r");
            while (word = 0, fread(&word, 1, 8, file)) sum += word;
            fclose(file);
            expect(sum == s->sum, "sum", i);
        }
        files += !(s->flags & SPILLED);
    }
    for (i = n; i < U64(ROOM); i++) expect(!memcmp(at(i), &(struct slot){0}, SLOT), "not zero, and never used", i);
    expect(objects == U64(OBJECTS) && sums[2] == U64(BYTES) && sums[3] == U64(REMOVED_BYTES) && sums[1] == U64(DRAFT_BYTES)
           && sums[4] == U64(SPILLED_BYTES), "counters", -1);
    qsort(generations, objects, 8, by_number);
    for (i = 1; i < objects; i++) expect(generations[i] != generations[i - 1], "generation given twice", -1);
    for (i = 0; i < 256; i++) {
        struct event *e = (struct event *)(m + RING + i * 288);
        u64 last = U64(EVENTS), number = last - (last - i) % 256;      /* the last number that this place takes */
        if (number == 0 || number > last) number = 0;
        expect(e->number == number && (!number || ((e->kind == 1 || e->kind == 2) && e->length >= 1 && e->length <= 255
               && e->generation >= 1 && e->generation <= U64(GENERATION))), "event", i);
    }
    DIR *entries = fdopendir(dup(dir));
    for (struct dirent *e; (e = readdir(entries));) files -= strlen(e->d_name) == 16 && strspn(e->d_name, "0123456789abcdef") == 16;
    expect(files == 0, "files that no slot has", -1);
    printf("objects %llu bytes %llu removed %llu drafts %llu spilled %llu events %llu\n", (unsigned long long)objects,
           (unsigned long long)sums[2], (unsigned long long)sums[3], (unsigned long long)sums[1], (unsigned long long)sums[4],
           (unsigned long long)U64(EVENTS));
    end();
    exit(wrong);
}
static void boot_id(uint8_t id[16]) {
    char text[40] = "";
    int file = TRY(open("/proc/sys/kernel/random/boot_id", O_RDONLY));
    TRY(read(file, text, 36));
    for (int i = 0, j = 0; i < 16; i++, j += 2) sscanf(text + (j += text[j] == '-'), "%2hhx", &id[i]);
    close(file);
}
static int is_prime(u64 n) {     /* Miller and Rabin's test; these bases decide it for 64 bits */
    for (u64 base = 2; base < 38; base++) {
        u64 d = n - 1, x = 1, power = base, twos = 0;
        for (; d % 2 == 0; d /= 2) twos++;
        for (; d; d /= 2, power = (unsigned __int128)power * power % n)
            if (d % 2) x = (unsigned __int128)x * power % n;
        for (; twos && x != 1 && x != n - 1; twos--) x = (unsigned __int128)x * x % n;
        if (!twos || (x == 1 && twos < (u64)__builtin_ctzll(n - 1))) return 0;
    }
    return 1;
}
static void create(const char *path, u32 permissions, u64 capacity, u32 durable) {
    static uint8_t page[SLOTS + 64 * SLOT] = "shmarrow";
    char self[40];
    u64 prime;
    umask(0);
    if (mkdir(path, 0700) && errno != EEXIST) fail(1, "%s: %s", path, strerror(errno));
    dir = TRY(open(path, O_DIRECTORY | O_NOFOLLOW));
    TRY(openat(dir, "commit", O_CREAT | O_WRONLY, permissions));
    TRY(pwrite(TRY(openat(dir, "pins", O_CREAT | O_WRONLY, permissions)), page + 64, 8, 0));
    control = TRY(openat(dir, ".", O_TMPFILE | O_RDWR, permissions));
    do TRY(getrandom(&prime, 8, 0)), prime = 1ull << 60 | prime >> 4 | 1; while (!is_prime(prime));
    m = page;
    U32(VERSION) = 1, U32(SLOT_SIZE) = SLOT, U64(SLOTS_AT) = SLOTS, U64(MODULUS) = prime, U64(CAPACITY) = capacity;
    U32(72) = capacity > 0, U32(MODE) = permissions, U32(DURABLE) = durable, U64(ROOM) = 64;
    TRY(getrandom(m + ID, 16, 0));
    boot_id(m + BOOT);
    TRY(write(control, page, sizeof page));
    sprintf(self, "/proc/self/fd/%d", control);
    TRY(linkat(AT_FDCWD, self, dir, "control", AT_SYMLINK_FOLLOW));
}
static int open_file(const char *name, int flags) {
    struct stat st, owner;
    int fd = openat(dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) fail(errno == ENOENT ? 3 : 1, "%s: %s", name, strerror(errno));
    TRY(fstat(fd, &st)), TRY(fstat(dir, &owner));
    if (!S_ISREG(st.st_mode) || st.st_uid != owner.st_uid) fail(1, "%s is no file of the store's owner", name);
    return fd;
}
static void open_store(const char *path) {
    uint8_t boot[16];
    dir = TRY(open(path, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    control = open_file("control", O_RDWR), pins = open_file("pins", O_RDWR), commits = open_file("commit", O_RDWR);
    m = shared = map(MAP_SHARED);
    check_size();
    boot_id(boot);
    if (memcmp(m, "shmarrow", 8) || U32(VERSION) != 1 || U32(SLOT_SIZE) != SLOT || U64(SLOTS_AT) != SLOTS) fail(1, "no store of version 1");
    if (memcmp(m + BOOT, boot, 16)) fail(1, "the store is to be rebuilt after a reboot, which this program does not do");
    mode = U32(MODE);
}
int main(int count, char **given) {
    const char *what = count > 2 ? given[1] : "";
    if (!strcmp(what, "create") && count > 3) {
        create(given[2], strtoul(given[3], NULL, 8), count > 4 ? strtoull(given[4], NULL, 0) : 0, count > 5);
        return 0;
    }
    if (count < 3) fail(1, "usage: store create|ls|get|put|rm|hold|check|die DIR ...");
    open_store(given[2]);
    if (!strcmp(what, "ls")) list();
    else if (!strcmp(what, "check")) check();
    else if (!strcmp(what, "rm") && count == 4) drop(given[3]);
    else if (!strcmp(what, "put") && count >= 5) put(given[3], given[4], count > 5);
    else if (!strcmp(what, "die") && count == 6) until = atoi(given[5]), put(given[3], given[4], 1);
    else if ((!strcmp(what, "get") && count == 4) || (!strcmp(what, "hold") && count == 5)) {
        char block[65536];
        int fd = attach(given[3]);
        if (count == 5) return puts("held"), fflush(stdout), usleep(atof(given[4]) * 1e6), 0;
        for (ssize_t got; (got = TRY(read(fd, block, sizeof block)));) fwrite(block, 1, got, stdout);
    } else
        fail(1, "not understood: %s", what);
    return 0;
}
